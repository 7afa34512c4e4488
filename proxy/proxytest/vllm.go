package proxytest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// Tokens are the token ids of a text: its characters.
func Tokens(text string) []int {
	ids := make([]int, 0, len(text))
	for _, r := range text {
		ids = append(ids, int(r))
	}
	return ids
}

// chatRequest is what [VLLM] reads of a request.
type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Content string `json:"content"`
	} `json:"messages"`
	Stream         bool `json:"stream"`
	N              int  `json:"n"`
	Logprobs       bool `json:"logprobs"`
	ReturnTokenIDs bool `json:"return_token_ids"`
	StreamOptions  struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// VLLM returns a script that plays vLLM: answer gives the reply's text for the
// text of the messages, choice by choice. Token ids and log-probabilities are in
// the reply only if the request asks for them, every log-probability being -0.5.
// Reply ids count up from 1.
func VLLM(answer func(prompt string, choice int) string) func(ctx context.Context, r Request) Reply {
	ids := make(chan int, 1)
	ids <- 0
	return func(_ context.Context, r Request) Reply {
		var q chatRequest
		if err := json.Unmarshal(r.Body, &q); err != nil {
			return Reply{Status: 400, Body: `{"error":{"message":` + quote(err.Error()) + `,"type":"BadRequestError","param":null,"code":400}}`}
		}
		var prompt strings.Builder
		for _, m := range q.Messages {
			prompt.WriteString(m.Content)
		}
		n := <-ids + 1
		ids <- n
		c := completion{q: q, id: "chatcmpl-" + strconv.Itoa(n), prompt: prompt.String()}
		for i := range max(q.N, 1) {
			c.texts = append(c.texts, answer(c.prompt, i))
		}
		if q.Stream {
			return Reply{ContentType: "text/event-stream; charset=utf-8", Pieces: c.chunks()}
		}
		return Reply{Body: c.body()}
	}
}

type completion struct {
	q      chatRequest
	id     string
	prompt string
	texts  []string
}

func (c *completion) head(object string) string {
	return fmt.Sprintf(`{"id":%s,"object":%q,"created":1700000000,"model":%s,`, quote(c.id), object, quote(c.q.Model))
}

func (c *completion) usage() string {
	out := 0
	for _, t := range c.texts {
		out += utf8.RuneCountInString(t)
	}
	in := utf8.RuneCountInString(c.prompt)
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, in, in+out, out)
}

func (c *completion) body() string {
	var b strings.Builder
	b.WriteString(c.head("chat.completion") + `"choices":[`)
	for i, text := range c.texts {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"index":%d,"message":{"role":"assistant","content":%s,"tool_calls":[]},"logprobs":%s,"finish_reason":"stop","stop_reason":null`, i, quote(text), c.logprobs(text))
		if c.q.ReturnTokenIDs {
			b.WriteString(`,"token_ids":` + list(Tokens(text)))
		}
		b.WriteByte('}')
	}
	b.WriteString(`],` + c.usage() + `,"prompt_logprobs":null`)
	if c.q.ReturnTokenIDs {
		b.WriteString(`,"prompt_token_ids":` + list(Tokens(c.prompt)))
	}
	return b.String() + `}`
}

// chunks are the events of a stream, a character each.
func (c *completion) chunks() []string {
	var events []string
	event := func(data string) { events = append(events, "data: "+data+"\n\n") }
	head := c.head("chat.completion.chunk")
	for i := range c.texts {
		chunk := fmt.Sprintf(`%s"choices":[{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`, head, i)
		if c.q.ReturnTokenIDs && i == 0 {
			chunk += `,"prompt_token_ids":` + list(Tokens(c.prompt))
		}
		event(chunk + "}")
	}
	for i, text := range c.texts {
		runes := []rune(text)
		for j, r := range runes {
			finish := "null"
			if j == len(runes)-1 {
				finish = `"stop"`
			}
			chunk := fmt.Sprintf(`%s"choices":[{"index":%d,"delta":{"content":%s},"logprobs":%s,"finish_reason":%s`, head, i, quote(string(r)), c.logprobs(string(r)), finish)
			if c.q.ReturnTokenIDs {
				chunk += `,"token_ids":` + list([]int{int(r)})
			}
			event(chunk + "}]}")
		}
	}
	if c.q.StreamOptions.IncludeUsage {
		event(head + `"choices":[],` + c.usage() + "}")
	}
	return append(events, "data: [DONE]\n\n")
}

func (c *completion) logprobs(text string) string {
	if !c.q.Logprobs {
		return "null"
	}
	var b strings.Builder
	b.WriteString(`{"content":[`)
	for i, r := range []rune(text) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"token":%s,"logprob":-0.5,"bytes":%s,"top_logprobs":[]}`, quote(string(r)), bytesList(string(r)))
	}
	return b.String() + `]}`
}

func list(ids []int) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = strconv.Itoa(id)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func bytesList(text string) string {
	ids := make([]int, len(text))
	for i := range len(text) {
		ids[i] = int(text[i])
	}
	return list(ids)
}

// quote spells a string as JSON.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `"\ufffd"`
	}
	return string(b)
}
