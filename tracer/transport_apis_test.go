package tracer_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/tracer"
)

// A call of every API, streamed or not, is described in the same words.
func TestTransportReadsEveryAPI(t *testing.T) {
	t.Parallel()
	model := proxytest.Model(func(p proxytest.Prompt, _ int) proxytest.Answer {
		a := proxytest.Answer{Text: "echo " + p.Last}
		if len(p.Tools) > 0 {
			a.Calls = []proxytest.Call{{Name: p.Tools[0], Arguments: `{"a":1}`}}
		}
		return a
	})
	for _, tt := range []struct {
		name, path, body string
		script           proxytest.Script
		system           string
		tools            bool
	}{
		{
			"chat", "/chat/completions",
			`"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}],
			 "tools":[{"type":"function","function":{"name":"add","description":"d","parameters":{"type":"object"}}}]`, model.OpenAI(), "openai", true,
		},
		{"completions", "/completions", `"prompt":"hello"`, model.VLLM(), "openai", false},
		{
			"responses", "/responses",
			`"input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]}],"instructions":"be brief",
			 "tools":[{"type":"function","name":"add","description":"d","parameters":{"type":"object"}}]`, model.OpenAI(), "openai", true,
		},
		{
			"messages", "/messages",
			`"messages":[{"role":"user","content":"hello"}],"system":"be brief","max_tokens":100,
			 "tools":[{"name":"add","description":"d","input_schema":{"type":"object"}}]`, model.Anthropic(), "anthropic", true,
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %t", tt.name, stream), func(t *testing.T) {
				t.Parallel()
				server := proxytest.NewServer(tt.script)
				t.Cleanup(server.Close)
				base := &http.Transport{}
				t.Cleanup(base.CloseIdleConnections)
				ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
				body := fmt.Sprintf(`{"model":"m","stream":%t,%s}`, stream, tt.body)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.BaseURL()+tt.path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {"k"}, "Anthropic-Version": {"2023-06-01"}}
				resp, err := (&http.Client{Transport: &tracer.Transport{Base: base}}).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				reply, err := io.ReadAll(resp.Body)
				if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%d %s, %v", resp.StatusCode, reply, err)
				}
				if tracer.ModelFailure(ctx) != nil {
					t.Errorf("the call counts as failed: %v", tracer.ModelFailure(ctx))
				}
				if asked := server.Requests()[0]; !jsontext.Value(asked.Body).IsValid() || string(asked.Body) != body {
					t.Errorf("the model was asked %s, want %s", asked.Body, body)
				}
				spans := end(t, open)
				if spans[0].Name != agl.SpanChatCompletion || spans[0].Status.Code != agl.StatusOK {
					t.Fatalf("recorded %+v", spans[0])
				}
				want := map[string]string{
					agl.AttrGenAISystem: tt.system, "gen_ai.request.model": "m", "gen_ai.prompt.0.role": "user",
					"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "echo hello",
				}
				if tt.tools {
					want["gen_ai.prompt.0.role"], want["gen_ai.prompt.0.content"] = "system", "be brief"
					want["gen_ai.request.functions.0.name"], want["gen_ai.request.functions.0.parameters"] = "add", `{"type":"object"}`
					want["gen_ai.completion.0.tool_calls.0.name"], want["gen_ai.completion.0.finish_reason"] = "add", "tool_calls"
					if spans[1].Name != "tool_call.add" || spans[1].ParentID.V != spans[0].SpanID {
						t.Errorf("the tool call is recorded as %+v", spans[1])
					}
				}
				for key, value := range want {
					if got, _ := spans[0].Attributes.GetString(key); got != value {
						t.Errorf("%s: got %q, want %q in %s", key, got, value, spans[0].Attributes)
					}
				}
				if n, _ := spans[0].Attributes.GetInt(agl.AttrGenAIOutputTokens); n <= 0 && !stream {
					t.Errorf("%s: got %d", agl.AttrGenAIOutputTokens, n)
				}
				triplets, err := adapter.TracerTriplets{}.Adapt(spans)
				if err != nil || len(triplets) != 1 || !triplets[0].Metadata.ResponseID.Valid {
					t.Errorf("triplets: got %+v, %v", triplets, err)
				}
			})
		}
	}
}

// Token ids and log-probabilities of a completion are those of its choice.
func TestTransportReadsTokensOfACompletion(t *testing.T) {
	t.Parallel()
	server := proxytest.NewServer(proxytest.VLLM(func(string, int) string { return "abc" }))
	t.Cleanup(server.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	status, _, err := post(ctx, t, &http.Client{Transport: &tracer.Transport{Base: base}}, server.BaseURL()+"/completions",
		`{"model":"m","prompt":"hello","logprobs":1,"return_token_ids":true}`)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%d, %v", status, err)
	}
	triplets, err := adapter.TracerTriplets{}.Adapt(end(t, open))
	if err != nil || len(triplets) != 1 {
		t.Fatalf("%d triplets, %v", len(triplets), err)
	}
	if got := triplets[0]; len(got.Prompt.TokenIDs) != 5 || len(got.Response.TokenIDs) != 3 || len(got.Call.Logprobs) != 3 {
		t.Errorf("got %+v", got)
	}
}

// A stream is one whatever its Content-Type says, as it is for SDKs.
func TestTransportReadsStreamsOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"text/plain", "application/json", "Text/Event-Stream"} {
		client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, "\n: hello\n\n"+`data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		})
		ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
		if _, _, err := post(ctx, t, client, url+"/chat/completions", `{"stream":true}`); err != nil {
			t.Fatal(err)
		}
		if failure := tracer.ModelFailure(ctx); failure != nil {
			t.Errorf("%s: the model is blamed: %v", kind, failure)
		}
		if content, _ := end(t, open)[0].Attributes.GetString("gen_ai.completion.0.content"); content != "hi" {
			t.Errorf("%s: content is %q", kind, content)
		}
		ctx, open = start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
		if _, _, err := post(ctx, t, client, url+"/chat/completions", `{}`); err != nil {
			t.Fatal(err)
		}
		if failure := tracer.ModelFailure(ctx); (failure != nil) != (kind != "Text/Event-Stream") {
			t.Errorf("%s: a stream that was not asked for: the model is blamed: %v", kind, failure)
		}
		end(t, open)
	}
}
