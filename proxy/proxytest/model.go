package proxytest

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Model returns the answer to a prompt, for each choice from 0. Its methods return scripts that
// play it in the wire forms of servers, all with one token per character.
type Model func(p Prompt, choice int) Answer

// Prompt is the question to a model in any wire form.
type Prompt struct {
	Text     string   // of all messages, joined
	Last     string   // text of the last message
	Images   []string // URLs; data URLs of embedded images
	Tools    []string // names
	Results  []string // texts of the tool results
	Parallel bool     // several calls in one reply are allowed
}

// Answer is the answer of a model.
type Answer struct {
	Reasoning string
	Text      string
	Calls     []Call
	Cut       bool // the reply reached its length limit
}

// Call is a tool call.
type Call struct{ Name, Arguments string }

// Text returns a model that answers with one text for each prompt and choice.
func Text(answer func(prompt string, choice int) string) Model {
	return func(p Prompt, choice int) Answer { return Answer{Text: answer(p.Text, choice)} }
}

// VLLM returns a script that plays vLLM. answer returns the text of a choice, from 0, for the
// joined text of the messages. Token ids and log-probabilities are in the reply only if the
// request asks for them; every log-probability is -0.5. Reply ids count up from 1.
func VLLM(answer func(prompt string, choice int) string) Script { return Text(answer).VLLM() }

// Busy plays an overloaded server: it answers the first, third, fifth … request with the same
// body with 503 if the body contains text. All other requests are answered by the script.
func Busy(text string, script Script) Script {
	var mu sync.Mutex
	refused := map[string]bool{} // whether the last request with this body was
	return func(ctx context.Context, r Request) Reply {
		if bytes.Contains(r.Body, []byte(text)) {
			mu.Lock()
			busy := !refused[string(r.Body)]
			refused[string(r.Body)] = busy
			mu.Unlock()
			if busy {
				return Reply{Status: http.StatusServiceUnavailable, Body: `{"error":{"message":"overloaded"}}`}
			}
		}
		return script(ctx, r)
	}
}

// VLLM plays vLLM: Chat Completions, Completions and /tokenize. The token ids of a prompt
// are at the top of the reply (for Completions in the choices), those of a reply in its choice.
func (m Model) VLLM() Script {
	return m.engine(dialect{ids: idsInChoice, ending: `"stop_reason":null`})
}

// OldVLLM plays vLLM before version 0.10.2, patched for token ids: those of all replies
// are in response_token_ids.
func (m Model) OldVLLM() Script {
	return m.engine(dialect{ids: idsOnTop, ending: `"stop_reason":null`})
}

// SGLang plays SGLang: all token ids are in the choices, and streams of Chat Completions
// refuse them.
func (m Model) SGLang() Script {
	return m.engine(dialect{ids: idsAllInChoice, ending: `"matched_stop":0`, idsWhole: true})
}

// OpenAI plays OpenAI's own service: Chat Completions, Embeddings, Responses and Completions.
// It refuses the member return_token_ids.
func (m Model) OpenAI() Script {
	chat := m.engine(dialect{strict: true, ending: `"content_filter_results":{}`})
	var replies atomic.Int64
	return func(ctx context.Context, r Request) Reply {
		switch {
		case r.endpoint("responses"):
			return m.respond(r, replies.Add(1))
		case r.endpoint("embeddings"):
			return Reply{Body: `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25,-0.5]}],"model":"text-embedding","usage":{"prompt_tokens":1,"total_tokens":1}}`}
		}
		return chat(ctx, r)
	}
}

// engine behaves like a server of Chat Completions and Completions.
func (m Model) engine(d dialect) Script {
	var replies atomic.Int64
	return func(_ context.Context, r Request) Reply {
		var q chatRequest
		if err := json.Unmarshal(r.Body, &q); err != nil {
			return Reply{Status: http.StatusBadRequest, Body: `{"error":{"message":` + quote(err.Error()) + `,"type":"BadRequestError","param":null,"code":400}}`}
		}
		if r.endpoint("tokenize") {
			ids := Tokens(q.prompt().Text)
			return Reply{Body: `{"count":` + strconv.Itoa(len(ids)) + `,"max_model_len":4096,"tokens":` + list(ids) + `,"token_strs":null}`}
		}
		c := completion{chatRequest: q, dialect: d, number: replies.Add(1), text: r.endpoint("completions") && !r.endpoint("chat/completions")}
		if refusal, refused := c.refuse(); refused {
			return refusal
		}
		p := q.prompt()
		c.prompt = p.Text
		for i := range max(q.N, 1) {
			c.answers = append(c.answers, m(p, i))
		}
		if q.Stream {
			return Reply{ContentType: "text/event-stream; charset=utf-8", Pieces: c.chunks()}
		}
		return Reply{Body: c.body()}
	}
}

// endpoint reports whether the request is for an endpoint.
func (r *Request) endpoint(name string) bool {
	path, _, _ := strings.Cut(r.Path, "?")
	return strings.HasSuffix(path, "/"+name)
}

// Tokens returns the token ids of a text: the code points of its characters.
func Tokens(text string) []int {
	ids := make([]int, 0, len(text))
	for _, r := range text {
		ids = append(ids, int(r))
	}
	return ids
}

// chatRequest is the part of a request for a chat completion or a completion that is read.
type chatRequest struct {
	Model    string         `json:"model"`
	Prompt   jsontext.Value `json:"prompt"`
	Messages []struct {
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Parallel       *bool          `json:"parallel_tool_calls"`
	Stream         bool           `json:"stream"`
	N              int            `json:"n"`
	Logprobs       jsontext.Value `json:"logprobs"`
	ReturnTokenIDs *bool          `json:"return_token_ids"`
	StreamOptions  struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (q *chatRequest) wantsIDs() bool { return q.ReturnTokenIDs != nil && *q.ReturnTokenIDs }

func (q *chatRequest) wantsLogprobs() bool {
	s := string(q.Logprobs)
	return s != "" && s != "null" && s != "false"
}

func (q *chatRequest) prompt() Prompt {
	p := Prompt{Parallel: q.Parallel == nil || *q.Parallel}
	if q.Prompt != nil {
		p.add(text(q.Prompt))
	}
	for _, m := range q.Messages {
		said := p.content(m.Content)
		if m.Role == "tool" {
			p.Results = append(p.Results, said)
		}
		p.add(said)
	}
	for _, t := range q.Tools {
		p.Tools = append(p.Tools, t.Function.Name)
	}
	return p
}

func (p *Prompt) add(said string) {
	p.Text += said
	p.Last = said
}

// part is a part of a message's content in any of the wire forms.
type part struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	ImageURL jsontext.Value `json:"image_url"` // chat: an object; responses: a string
	Source   struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	} `json:"source"`
	Content jsontext.Value `json:"content"` // of a tool result
}

// content reads a message's content and returns its text.
func (p *Prompt) content(raw jsontext.Value) string {
	if raw.Kind() != '[' {
		return text(raw)
	}
	var parts []part
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var said strings.Builder
	for _, one := range parts {
		switch {
		case one.ImageURL.Kind() == '"':
			p.Images = append(p.Images, text(one.ImageURL))
		case one.ImageURL.Kind() == '{':
			var image struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(one.ImageURL, &image) == nil {
				p.Images = append(p.Images, image.URL)
			}
		case one.Type == "image" && one.Source.URL != "":
			p.Images = append(p.Images, one.Source.URL)
		case one.Type == "image":
			p.Images = append(p.Images, "data:"+one.Source.MediaType+";base64,"+one.Source.Data)
		case one.Type == "tool_result":
			result := p.content(one.Content)
			p.Results = append(p.Results, result)
			said.WriteString(result)
		default:
			said.WriteString(one.Text)
		}
	}
	return said.String()
}

// text returns the text of a JSON string, and "" for anything else.
func text(raw jsontext.Value) string {
	var s string
	if raw.Kind() != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
