package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
)

// The tests of this file are named after what gateways have got wrong when they
// translated between the APIs, or kept streams.

const (
	messagesPath = "/rollout/ro-1/attempt/at-1/v1/messages"
	askMessage   = `{"model":"m","max_tokens":64,"messages":[{"role":"user","content":"hi"}]}`
	askTools     = `{"model":"m","max_tokens":64,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"look","input_schema":{"type":"object"}},{"name":"wait","input_schema":{"type":"object"}}]}`
)

func streamed(body string) string { return strings.Replace(body, "{", `{"stream":true,`, 1) }

// chatEvents is a stream of a chat backend with these choices.
func chatEvents(choices ...string) []string {
	var pieces []string
	for _, c := range choices {
		pieces = append(pieces, `data: {"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[`+c+"]}\n\n")
	}
	return append(pieces, "data: [DONE]\n\n")
}

func stream(pieces []string) proxytest.Script {
	return func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{ContentType: "text/event-stream", Pieces: pieces}
	}
}

// Several backends say "stop" after text and a tool call.
func TestToolUseIsNotEndTurn(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(_ context.Context, r proxytest.Request) proxytest.Reply {
		const call = `[{"index":0,"id":"t1","type":"function","function":{"name":"look","arguments":"{}"}}]`
		if bytes.Contains(r.Body, []byte(`"stream":true`)) {
			return stream(chatEvents(`{"index":0,"delta":{"role":"assistant","content":"I look"}}`, `{"index":0,"delta":{"tool_calls":`+call+`}}`, `{"index":0,"delta":{},"finish_reason":"stop"}`))(t.Context(), r)
		}
		return proxytest.Reply{Body: `{"id":"c-1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"I look","tool_calls":` + call + `},"finish_reason":"stop"}]}`}
	})
	g := start(t, backend.BaseURL(), nil)
	for _, body := range []string{askTools, streamed(askTools)} {
		got := post(t, g.URL+messagesPath, body)
		if got.status != 200 || !bytes.Contains(got.body, []byte(`"stop_reason":"tool_use"`)) || bytes.Contains(got.body, []byte("end_turn")) {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
}

// Calls whose deltas come in turns become blocks one after the other.
func TestContentBlocksDoNotOverlap(t *testing.T) {
	t.Parallel()
	backend := serve(t, stream(chatEvents(
		`{"index":0,"delta":{"role":"assistant","content":"I look"}}`,
		`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","function":{"name":"look","arguments":"{\"at\":"}},{"index":1,"id":"t2","function":{"name":"wait","arguments":"{\"s\":"}}]}}`,
		`{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"1}"}},{"index":0,"function":{"arguments":"2}"}}]}}`,
		`{"index":0,"delta":{},"finish_reason":"tool_calls"}`,
	)))
	g := start(t, backend.BaseURL(), nil)
	got := post(t, g.URL+messagesPath, streamed(askTools))
	open, blocks, inputs := -1, 0, make(map[int]string)
	for line := range strings.Lines(string(got.body)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var index int
		if _, after, found := strings.Cut(data, `"index":`); found {
			if _, err := fmt.Sscanf(after, "%d", &index); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case strings.Contains(data, "content_block_start"):
			if open >= 0 || index != blocks {
				t.Errorf("block %d begins while %d is open, after %d blocks", index, open, blocks)
			}
			open = index
			blocks++
		case strings.Contains(data, "content_block_stop"):
			if open != index {
				t.Errorf("block %d ends while %d is open", index, open)
			}
			open = -1
		case strings.Contains(data, "content_block_delta"):
			if open != index {
				t.Errorf("block %d goes on while %d is open", index, open)
			}
			inputs[index] += data
		}
	}
	if blocks != 3 || !strings.Contains(inputs[1], `2}`) || !strings.Contains(inputs[2], `1}`) {
		t.Errorf("%d blocks: %s", blocks, got.body)
	}
}

// Each delta of a tool call reaches the agent before the backend says more.
func TestToolDeltasAreNotBuffered(t *testing.T) {
	t.Parallel()
	pieces := chatEvents(
		`{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"t1","function":{"name":"look","arguments":""}}]}}`,
		`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":"}}]}}`,
		`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"sky\"}"}}]}}`,
		`{"index":0,"delta":{},"finish_reason":"tool_calls"}`,
	)
	step := make(chan struct{})
	backend := serve(t, func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{ContentType: "text/event-stream", Pieces: pieces, Step: func(ctx context.Context, _ int) error {
			select {
			case <-step:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
	})
	g := start(t, backend.BaseURL(), nil)
	lines := bufio.NewReader(open(t.Context(), t, g.URL+messagesPath, streamed(askTools)))
	for _, want := range []string{`"name":"look"`, `"partial_json":"{\"at\":"`, `"partial_json":"\"sky\"}"`} {
		step <- struct{}{}
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("before %s: %v", want, err)
			}
			if strings.Contains(line, want) {
				break
			}
		}
	}
	step <- struct{}{}
	step <- struct{}{}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
}

const spaced = "one\n\n  two \t three  \n"

// sglang plays a backend that gives token ids in whole replies only.
func sglang(t *testing.T) *gateway {
	t.Helper()
	model := proxytest.Model(func(proxytest.Prompt, int) proxytest.Answer { return proxytest.Answer{Text: spaced} })
	backend := serve(t, model.SGLang())
	return start(t, backend.BaseURL(), func(c *proxy.Config) { c.Models[0].Replay = true })
}

// What is replayed keeps its white space, on every front end.
func TestReplayKeepsWhiteSpace(t *testing.T) {
	t.Parallel()
	g := sglang(t)
	for path, body := range map[string]string{
		"/rollout/ro-1/attempt/at-1/v1/messages":         askMessage,
		"/rollout/ro-1/attempt/at-1/v1/responses":        `{"model":"m","input":"hi"}`,
		"/rollout/ro-1/attempt/at-1/v1/chat/completions": hello,
	} {
		got := post(t, g.URL+path, streamed(body))
		if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") || !bytes.Contains(got.body, []byte(`"one\n\n  two \t three  \n"`)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	flush(t, g)
	for _, c := range g.spans.calls() {
		if ids, _ := c.Attributes.GetInts(agl.AttrResponseTokenIDs); len(ids) != len(spaced) {
			t.Errorf("%d token ids on record", len(ids))
		}
	}
}

// That a backend refuses token ids in streams is found out by the first of them,
// which gets its reply all the same. Another refusal is the agent's to hear.
func TestReplayFoundOut(t *testing.T) {
	t.Parallel()
	model := proxytest.Model(func(proxytest.Prompt, int) proxytest.Answer { return proxytest.Answer{Text: spaced} })
	const other = "max_tokens is too large"
	backend := serve(t, proxytest.First(1, proxytest.Fails(http.StatusBadRequest, other), model.SGLang()))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Retry.Attempts = 1 })
	if got := post(t, g.URL+attemptPath, streamed(hello)); got.status != 400 || !bytes.Contains(got.body, []byte(other)) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, tt := range []struct{ path, body, tries string }{
		{messagesPath, askMessage, "2"}, {messagesPath, askMessage, "1"}, {attemptPath, hello, "1"},
	} {
		got := post(t, g.URL+tt.path, streamed(tt.body))
		if got.status != 200 || !bytes.Contains(got.body, []byte(`"one\n\n  two \t three  \n"`)) || got.header.Get(proxy.HeaderTries) != tt.tries {
			t.Errorf("%s: %d after %s tries, %s", tt.path, got.status, got.header.Get(proxy.HeaderTries), got.body)
		}
	}
	flush(t, g)
	for i, c := range g.spans.calls() {
		if ids, _ := c.Attributes.GetInts(agl.AttrResponseTokenIDs); i > 0 && len(ids) != len(spaced) {
			t.Errorf("call %d: %d token ids on record", i, len(ids))
		}
	}
}

// A stream that has the ids of only some of its tokens, as that of an engine whose parser of tool calls holds pieces back, is recorded
// without token ids, because they are not what the model sampled. Later streams are replayed from whole replies. Every agent gets its stream.
func TestReplayWhereStreamsLackIDs(t *testing.T) {
	t.Parallel()
	for path, body := range map[string]string{messagesPath: askMessage, attemptPath: hello} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			model := proxytest.VLLM(func(string, int) string { return spaced })
			backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
				reply := model(ctx, r)
				reply.Pieces = slices.DeleteFunc(reply.Pieces, func(piece string) bool { return strings.Contains(piece, `"content":"h"`) })
				return reply
			})
			g := start(t, backend.BaseURL(), nil)
			for _, want := range []string{`"w"`, `"one\n\n  two \t three  \n"`} {
				if got := post(t, g.URL+path, streamed(body)); got.status != 200 || !bytes.Contains(got.body, []byte(want)) {
					t.Errorf("%d, want %s in %s", got.status, want, got.body)
				}
			}
			flush(t, g)
			for i, c := range g.spans.calls() {
				ids, _ := c.Attributes.GetInts(agl.AttrResponseTokenIDs)
				prompt, _ := c.Attributes.GetInts(agl.AttrPromptTokenIDs)
				if count, _ := c.Attributes.GetInt(agl.AttrGenAICompletionTokens); len(ids) != len(spaced)*i || len(prompt) == 0 != (i == 0) || count != int64(len(spaced)) || c.Status.Code != agl.StatusOK {
					t.Errorf("call %d: %d token ids of the reply, %d of the prompt, %d tokens, status %v", i, len(ids), len(prompt), count, c.Status)
				}
			}
		})
	}
}

// A stream with an event that cannot be read lacks the ids that were in it. That says nothing about the backend.
func TestMalformedStreamIsNotReplayed(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		reply := proxytest.VLLM(func(string, int) string { return spaced })(ctx, r)
		reply.Pieces[2] = "data: {\"choices\":[\n\n"
		return reply
	})
	g := start(t, backend.BaseURL(), nil)
	for range 2 {
		post(t, g.URL+attemptPath, streamed(hello))
	}
	for _, sent := range backend.Requests() {
		if !bytes.Contains(sent.Body, []byte(`"stream":true`)) {
			t.Errorf("the backend got %s", sent.Body)
		}
	}
}

// An error that repeats the request, with those words in it, is not taken for
// that refusal: the agent gets the error, and streams stay streams.
func TestReplayNotFoundInEchoes(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		if bytes.Contains(r.Body, []byte("tool_choice")) {
			return proxytest.Fails(http.StatusBadRequest, "1 validation error: "+string(r.Body))(ctx, r)
		}
		return proxytest.VLLM(echo)(ctx, r)
	})
	g := start(t, backend.BaseURL(), nil)
	bad := `{"model":"m","stream":true,"tool_choice":7,"messages":[{"role":"user","content":"return_token_ids is not supported with streaming"}]}`
	if got := post(t, g.URL+attemptPath, bad); got.status != 400 || !bytes.Contains(got.body, []byte("validation error")) || !bytes.Contains(got.body, []byte(`\"stream\":true`)) {
		t.Errorf("%d %s", got.status, got.body)
	}
	before := len(backend.Requests())
	if got := post(t, g.URL+attemptPath, streamed(hello)); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if sent := backend.Requests()[before:]; len(sent) != 1 || !bytes.Contains(sent[0].Body, []byte(`"stream":true`)) {
		t.Errorf("the backend got %d requests, %s", len(sent), sent[0].Body)
	}
}

// Usage comes with the end of a stream: always in Messages, in Chat Completions
// when it was asked for and only then.
func TestUsageAtTheEndOfStreams(t *testing.T) {
	t.Parallel()
	vllm := start(t, serve(t, proxytest.VLLM(echo)).BaseURL(), nil)
	claude := start(t, serve(t, proxytest.Text(echo).Anthropic()).BaseURL(), func(c *proxy.Config) { c.Models[0].API, c.Models[0].APIKey = proxy.APIAnthropic, "k" })
	withUsage := strings.Replace(streamed(hello), "{", `{"stream_options":{"include_usage":true},`, 1)
	for _, tt := range []struct {
		name, url, body, want string
	}{
		{"messages, chat backend", vllm.URL + messagesPath, streamed(askMessage), `"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}}`},
		{"responses, chat backend", vllm.URL + "/rollout/r/attempt/a/responses", streamed(`{"model":"m","input":"hi"}`), `"usage":{"input_tokens":2,`},
		{"chat, replayed", sglang(t).URL + attemptPath, withUsage, `"choices":[],"usage":{"prompt_tokens":2,`},
		{"chat, messages backend", claude.URL + attemptPath, withUsage, `"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,`},
		{"chat", vllm.URL + attemptPath, withUsage, `"choices":[],"usage":{"prompt_tokens":2,`},
		{"chat, not asked", vllm.URL + attemptPath, streamed(hello), ""},
		{"chat, replayed, not asked", sglang(t).URL + attemptPath, streamed(hello), ""},
		{"chat, messages backend, not asked", claude.URL + attemptPath, streamed(hello), ""},
	} {
		got := string(post(t, tt.url, tt.body).body)
		if tt.want == "" && strings.Contains(got, "usage") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: want %s in\n%s", tt.name, tt.want, got)
		}
	}
	flush(t, vllm)
	for _, c := range vllm.spans.calls() {
		if n, _ := c.Attributes.GetInt(agl.AttrGenAIOutputTokens); n != 2 {
			t.Errorf("%d tokens on record", n)
		}
	}
}

// Fields that no API names reach the backend, translated or not, and what a
// backend adds to its reply is on record.
func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		reply := proxytest.VLLM(echo)(ctx, r)
		reply.Body = strings.Replace(reply.Body, "{", `{"kv_transfer_params":{"x":1},`, 1)
		return reply
	})
	g := start(t, backend.BaseURL(), nil)
	for path, body := range map[string]string{
		attemptPath:                              hello,
		messagesPath:                             askMessage,
		"/rollout/ro-1/attempt/at-1/responses":   `{"model":"m","input":"hi"}`,
		"/rollout/ro-1/attempt/at-1/completions": `{"model":"m","prompt":"hi"}`,
	} {
		before := len(backend.Requests())
		post(t, g.URL+path, strings.Replace(body, "{", `{"min_p":0.10,"chat_template_kwargs":{"enable_thinking" : false},`, 1))
		sent := backend.Requests()[before].Body
		if !bytes.Contains(sent, []byte(`"min_p":0.10`)) || !bytes.Contains(sent, []byte(`"chat_template_kwargs":{"enable_thinking"`)) {
			t.Errorf("%s: the backend got %s", path, sent)
		}
	}
	flush(t, g)
	for _, s := range g.spans.named(agl.SpanRawRequest) {
		if _, ok := s.Attributes.Get("llm.hosted_vllm.kv_transfer_params"); !ok {
			t.Errorf("not on record: %.300s", s.Attributes)
		}
	}
}

// leave begins a stream at a backend that stalls, and leaves it.
func leave(t *testing.T, g *gateway, path, body string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := io.ReadFull(open(ctx, t, g.URL+path, streamed(body)), make([]byte, 10)); err != nil {
		t.Error(err)
	}
}

// An agent that leaves a translated stream ends the backend's generation.
func TestGenerationIsCancelled(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.Stall(proxytest.VLLM(echo), 2))
	g := start(t, backend.BaseURL(), nil)
	for path, body := range map[string]string{messagesPath: askMessage, "/rollout/ro-1/attempt/at-1/responses": `{"model":"m","input":"hi"}`, attemptPath: hello} {
		leave(t, g, path, body)
		<-backend.Gone()
	}
	flush(t, g)
	for _, c := range g.spans.calls() {
		if d, _ := c.Attributes.GetBool(record.AttrDelivered); d {
			t.Errorf("recorded as delivered: %s", c.Attributes)
		}
	}
}

// Streams that agents abandon give back their places at the backend.
func TestAbandonedStreamsLeaveNoSlotBehind(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.First(4, proxytest.Stall(proxytest.VLLM(echo), 2), proxytest.VLLM(echo)))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Models[0].Limits.InFlight = 1 })
	for range 4 {
		leave(t, g, messagesPath, askMessage)
		<-backend.Gone()
	}
	if got := post(t, g.URL+messagesPath, askMessage); got.status != 200 {
		t.Errorf("the next call got %d %s", got.status, got.body)
	}
}

// Log-probabilities come with streams: to the agent that asks for them, and to
// the record in any case.
func TestLogprobsOfStreams(t *testing.T) {
	t.Parallel()
	vllm := start(t, serve(t, proxytest.VLLM(echo)).BaseURL(), nil)
	asked := strings.Replace(streamed(hello), "{", `{"logprobs":true,`, 1)
	for name, g := range map[string]*gateway{"live": vllm, "replayed": sglang(t)} {
		got := post(t, g.URL+attemptPath, asked)
		if !bytes.Contains(got.body, []byte(`"logprob":-0.5`)) {
			t.Errorf("%s: none in %s", name, got.body)
		}
		got = post(t, g.URL+"/rollout/ro-1/attempt/at-1/v1/completions", streamed(`{"model":"m","prompt":"hi","logprobs":1}`))
		if !bytes.Contains(got.body, []byte(`"token_logprobs":[-0.5]`)) {
			t.Errorf("%s: none in %s", name, got.body)
		}
		post(t, g.URL+messagesPath, streamed(askMessage))
		post(t, g.URL+"/rollout/ro-1/attempt/at-1/v1/completions", streamed(`{"model":"m","prompt":"hi"}`))
		flush(t, g)
		for _, c := range g.spans.calls() {
			ids, _ := c.Attributes.GetInts(agl.AttrResponseTokenIDs)
			content, _ := c.Attributes.GetString(agl.AttrLogprobsContent)
			if len(ids) == 0 || strings.Count(content, "-0.5") < len(ids) {
				t.Errorf("%s: %d ids, log-probabilities %.200s", name, len(ids), content)
			}
		}
	}
}

// A backend that falls silent, before its reply or within, is given up, and so
// is the request to it.
func TestTimeoutWhileTheBackendIsSilent(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]proxytest.Script{"before": proxytest.Silent, "within": proxytest.Stall(proxytest.VLLM(echo), 3)} {
		for path, body := range map[string]string{messagesPath: askMessage, attemptPath: hello, "/rollout/ro-1/attempt/at-1/responses": `{"model":"m","input":"hi"}`} {
			t.Run(name+" "+path, func(t *testing.T) {
				t.Parallel()
				backend := serve(t, script)
				g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.IdleTimeout, c.Retry.Attempts = 200*time.Millisecond, 1 })
				got, err := send(t.Context(), g.URL+path, streamed(body))
				switch {
				case err == nil && got.status == http.StatusGatewayTimeout: // within, too, if the machine is slow
				case name == "before" || err == nil:
					t.Errorf("got %d %s, %v", got.status, got.body, err)
				case path != attemptPath && !bytes.Contains(got.body, []byte("event: error\n")):
					t.Errorf("no error in %s", got.body)
				}
				for range backend.Requests() {
					<-backend.Gone()
				}
			})
		}
	}
}

// The record of a translated call is read from the backend's request, whose long texts stand elsewhere than in the agent's, or
// where that has another one.
func TestRecordOfTranslatedTexts(t *testing.T) {
	t.Parallel()
	long := func(word string) string { return strings.Repeat(word+` \"quoted\" `, 60) }
	want := map[string]string{}
	for i, m := range []struct{ role, content string }{{"system", long("one")}, {"user", long("a second")}, {"user", long("three")}} {
		prefix := fmt.Sprintf("%s.%d.", agl.AttrGenAIPrompt, i)
		want[prefix+"role"], want[prefix+"content"] = `"`+m.role+`"`, `"`+m.content+`"`
	}
	p, store := plugged(t, func(*http.Request) (*http.Response, error) { return ok(), nil }, nil, "backend")
	const pads = 100
	for pad := range pads {
		body := `{` + strings.Repeat(" ", pad) + `"messages":[{"role":"user","content":"` + long("a second") +
			`"},{"role":"user","content":[{"type":"text","text":"` + long("three") + `"}]}],"system":"` + long("one") + `","model":"m","max_tokens":5}`
		if w := ask(t.Context(), p, messagesPath, body, nil); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
	}
	closed(t, p)
	calls := store.calls()
	if len(calls) != pads {
		t.Fatalf("%d calls were recorded, want %d", len(calls), pads)
	}
	for i := range calls {
		got := map[string]string{}
		for key, value := range calls[i].Attributes.All() {
			if strings.HasPrefix(key, agl.AttrGenAIPrompt+".") {
				got[key] = string(value)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("call %d, -want +got:\n%s", i, diff)
		}
	}
}

// thinker plays a model of Anthropic that thinks, and refuses, as Anthropic does, to think on in a turn that lacks its first thoughts.
func thinker(_ context.Context, r proxytest.Request) proxytest.Reply {
	type block struct {
		Type      string `json:"type"`
		Signature string `json:"signature"`
		Data      string `json:"data"`
	}
	var q struct {
		Stream   bool           `json:"stream"`
		Thinking jsontext.Value `json:"thinking"`
		Messages []struct {
			Content jsontext.Value `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(r.Body, &q); err != nil {
		return proxytest.Reply{Status: 400, Body: err.Error()}
	}
	var first, last []block
	if n := len(q.Messages); n > 2 {
		_ = json.Unmarshal(q.Messages[1].Content, &first)
		_ = json.Unmarshal(q.Messages[n-1].Content, &last)
	}
	resumes := len(last) > 0 && last[0].Type == "tool_result"
	kept := len(first) > 1 && first[0] == block{Type: "thinking", Signature: "s1"} && first[1] == block{Type: "redacted_thinking", Data: "zz"}
	content, stop := `{"type":"text","text":"blue"}`, "end_turn"
	switch {
	case resumes && q.Thinking != nil && !kept:
		return proxytest.AnthropicFails(400, "invalid_request_error", "Expected `thinking` or `redacted_thinking`, but found `tool_use`.")(context.Background(), r)
	case resumes && kept:
		content = `{"type":"text","text":"blue, as thought"}`
	case !resumes:
		content, stop = `{"type":"thinking","thinking":"hm","signature":"s1"},{"type":"redacted_thinking","data":"zz"},{"type":"tool_use","id":"t1","name":"look","input":{}}`, "tool_use"
	}
	const usage = `"usage":{"input_tokens":1,"output_tokens":1}`
	if !q.Stream {
		return proxytest.Reply{Body: `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[` + content + `],"stop_reason":"` + stop + `",` + usage + `}`}
	}
	pieces := []string{`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],` + usage + `}}`}
	var blocks []jsontext.Value
	_ = json.Unmarshal([]byte("["+content+"]"), &blocks)
	for i, b := range blocks {
		pieces = append(pieces, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, b), fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
	}
	pieces = append(pieces, `{"type":"message_delta","delta":{"stop_reason":"`+stop+`"},`+usage+`}`, `{"type":"message_stop"}`)
	for i := range pieces {
		pieces[i] = "data: " + pieces[i] + "\n\n"
	}
	return proxytest.Reply{ContentType: "text/event-stream", Pieces: pieces}
}

// An agent whose model thinks can answer its tools: the thinking blocks come back to Anthropic through the items of the Responses API,
// and where an agent has not kept them, the model does not think on.
func TestThinkingGoesOnAfterTools(t *testing.T) {
	t.Parallel()
	backend := serve(t, thinker)
	g := start(t, backend.URL, func(c *proxy.Config) { c.Models[0].API = proxy.APIAnthropic })
	const (
		responses = `{"model":"m","reasoning":{"effort":"low"},"tools":[{"type":"function","name":"look","parameters":{"type":"object"}}],"input":[{"role":"user","content":"what colour?"}%s]}`
		chat      = `{"model":"m","reasoning_effort":"low","tools":[{"type":"function","function":{"name":"look"}}],"messages":[{"role":"user","content":"what colour?"}%s]}`
		called    = `,{"role":"assistant","tool_calls":[{"id":"t1","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t1","content":"blue"}`
	)
	for _, edit := range []func(string) string{streamed, func(body string) string { return body }} {
		got := post(t, g.URL+"/v1/responses", edit(fmt.Sprintf(responses, "")))
		_, output, _ := strings.Cut(string(got.body[strings.LastIndex(string(got.body), `"object":"response"`):]), `"output":[`)
		output, _, _ = strings.Cut(output, `],"parallel_tool_calls"`)
		if got.status != 200 || strings.Count(output, `"encrypted_content"`) != 1 || !strings.Contains(output, `"function_call"`) {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		next := post(t, g.URL+"/v1/responses", edit(fmt.Sprintf(responses, ","+output+`,{"type":"function_call_output","call_id":"t1","output":"blue"}`)))
		if next.status != 200 || !bytes.Contains(next.body, []byte("blue, as thought")) {
			t.Errorf("got %d %s after %s", next.status, next.body, output)
		}
		forgot := post(t, g.URL+"/v1/chat/completions", edit(fmt.Sprintf(chat, called)))
		if forgot.status != 200 || !bytes.Contains(forgot.body, []byte(`"blue"`)) {
			t.Errorf("an agent that has not kept the thoughts: got %d %s", forgot.status, forgot.body)
		}
	}
}
