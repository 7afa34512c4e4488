package proxy_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// postAs posts with headers.
func postAs(t *testing.T, url, body string, header map[string]string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, got.Bytes()}
}

// Each kind of backend gets the path, the key and the version where its API has
// them, and nothing that was meant for another one.
func TestBackendKinds(t *testing.T) {
	t.Parallel()
	const message = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	anthropicAgent := map[string]string{"X-Api-Key": "agent", "Anthropic-Version": "2024-01-01", "Anthropic-Beta": "b"}
	openaiAgent := map[string]string{"Authorization": "Bearer agent", "Openai-Organization": "o"}
	for _, tt := range []struct {
		name, path, body string
		agent            map[string]string
		model            proxy.Model
		at               string            // where the backend is asked
		want             map[string]string // headers there; empty is none
	}{
		{"openai", "/v1/chat/completions", hello, openaiAgent, proxy.Model{}, "/v1/chat/completions", map[string]string{"Authorization": "Bearer agent", "Openai-Organization": ""}},
		{"openai, key", "/v1/chat/completions", hello, anthropicAgent, proxy.Model{APIKey: "k"}, "/v1/chat/completions", map[string]string{"Authorization": "Bearer k", "X-Api-Key": ""}},
		{"openai for messages", "/v1/messages?beta=true", message, anthropicAgent, proxy.Model{}, "/v1/chat/completions", map[string]string{"Authorization": "Bearer agent", "X-Api-Key": "", "Anthropic-Version": "", "Anthropic-Beta": ""}},
		{"openai, base URLs that end in /v1", "/v1/v1/messages", message, anthropicAgent, proxy.Model{}, "/v1/chat/completions", nil},
		{"openai for responses", "/rollout/r/attempt/a/responses", `{"model":"m","input":"hi"}`, openaiAgent, proxy.Model{}, "/v1/chat/completions", map[string]string{"Authorization": "Bearer agent"}},
		{"openai, text only", "/rollout/r/attempt/a/responses", `{"model":"m","input":"hi"}`, openaiAgent, proxy.Model{TextOnly: true}, "/v1/responses", nil},
		{"chat only", "/responses", `{"model":"m","input":"hi"}`, openaiAgent, proxy.Model{ChatOnly: true}, "/v1/chat/completions", nil},
		{"azure", "/v1/chat/completions", hello, openaiAgent, proxy.Model{API: proxy.APIAzure, APIKey: "k", BackendModel: "my deployment"}, "/openai/deployments/my%20deployment/chat/completions?api-version=2024-10-21", map[string]string{"Api-Key": "k", "Authorization": ""}},
		{"azure, version", "/v1/embeddings?x=1", `{"model":"m"}`, nil, proxy.Model{API: proxy.APIAzure, APIVersion: "v", BackendModel: "d"}, "/openai/deployments/d/embeddings?x=1&api-version=v", nil},
		{"azure, responses", "/v1/responses", `{"model":"m"}`, nil, proxy.Model{API: proxy.APIAzure, APIVersion: "v"}, "/openai/responses?api-version=v", nil},
		{"anthropic", "/v1/messages?beta=true", message, anthropicAgent, proxy.Model{API: proxy.APIAnthropic}, "/v1/messages?beta=true", map[string]string{"X-Api-Key": "agent", "Anthropic-Version": "2024-01-01", "Anthropic-Beta": "b"}},
		{"anthropic, key", "/messages/count_tokens", message, openaiAgent, proxy.Model{API: proxy.APIAnthropic, APIKey: "k"}, "/v1/messages/count_tokens", map[string]string{"X-Api-Key": "k", "Authorization": "", "Anthropic-Version": "2023-06-01"}},
		{"anthropic for chat", "/v1/chat/completions", hello, openaiAgent, proxy.Model{API: proxy.APIAnthropic, APIVersion: "v"}, "/v1/messages", map[string]string{"X-Api-Key": "agent", "Authorization": "", "Openai-Organization": "", "Anthropic-Version": "v"}},
		{"anthropic for responses", "/v1/responses", `{"model":"m","input":"hi"}`, openaiAgent, proxy.Model{API: proxy.APIAnthropic}, "/v1/messages", nil},
		{"count by an engine", "/v1/messages/count_tokens", message, anthropicAgent, proxy.Model{}, "/tokenize", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			backend := serve(t, func(context.Context, proxytest.Request) proxytest.Reply { return proxytest.Reply{Body: "{}"} })
			base := backend.BaseURL()
			if tt.model.API != proxy.APIOpenAI {
				base = backend.URL
			}
			g := start(t, base, func(c *proxy.Config) {
				tt.model.Name, tt.model.BaseURL = "m", base
				c.Models[0] = tt.model
			})
			postAs(t, g.URL+tt.path, tt.body, tt.agent)
			requests := backend.Requests()
			if len(requests) != 1 || requests[0].Path != tt.at {
				t.Fatalf("the backend got %+v, want one request at %s", requests, tt.at)
			}
			for name, want := range tt.want {
				if got := requests[0].Header.Get(name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
		})
	}
}

// The query of a base URL is part of each request. What the caller sends under the same name takes its place.
func TestBaseURLWithAQuery(t *testing.T) {
	t.Parallel()
	const message = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	for _, tt := range []struct{ name, base, path, body, api, at string }{
		{"alone", "/v1?api-version=1", "/v1/chat/completions", hello, "", "/v1/chat/completions?api-version=1"},
		{"slash", "/v1/?api-version=1", "/v1/chat/completions", hello, "", "/v1/chat/completions?api-version=1"},
		{"escaped", "/a%2Fb//?x=%20y&x=z", "/v1/chat/completions", hello, "", "/a%2Fb/chat/completions?x=%20y&x=z"},
		{"empty", "/v1?", "/v1/chat/completions?a=b", hello, "", "/v1/chat/completions?a=b"},
		{"with the caller's", "/v1?tenant=t&key=k", "/v1/chat/completions?beta=true&key=own", hello, "", "/v1/chat/completions?tenant=t&beta=true&key=own"},
		{"translated", "/v1?tenant=t", "/v1/messages?beta=true", message, "", "/v1/chat/completions?tenant=t"},
		{"root of the server", "/v1?tenant=t", "/v1/messages/count_tokens", message, "", "/tokenize?tenant=t"},
		{"azure", "/?api-version=1", "/v1/embeddings", `{"model":"m"}`, "azure", "/openai/deployments/m/embeddings?api-version=1"},
		{"azure, the caller's version", "?api-version=1", "/v1/embeddings?api-version=2", `{"model":"m"}`, "azure", "/openai/deployments/m/embeddings?api-version=2"},
		{"azure, another parameter", "?x=1", "/v1/embeddings", `{"model":"m"}`, "azure", "/openai/deployments/m/embeddings?x=1&api-version=2024-10-21"},
		{"anthropic", "/?tenant=t", "/v1/messages?beta=true", message, "anthropic", "/v1/messages?tenant=t&beta=true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			backend := serve(t, func(context.Context, proxytest.Request) proxytest.Reply { return proxytest.Reply{Body: "{}"} })
			g := start(t, backend.URL+tt.base, func(c *proxy.Config) { c.Models[0].API = proxy.API(tt.api) })
			post(t, g.URL+tt.path, tt.body)
			requests := backend.Requests()
			if len(requests) != 1 || requests[0].Path != tt.at {
				t.Errorf("the backend got %+v, want one request at %s", requests, tt.at)
			}
		})
	}
}

// An engine without a tokenizer's route says in its own form that it does not know the path.
func TestCountWithoutTokenizer(t *testing.T) {
	t.Parallel()
	engine := serve(t, func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Status: http.StatusNotFound, Body: `{"detail":"Not Found"}`}
	})
	got := post(t, start(t, engine.BaseURL(), nil).URL+"/v1/messages/count_tokens", `{"model":"m","messages":[]}`)
	const want = `{"type":"error","error":{"message":"the backend of model \"m\" has not counted the tokens, it answered 404 to POST /tokenize: Not Found","type":"not_found_error","param":null,"code":null}}`
	if got.status != http.StatusNotFound || string(got.body) != want {
		t.Errorf("got %d %s, want %s", got.status, got.body, want)
	}
}

// What cannot be had is refused with the field or the path, by an error that
// clients of both families read.
func TestRefusals(t *testing.T) {
	t.Parallel()
	engine := serve(t, proxytest.VLLM(echo))
	claude := serve(t, proxytest.Text(echo).Anthropic())
	g := start(t, engine.BaseURL(), func(c *proxy.Config) {
		c.Models = append(c.Models, proxy.Model{Name: "claude", BaseURL: claude.URL, API: proxy.APIAnthropic, APIKey: "k"},
			proxy.Model{Name: "hosted", BaseURL: engine.BaseURL(), TextOnly: true})
	})
	for _, tt := range []struct{ path, body, want string }{
		{messagesPath, `{"model":"m","max_tokens":5,"messages":[],"tools":[{"type":"bash_20250124","name":"bash"}]}`, `"param":"tools[0].type"`},
		{messagesPath, `{"model":"m","max_tokens":5,"messages":7}`, `messages: got a number, must be a list`},
		{attemptPath, `{"model":"claude","messages":[],"n":3}`, `"param":"n"`},
		{"/rollout/r/attempt/a/responses", `{"model":"m","input":"a","conversation":"c"}`, `"param":"conversation"`},
		{"/rollout/r/attempt/a/responses", `{"model":"hosted","input":"a","background":true}`, `"param":"background"`},
		{"/rollout/r/attempt/a/completions", `{"model":"m","prompt":["a","b"]}`, `got 2 prompts`},
		{"/v1/completions", `{"model":"claude","prompt":"a"}`, `Anthropic's API has no completions`},
		{"/v1/embeddings", `{"model":"claude","input":"a"}`, `Anthropic's API does not have it`},
		{"/v1/messages/count_tokens", `{"model":"hosted","messages":[]}`, `does not count the tokens`},
	} {
		got := post(t, g.URL+tt.path, tt.body)
		if got.status != 400 && got.status != 404 || !bytes.Contains(got.body, []byte(tt.want)) || !bytes.HasPrefix(got.body, []byte(`{"type":"error","error":{`)) {
			t.Errorf("%s %s: got %d %s, want %s", tt.path, tt.body, got.status, got.body, tt.want)
		}
		if source := got.header.Get(proxy.HeaderSource); source != proxy.SourceGateway {
			t.Errorf("%s: source %q", tt.path, source)
		}
	}
	if n := len(engine.Requests()) + len(claude.Requests()); n != 0 {
		t.Errorf("%d requests reached a backend", n)
	}
	for path, body := range map[string]string{messagesPath: askMessage, "/rollout/r%2F1/attempt/a/completions": `{"model":"m","prompt":"hi"}`, "/v1/responses": `{"model":"hosted","input":"a","background":true,"stream":true}`} {
		if got := post(t, g.URL+path, body); got.status != 200 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// Errors of a backend of the other family keep their status and what they say.
func TestErrorsAcross(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, body string
		script           proxytest.Script
		model            proxy.Model
		status           int
		want             string
	}{
		{"openai's to messages", messagesPath, askMessage, proxytest.TooMany(3), proxy.Model{}, 429, `{"type":"error","error":{"message":"Rate limit reached","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`},
		{"sglang's to messages", messagesPath, askMessage, func(context.Context, proxytest.Request) proxytest.Reply {
			return proxytest.Reply{Status: 400, Body: `{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`}
		}, proxy.Model{}, 400, `{"type":"error","error":{"message":"too long","type":"invalid_request_error","param":null,"code":null}}`},
		{"anthropic's to chat", attemptPath, hello, proxytest.AnthropicFails(529, "overloaded_error", "Overloaded"), proxy.Model{API: proxy.APIAnthropic}, 529, `{"type":"error","error":{"message":"Overloaded","type":"overloaded_error","param":null,"code":null}}`},
		{"text", messagesPath, askMessage, func(context.Context, proxytest.Request) proxytest.Reply {
			return proxytest.Reply{Status: 502, ContentType: "text/html", Body: "<h1>Bad Gateway</h1>\n"}
		}, proxy.Model{}, 502, `{"type":"error","error":{"message":"<h1>Bad Gateway</h1>","type":"api_error","param":null,"code":null}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			backend := serve(t, tt.script)
			g := start(t, backend.BaseURL(), func(c *proxy.Config) {
				tt.model.Name, tt.model.BaseURL = "m", backend.BaseURL()
				c.Models[0], c.Retry.Attempts = tt.model, 1
			})
			for _, body := range []string{tt.body, streamed(tt.body)} {
				got := post(t, g.URL+tt.path, body)
				if got.status != tt.status || string(got.body) != tt.want || got.header.Get(proxy.HeaderSource) != proxy.SourceProvider {
					t.Errorf("got %d %s, want %d %s", got.status, got.body, tt.status, tt.want)
				}
			}
		})
	}
}

// Whatever a backend does to its stream, an agent that is told it in another
// form gets the events before that, and then an error; never a whole reply.
func TestStreamFaultsAcross(t *testing.T) {
	t.Parallel()
	vllm := proxytest.VLLM(echo)
	for name, script := range map[string]proxytest.Script{
		"malformed":   proxytest.Insert(vllm, 2, "data: {\"choices\":[\n\n"),
		"not a chunk": proxytest.Insert(vllm, 2, "data: [1,2]\n\n"),
		"cut":         proxytest.Cut(vllm, 2),
		"reset":       proxytest.Reset(vllm, 2),
		"an error":    proxytest.Insert(vllm, 2, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n"),
		"huge line":   proxytest.Insert(vllm, 2, ": "+strings.Repeat("x", 200<<10)+"\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := serve(t, script)
			g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.MaxReplyBytes, c.Retry.Attempts = 64<<10, 1 })
			got, err := send(t.Context(), g.URL+messagesPath, streamed(askMessage))
			if bytes.Contains(got.body, []byte("message_stop")) || name != "an error" && err == nil {
				t.Errorf("the reply seems whole: %v\n%s", err, got.body)
			}
			if name != "reset" && (!bytes.Contains(got.body, []byte("message_start")) || !bytes.Contains(got.body, []byte("event: error\n"))) {
				t.Errorf("got %s", got.body)
			}
			call := oneCall(t, g)
			if name != "an error" && call.Status.Code != agl.StatusError {
				t.Errorf("recorded as %+v", call.Status)
			}
		})
	}
}

// A backend that does not do what it is asked is told apart from an agent's mistake.
func TestUnusableReplies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script proxytest.Script
		want   string
	}{
		"not JSON": {proxytest.Typed(func(context.Context, proxytest.Request) proxytest.Reply { return proxytest.Reply{Body: "hello"} }, "text/plain"), "cannot be translated"},
		"no choices": {func(context.Context, proxytest.Request) proxytest.Reply {
			return proxytest.Reply{Body: `{"choices":[]}`}
		}, "cannot be translated: choices"},
		"unasked stream": {stream(chatEvents(`{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}`)), "is a stream, which was not asked for"},
		"unasked encoding": {func(context.Context, proxytest.Request) proxytest.Reply {
			return proxytest.Reply{Header: http.Header{"Content-Encoding": {"br"}}, Body: "z"}
		}, "encoded as br"},
		"too long": {func(context.Context, proxytest.Request) proxytest.Reply {
			return proxytest.Reply{Body: `{"x":"` + strings.Repeat("y", 1000) + `"}`}
		}, "longer than the 500 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, serve(t, tt.script).BaseURL(), func(c *proxy.Config) { c.MaxReplyBytes = 500 })
			got := post(t, g.URL+messagesPath, askMessage)
			if got.status != http.StatusBadGateway || !bytes.Contains(got.body, []byte(tt.want)) {
				t.Errorf("got %d %s, want 502 with %s", got.status, got.body, tt.want)
			}
			if call := oneCall(t, g); call.Status.Code != agl.StatusError {
				t.Errorf("recorded as %+v", call.Status)
			}
		})
	}
}
