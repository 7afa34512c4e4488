package proxytest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// The places in which servers put token ids.
const (
	idsNowhere     = iota
	idsInChoice    // the prompt's at the top, the replies' in their choices
	idsOnTop       // the prompt's and the replies' at the top
	idsAllInChoice // the prompt's in the choices too
)

// dialect holds the differences between servers of Chat Completions.
type dialect struct {
	ids      int
	ending   string // the server's own member in each choice
	strict   bool   // refuses members that OpenAI does not know
	idsWhole bool   // refuses token ids in streams of chat completions
}

// completion is a reply that is being built.
type completion struct {
	chatRequest
	dialect

	number  int64
	text    bool // a completion, not a chat completion
	prompt  string
	answers []Answer
}

func (c *completion) refuse() (Reply, bool) {
	switch {
	case c.strict && c.ReturnTokenIDs != nil:
		return Reply{Status: http.StatusBadRequest, Body: `{"error":{"message":"Unrecognized request argument supplied: return_token_ids","type":"invalid_request_error","param":null,"code":null}}`}, true
	case c.idsWhole && c.Stream && c.wantsIDs() && !c.text:
		return Reply{Status: http.StatusBadRequest, Body: `{"object":"error","message":"return_token_ids is not supported with streaming on /v1/chat/completions. Please set stream=false when using return_token_ids=true.","type":"BadRequestError","param":null,"code":400}`}, true
	}
	return Reply{}, false
}

func (c *completion) head(chunk bool) string {
	id, object := "chatcmpl-", "chat.completion"
	switch {
	case c.text:
		id, object = "cmpl-", "text_completion"
	case chunk:
		object += ".chunk"
	}
	return fmt.Sprintf(`{"id":"%s%d","object":%q,"created":1700000000,"model":%s,`, id, c.number, object, quote(c.Model))
}

// raw returns everything that the model wrote, which is the text of the token ids.
func (a *Answer) raw() string {
	parts := []string{a.Reasoning, a.Text}
	for _, call := range a.Calls {
		parts = append(parts, call.Name, call.Arguments)
	}
	return strings.Join(parts, "")
}

func (c *completion) finish(a *Answer) string {
	switch {
	case a.Cut:
		return "length"
	case len(a.Calls) > 0 && !c.text:
		return "tool_calls"
	default:
		return "stop"
	}
}

func (c *completion) usage() string {
	out := 0
	for _, a := range c.answers {
		out += utf8.RuneCountInString(a.raw())
	}
	in := utf8.RuneCountInString(c.prompt)
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, in, in+out, out)
}

// idsOf returns the members of a choice with token ids. The prompt's ids are there only if
// first is set.
func (c *completion) idsOf(reply string, first bool) string {
	out := ""
	if !c.wantsIDs() || c.ids == idsNowhere {
		return out
	}
	if first && (c.ids == idsAllInChoice || c.ids == idsInChoice && c.text) {
		out += `,"prompt_token_ids":` + list(Tokens(c.prompt))
	}
	if reply != "" && c.ids != idsOnTop {
		out += `,"token_ids":` + list(Tokens(reply))
	}
	return out
}

// idsOnTop returns the members of a reply with token ids.
func (c *completion) idsOnTop(replies bool) string {
	if !c.wantsIDs() || c.ids != idsOnTop && (c.ids != idsInChoice || c.text) {
		return ""
	}
	out := `,"prompt_token_ids":` + list(Tokens(c.prompt))
	if replies && c.ids == idsOnTop {
		lists := make([]string, len(c.answers))
		for i := range c.answers {
			lists[i] = list(Tokens(c.answers[i].raw()))
		}
		out += `,"response_token_ids":[` + strings.Join(lists, ",") + `]`
	}
	return out
}

func (c *completion) body() string {
	var b strings.Builder
	b.WriteString(c.head(false) + `"choices":[`)
	for i := range c.answers {
		a := &c.answers[i]
		if i > 0 {
			b.WriteByte(',')
		}
		if c.text {
			fmt.Fprintf(&b, `{"index":%d,"text":%s`, i, quote(a.raw()))
		} else {
			fmt.Fprintf(&b, `{"index":%d,"message":%s`, i, c.message(a))
		}
		fmt.Fprintf(&b, `,"logprobs":%s,"finish_reason":%q,%s%s}`, c.logprobs(a.raw()), c.finish(a), c.ending, c.idsOf(a.raw(), true))
	}
	b.WriteString(`],` + c.usage() + `,"prompt_logprobs":null` + c.idsOnTop(true))
	return b.String() + `}`
}

func (c *completion) message(a *Answer) string {
	content := quote(a.Text)
	if a.Text == "" && len(a.Calls) > 0 {
		content = "null"
	}
	out := `{"role":"assistant","content":` + content
	if a.Reasoning != "" {
		out += `,"reasoning_content":` + quote(a.Reasoning)
	}
	calls := make([]string, len(a.Calls))
	for i, call := range a.Calls {
		calls[i] = fmt.Sprintf(`{"id":"call_%d_%d","type":"function","function":{"name":%s,"arguments":%s}}`, c.number, i, quote(call.Name), quote(call.Arguments))
	}
	return out + `,"tool_calls":[` + strings.Join(calls, ",") + "]}"
}

// chunks returns the events of a stream, one for each character.
func (c *completion) chunks() []string {
	var events []string
	head := c.head(true)
	event := func(data string) { events = append(events, "data: "+data+"\n\n") }
	choice := func(i int, delta, wrote, finish string) {
		if finish != "null" {
			finish = quote(finish)
		}
		event(fmt.Sprintf(`%s"choices":[{"index":%d,%s,"logprobs":%s,"finish_reason":%s%s}]}`, head, i, delta, c.logprobsOf(wrote), finish, c.idsOf(wrote, false)))
	}
	for i := range c.answers {
		if c.text {
			event(fmt.Sprintf(`%s"choices":[{"index":%d,"text":"","logprobs":null,"finish_reason":null%s}]}`, head, i, c.idsOf("", true)))
			continue
		}
		top := ""
		if i == 0 {
			top = c.idsOnTop(false)
		}
		event(fmt.Sprintf(`%s"choices":[{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null%s}]%s}`, head, i, c.idsOf("", true), top))
	}
	for i := range c.answers {
		a := &c.answers[i]
		deltas := c.deltas(a)
		for j, d := range deltas {
			finish := "null"
			if j == len(deltas)-1 {
				finish = c.finish(a)
			}
			choice(i, d.json, d.wrote, finish)
		}
	}
	if c.StreamOptions.IncludeUsage {
		event(head + `"choices":[],` + c.usage() + "}")
	}
	if c.ids == idsOnTop && c.wantsIDs() {
		event(head + `"choices":[]` + c.idsOnTop(true) + "}")
	}
	return append(events, "data: [DONE]\n\n")
}

// delta is a piece of a choice with the text of its tokens.
type delta struct{ json, wrote string }

func (c *completion) deltas(a *Answer) []delta {
	var all []delta
	texts := func(name, text string) {
		for _, r := range text {
			s := string(r)
			if c.text {
				all = append(all, delta{`"text":` + quote(s), s})
			} else {
				all = append(all, delta{`"delta":{"` + name + `":` + quote(s) + `}`, s})
			}
		}
	}
	if c.text {
		texts("", a.raw())
	} else {
		texts("reasoning_content", a.Reasoning)
		texts("content", a.Text)
		for i, call := range a.Calls {
			all = append(all, delta{fmt.Sprintf(`"delta":{"tool_calls":[{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":%s,"arguments":""}}]}`, i, c.number, i, quote(call.Name)), call.Name})
			for _, r := range call.Arguments {
				all = append(all, delta{fmt.Sprintf(`"delta":{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quote(string(r))), string(r)})
			}
		}
	}
	if len(all) == 0 {
		all = append(all, delta{`"delta":{}`, ""})
	}
	return all
}

func (c *completion) logprobsOf(wrote string) string {
	if wrote == "" {
		return "null"
	}
	return c.logprobs(wrote)
}

func (c *completion) logprobs(wrote string) string {
	if !c.wantsLogprobs() {
		return "null"
	}
	var tokens, values, more, offsets, content []string
	for i, r := range []rune(wrote) {
		s := quote(string(r))
		tokens, values, more, offsets = append(tokens, s), append(values, "-0.5"), append(more, "{"+s+":-0.5}"), append(offsets, strconv.Itoa(i))
		content = append(content, fmt.Sprintf(`{"token":%s,"logprob":-0.5,"bytes":%s,"top_logprobs":[]}`, s, bytesList(string(r))))
	}
	if c.text {
		return fmt.Sprintf(`{"text_offset":[%s],"token_logprobs":[%s],"tokens":[%s],"top_logprobs":[%s]}`,
			strings.Join(offsets, ","), strings.Join(values, ","), strings.Join(tokens, ","), strings.Join(more, ","))
	}
	return `{"content":[` + strings.Join(content, ",") + `]}`
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

// quote returns a string as JSON.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `"\ufffd"`
	}
	return string(b)
}
