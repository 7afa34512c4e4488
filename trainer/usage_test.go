package trainer

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

// What recorded calls have used is counted, in this process and before a store
// over HTTP, which gets the records as the proxy builds them.
func TestUsage(t *testing.T) {
	t.Parallel()
	driver, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := store.New(t.Context(), store.Config{Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	server, err := server.New(server.Config{Store: engine})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(server)
	client, err := client.New(client.Config{URL: listening.URL})
	if err != nil {
		t.Fatal(err)
	}
	backend := proxytest.NewServer(proxytest.VLLM(func(string, int) string { return "12345" }))
	for name, spans := range map[string]proxy.Spans{"in process": engine, "over HTTP": client} {
		p := NewProxy(ProxyConfig{Config: proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: backend.BaseURL()}}}})
		if direct := p.meter.over(spans).Capabilities().AddSpansJSON; direct != (name == "over HTTP") {
			t.Errorf("%s: records go as they were built: %v", name, direct)
		}
		if _, err := p.start(t.Context(), spans, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		rollout, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{
			`{"model":"m","messages":[{"role":"user","content":"abc"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"\"gen_ai.usage.input_tokens\":9"}],"stream":true}`,
			`{"model":"none","messages":[]}`, // uses nothing
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
				"/rollout/"+rollout.RolloutID+"/attempt/"+rollout.Attempt.AttemptID+"/v1/chat/completions", strings.NewReader(body))
			p.now().gateway.ServeHTTP(httptest.NewRecorder(), r)
		}
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Usage{Calls: 2, PromptTokens: 3 + 29, CompletionTokens: 10}, p.Usage()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if err := p.stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	backend.Close()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	listening.Close()
	if err := engine.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
