package chat

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The reply forms of OpenAI's API, with the additions of vLLM's server: prompt_token_ids on the reply and
// token_ids on each choice, present only if the request says return_token_ids. They are written member by
// member, because reflection over structs costs several times as much.

func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		s.cfg.Logger.Error("chat: encode reply", slog.Any("error", err))
		status = http.StatusInternalServerError
		body = []byte(`{"error":{"message":"the reply could not be encoded","type":"server_error","param":null,"code":"internal_error"}}`)
	}
	s.writeBody(w, status, body)
}

func (s *Server) writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		s.cfg.Logger.Debug("chat: reply not delivered", slog.Any("error", err))
	}
}

func (s *Server) writeCompletion(w http.ResponseWriter, res *result) {
	b := res.open(make([]byte, 0, res.size()), "chat.completion")
	for i := range res.replies {
		r := &res.replies[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"message":{"role":"assistant","content":`...)
		if len(r.message.ToolCalls) > 0 && r.message.Content == "" {
			b = append(b, "null"...)
		} else {
			b = appendQuote(b, r.message.Content)
		}
		b = append(b, `,"refusal":null`...)
		if r.message.Reasoning != "" {
			b = appendQuote(append(b, `,"reasoning_content":`...), r.message.Reasoning)
		}
		if r.message.ToolCalls != nil {
			b = append(b, `,"tool_calls":[`...)
			for j := range r.message.ToolCalls {
				if j > 0 {
					b = append(b, ',')
				}
				b = r.message.ToolCalls[j].appendMembers(append(b, '{'))
			}
			b = append(b, ']')
		}
		b = append(b, '}')
		b = s.closeChoice(b, res.req, r, &piece{end: len(r.tokens)}, r.finish)
	}
	s.writeBody(w, http.StatusOK, res.close(b, true, true))
}

// size is about how many bytes a completion takes.
func (r *result) size() int {
	n := 512 + 8*len(r.prompt)
	for i := range r.replies {
		n += 256 + len(r.replies[i].message.Content)
		if r.req.Logprobs {
			n += 80 * len(r.replies[i].tokens)
		}
		n += 8 * len(r.replies[i].tokens)
	}
	return n
}

// open begins a reply, up to its first choice.
func (r *result) open(b []byte, object string) []byte {
	b = appendQuote(append(b, `{"id":`...), r.id)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, r.created, 10)
	b = appendQuote(append(b, `,"model":`...), r.req.Model)
	return append(b, `,"choices":[`...)
}

// close ends a reply behind its last choice.
func (r *result) close(b []byte, usage, prompt bool) []byte {
	b = append(b, ']')
	if usage {
		sampled := 0
		for i := range r.replies {
			sampled += len(r.replies[i].tokens)
		}
		b = strconv.AppendInt(append(b, `,"usage":{"prompt_tokens":`...), int64(len(r.prompt)), 10)
		b = strconv.AppendInt(append(b, `,"completion_tokens":`...), int64(sampled), 10)
		b = strconv.AppendInt(append(b, `,"total_tokens":`...), int64(len(r.prompt)+sampled), 10)
		b = append(b, '}')
	}
	if r.version != "" {
		b = appendQuote(append(b, `,"system_fingerprint":`...), r.version)
	}
	if prompt && r.req.ReturnTokenIDs {
		b = appendIDs(append(b, `,"prompt_token_ids":`...), r.prompt)
	}
	return append(b, '}')
}

// closeChoice ends a choice behind its message or delta, which carries the tokens of p, or none if p is nil;
// an empty finish is not the end yet.
func (s *Server) closeChoice(b []byte, req *request, r *reply, p *piece, finish string) []byte {
	b = append(b, `,"logprobs":`...)
	if p != nil && bool(req.Logprobs) {
		b = s.appendLogprobs(b, r.tokens[p.begin:p.end], r.logprobs[p.begin:p.end])
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"finish_reason":`...)
	if finish != "" {
		b = appendQuote(b, finish)
	} else {
		b = append(b, "null"...)
	}
	if p != nil && req.ReturnTokenIDs {
		b = appendIDs(append(b, `,"token_ids":`...), r.tokens[p.begin:p.end])
	}
	return append(b, '}')
}

// appendLogprobs describes tokens. A logprob that is not finite has been refused before.
func (s *Server) appendLogprobs(b []byte, tokens []int32, logprobs []float32) []byte {
	speller, _ := s.cfg.Tokenizer.(Speller)
	b = append(b, `{"content":[`...)
	for i := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		text := s.cfg.Tokenizer.Decode(tokens[i : i+1])
		b = appendQuote(append(b, `{"token":`...), text)
		b = jsontext.AppendFloat(append(b, `,"logprob":`...), float64(logprobs[i]), 32)
		b = append(b, `,"bytes":[`...)
		spelt := []byte(text)
		if speller != nil {
			spelt = speller.TokenBytes(tokens[i])
		}
		for j, c := range spelt {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(c), 10)
		}
		b = append(b, `],"top_logprobs":[]}`...)
	}
	return append(b, `],"refusal":null}`...)
}

// appendMembers appends the members of a tool call and closes it.
func (c *ToolCall) appendMembers(b []byte) []byte {
	b = appendQuote(append(b, `"id":`...), c.ID)
	b = appendQuote(append(b, `,"type":`...), c.Type)
	b = appendQuote(append(b, `,"function":{"name":`...), c.Function.Name)
	b = appendQuote(append(b, `,"arguments":`...), c.Function.Arguments)
	return append(b, "}}"...)
}

// appendQuote appends a string. A byte that is not UTF-8 becomes U+FFFD, and the error that is dropped only
// reports that.
func appendQuote(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

func appendIDs(b []byte, ids []int32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}

// writeStream sends the replies as server-sent events: for each choice a chunk with the role, one per piece
// of content, one with tool calls if there are any, and one with the finish reason. The first chunk of all
// carries the prompt's ids, as vLLM's does.
func (s *Server) writeStream(w http.ResponseWriter, res *result) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &eventWriter{s: s, w: w, flush: http.NewResponseController(w), res: res}
	for i := range res.replies {
		r := &res.replies[i]
		e.send(i, `"role":"assistant","content":""`, nil, "")
		if streamer, ok := s.cfg.Renderer.(Streamer); ok && !r.cut {
			e.sendDeltas(i, r, streamer.Stream())
		} else {
			e.sendMessage(i, r)
		}
		e.send(i, "", nil, r.finish)
	}
	if o := res.req.StreamOptions; o != nil && o.IncludeUsage {
		e.event(res.close(e.open(), true, false))
	}
	e.event([]byte("data: [DONE]"))
	return e.err
}

// sendMessage sends a reply whose content is plain text.
func (e *eventWriter) sendMessage(index int, r *reply) {
	for _, p := range split(e.s.cfg.Tokenizer, r.tokens, r.message.Content) {
		e.send(index, string(appendQuote([]byte(`"content":`), p.text)), &p, "")
	}
	if len(r.message.ToolCalls) > 0 {
		e.send(index, toolCallDeltas(r.message.ToolCalls, 0), nil, "")
	}
}

// sendDeltas sends a reply as its format reads it, token by token. A chunk carries the tokens since the one
// before it.
func (e *eventWriter) sendDeltas(index int, r *reply, stream Stream) {
	p := piece{}
	calls := 0
	send := func(d Delta) {
		if d.Content == "" && d.Reasoning == "" && len(d.ToolCalls) == 0 && p.end < len(r.tokens) {
			return
		}
		b := appendQuote([]byte(`"content":`), d.Content)
		if d.Reasoning != "" {
			b = appendQuote(append(b, `,"reasoning_content":`...), d.Reasoning)
		}
		if len(d.ToolCalls) > 0 {
			b = append(append(b, ','), toolCallDeltas(d.ToolCalls, calls)...)
			calls += len(d.ToolCalls)
		}
		e.send(index, string(b), &p, "")
		p.begin = p.end
	}
	for i, id := range r.tokens {
		d := stream.Add(id)
		if p.end = i + 1; p.end == len(r.tokens) {
			rest := stream.Close()
			d = Delta{Content: d.Content + rest.Content, Reasoning: d.Reasoning + rest.Reasoning, ToolCalls: append(d.ToolCalls, rest.ToolCalls...)}
		}
		send(d)
	}
}

func toolCallDeltas(calls []ToolCall, first int) string {
	b := []byte(`"tool_calls":[`)
	for j := range calls {
		if j > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(first+j), 10)
		b = calls[j].appendMembers(append(b, ','))
	}
	return string(append(b, ']'))
}

// eventWriter writes chunks of one reply. After an error it does nothing.
type eventWriter struct {
	s     *Server
	w     http.ResponseWriter
	flush *http.ResponseController
	res   *result
	begun bool
	err   error
}

// open begins an event with a chunk, up to its first choice.
func (e *eventWriter) open() []byte {
	return e.res.open(append(make([]byte, 0, 512), "data: "...), "chat.completion.chunk")
}

// send writes a chunk of one choice: the members of its delta, and the tokens that they come from.
func (e *eventWriter) send(index int, delta string, p *piece, finish string) {
	b := strconv.AppendInt(append(e.open(), `{"index":`...), int64(index), 10)
	b = append(b, `,"delta":{`...)
	b = append(b, delta...)
	b = append(b, '}')
	b = e.s.closeChoice(b, e.res.req, &e.res.replies[index], p, finish)
	b = e.res.close(b, false, !e.begun)
	e.begun = true
	e.event(b)
}

// event writes an event whose end is missing.
func (e *eventWriter) event(b []byte) {
	if e.err != nil {
		return
	}
	if _, e.err = e.w.Write(append(b, "\n\n"...)); e.err == nil {
		e.err = e.flush.Flush()
	}
}
