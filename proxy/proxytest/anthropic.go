package proxytest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// messagesRequest is the part of a request for a message that is read.
type messagesRequest struct {
	Model    string         `json:"model"`
	System   jsontext.Value `json:"system"`
	Messages []struct {
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
	} `json:"messages"`
	MaxTokens int  `json:"max_tokens"`
	Stream    bool `json:"stream"`
	Tools     []struct {
		Name string `json:"name"`
	} `json:"tools"`
	ToolChoice struct {
		DisableParallel bool `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
}

func (q *messagesRequest) prompt() Prompt {
	p := Prompt{Parallel: !q.ToolChoice.DisableParallel}
	p.add(p.content(q.System))
	for _, m := range q.Messages {
		p.add(p.content(m.Content))
	}
	for _, t := range q.Tools {
		p.Tools = append(p.Tools, t.Name)
	}
	return p
}

// AnthropicFails returns a script that answers with an error of Anthropic's.
func AnthropicFails(status int, kind, message string) Script {
	return func(context.Context, Request) Reply {
		return Reply{
			Status: status, Header: http.Header{"Request-Id": {"req_1"}},
			Body: fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%s},"request_id":"req_1"}`, kind, quote(message)),
		}
	}
}

// Anthropic plays Anthropic's Messages and its token counting. It requires a key and a
// version in the headers of the API.
func (m Model) Anthropic() Script {
	var replies atomic.Int64
	return func(ctx context.Context, r Request) Reply {
		switch {
		case r.Header.Get("X-Api-Key") == "" && r.Header.Get("Authorization") == "":
			return AnthropicFails(http.StatusUnauthorized, "authentication_error", "x-api-key header is required")(ctx, r)
		case r.Header.Get("Anthropic-Version") == "":
			return AnthropicFails(http.StatusBadRequest, "invalid_request_error", "anthropic-version: header is required")(ctx, r)
		}
		var q messagesRequest
		if err := json.Unmarshal(r.Body, &q); err != nil {
			return AnthropicFails(http.StatusBadRequest, "invalid_request_error", err.Error())(ctx, r)
		}
		p := q.prompt()
		in := utf8.RuneCountInString(p.Text)
		switch {
		case r.endpoint("count_tokens"):
			return Reply{Body: fmt.Sprintf(`{"input_tokens":%d}`, in)}
		case !r.endpoint("messages"):
			return AnthropicFails(http.StatusNotFound, "not_found_error", "Not found")(ctx, r)
		case q.MaxTokens == 0:
			return AnthropicFails(http.StatusBadRequest, "invalid_request_error", "max_tokens: Field required")(ctx, r)
		}
		w := message{number: replies.Add(1), model: q.Model, in: in, answer: m(p, 0)}
		if q.Stream {
			return Reply{ContentType: "text/event-stream; charset=utf-8", Pieces: w.stream()}
		}
		return Reply{Header: http.Header{"Request-Id": {"req_1"}}, Body: w.body()}
	}
}

type message struct {
	number int64
	model  string
	in     int
	answer Answer
}

func (w *message) stop() string {
	switch {
	case w.answer.Cut:
		return "max_tokens"
	case len(w.answer.Calls) > 0:
		return "tool_use"
	default:
		return "end_turn"
	}
}

func (w *message) head(content, stop string, out int) string {
	return fmt.Sprintf(`{"id":"msg_%d","type":"message","role":"assistant","model":%s,"content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":%d,"service_tier":"standard"}}`,
		w.number, quote(w.model), content, stop, w.in, out)
}

// blocks returns the content blocks: whole, as they begin, and their deltas.
func (w *message) blocks() (whole, begin []string, deltas [][]string) {
	add := func(all, first string, pieces []string) {
		whole, begin, deltas = append(whole, all), append(begin, first), append(deltas, pieces)
	}
	each := func(text, format string) (pieces []string) {
		for _, r := range text {
			pieces = append(pieces, fmt.Sprintf(format, quote(string(r))))
		}
		return pieces
	}
	if a := &w.answer; a.Reasoning != "" {
		add(`{"type":"thinking","thinking":`+quote(a.Reasoning)+`,"signature":"c2ln"}`, `{"type":"thinking","thinking":"","signature":""}`,
			append(each(a.Reasoning, `{"type":"thinking_delta","thinking":%s}`), `{"type":"signature_delta","signature":"c2ln"}`))
	}
	if a := &w.answer; a.Text != "" {
		add(`{"type":"text","text":`+quote(a.Text)+`}`, `{"type":"text","text":""}`, each(a.Text, `{"type":"text_delta","text":%s}`))
	}
	for i, call := range w.answer.Calls {
		head := fmt.Sprintf(`{"type":"tool_use","id":"toolu_%d_%d","name":%s,"input":`, w.number, i, quote(call.Name))
		add(head+call.Arguments+`}`, head+`{}}`, append([]string{`{"type":"input_json_delta","partial_json":""}`}, each(call.Arguments, `{"type":"input_json_delta","partial_json":%s}`)...))
	}
	return whole, begin, deltas
}

func (w *message) body() string {
	whole, _, _ := w.blocks()
	return w.head(strings.Join(whole, ","), quote(w.stop()), utf8.RuneCountInString(w.answer.raw()))
}

func (w *message) stream() []string {
	var events []string
	tell := func(kind, members string) {
		events = append(events, fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, members))
	}
	tell("message_start", `,"message":`+w.head("", "null", 1))
	_, begin, deltas := w.blocks()
	for i := range begin {
		tell("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":%s`, i, begin[i]))
		if i == 0 {
			tell("ping", "")
		}
		for _, d := range deltas[i] {
			tell("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":%s`, i, d))
		}
		tell("content_block_stop", fmt.Sprintf(`,"index":%d`, i))
	}
	tell("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":%d}`, w.stop(), utf8.RuneCountInString(w.answer.raw())))
	tell("message_stop", "")
	return events
}
