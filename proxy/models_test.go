package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
	"github.com/go-json-experiment/json"
)

// A swap of the models fails no call: those that run end where they began.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	var backends [2]*proxytest.Server
	for i := range backends {
		backends[i] = serve(t, proxytest.VLLM(func(string, int) string { return fmt.Sprint("backend ", i) }))
	}
	g := start(t, backends[0].BaseURL(), nil)
	const swaps = 100
	var group sync.WaitGroup
	stop := make(chan struct{})
	for worker := range 16 {
		group.Go(func() {
			body := hello
			if worker%2 == 0 {
				body = strings.Replace(hello, `{`, `{"stream":true,`, 1)
			}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r, err := send(t.Context(), fmt.Sprintf("%s/rollout/r%d/attempt/a/chat/completions", g.URL, worker), body)
				if err != nil || r.status != 200 {
					t.Errorf("call failed: %v %d %s", err, r.status, r.body)
					return
				}
			}
		})
	}
	for i := range swaps {
		if err := g.SetModels([]proxy.Model{{Name: "m", BaseURL: backends[i%2].BaseURL(), Version: fmt.Sprint(i)}}); err != nil {
			t.Error(err)
		}
		post(t, g.URL+"/v1/chat/completions", hello) // let the others run between swaps
	}
	close(stop)
	group.Wait()
	flush(t, g)
	calls := g.spans.calls()
	for _, c := range calls {
		a, b := attribute(t, &c, agl.AttrModelVersion), attribute(t, &c, agl.AttrModelVersionEnd)
		backend := attribute(t, &c, record.AttrBackend)
		if content := attribute(t, &c, agl.AttrGenAICompletion+".0.content"); backend != backends[content[len(content)-1]-'0'].BaseURL() {
			t.Errorf("a call recorded for %s was answered by %s", backend, content)
		}
		if a == "" || b == "" {
			t.Errorf("versions %q and %q", a, b)
		}
	}
}

// A change of version at the same address changes the weights under a running
// call; a change of address does not.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprint("moved ", moved), func(t *testing.T) {
			t.Parallel()
			began, goOn := make(chan struct{}), make(chan struct{})
			backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
				close(began)
				<-goOn
				return proxytest.VLLM(echo)(ctx, r)
			})
			g := start(t, backend.BaseURL(), nil)
			var group sync.WaitGroup
			group.Go(func() {
				if _, err := send(t.Context(), g.URL+attemptPath, hello); err != nil {
					t.Error(err)
				}
			})
			<-began
			next, want := proxy.Model{Name: "m", BaseURL: backend.BaseURL(), Version: "v2"}, "v2"
			if moved {
				next.BaseURL, want = "http://127.0.0.1:1", "v1"
			}
			if err := g.SetModels([]proxy.Model{next}); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			group.Wait()
			call := oneCall(t, g)
			if a, b := attribute(t, &call, agl.AttrModelVersion), attribute(t, &call, agl.AttrModelVersionEnd); a != "v1" || b != want {
				t.Errorf("versions %q to %q, want v1 to %s", a, b, want)
			}
		})
	}
}

// A model whose name has a slash is found by SDKs that escape it and by those
// that do not.
func TestModelWithSlash(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Models[0].Name = "org/name" })
	for _, path := range []string{"/v1/models/org/name", "/v1/models/org%2Fname", "/rollout/r/attempt/a/models/org/name"} {
		if got := get(t, g.URL+path); !strings.HasPrefix(got, `{"id":"org/name"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if r := post(t, g.URL+messagesPath, strings.Replace(askMessage, `"m"`, `"org/name"`, 1)); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// An engine gets the version of its weights as the salt of its cache, whatever
// the agent speaks, when it is asked for.
func TestCacheSalt(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), nil)
	for _, tt := range []struct {
		model proxy.Model
		want  string // empty is none
	}{
		{proxy.Model{Version: "v1"}, ""},
		{proxy.Model{CacheSalt: true}, ""},
		{proxy.Model{Version: "v1", CacheSalt: true}, "v1"},
		{proxy.Model{Version: "v2", CacheSalt: true}, "v2"},
	} {
		tt.model.Name, tt.model.BaseURL = "m", backend.BaseURL()
		if err := g.SetModels([]proxy.Model{tt.model}); err != nil {
			t.Fatal(err)
		}
		for path, body := range map[string]string{
			attemptPath: hello, messagesPath: askMessage, "/v1/chat/completions": hello,
			"/rollout/ro-1/attempt/at-1/completions": `{"model":"m","prompt":"hi"}`,
			"/v1/responses":                          `{"model":"m","input":"hi"}`,
		} {
			before := len(backend.Requests())
			post(t, g.URL+path, body)
			var got struct {
				CacheSalt string `json:"cache_salt"`
			}
			if err := json.Unmarshal(backend.Requests()[before].Body, &got); err != nil || got.CacheSalt != tt.want {
				t.Errorf("%+v, %s: %v, the salt is %q", tt.model, path, err, got.CacheSalt)
			}
		}
	}
}

// Replicas share the rollouts, and a rollout stays on its replica.
func TestReplicas(t *testing.T) {
	t.Parallel()
	var models []proxy.Model
	var backends []*proxytest.Server
	for range 3 {
		b := serve(t, proxytest.VLLM(echo))
		backends = append(backends, b)
		models = append(models, proxy.Model{Name: "m", BaseURL: b.BaseURL()})
	}
	g := start(t, "", func(c *proxy.Config) { c.Models = models })
	const rollouts = 60
	for i := range rollouts {
		for range 2 {
			post(t, fmt.Sprintf("%s/rollout/r%d/attempt/a/chat/completions", g.URL, i), hello)
		}
	}
	flush(t, g)
	served := make(map[string]string)
	for _, c := range g.spans.calls() {
		b := attribute(t, &c, record.AttrBackend)
		if before, ok := served[c.RolloutID]; ok && before != b {
			t.Errorf("rollout %s moved from %s to %s", c.RolloutID, before, b)
		}
		served[c.RolloutID] = b
	}
	for _, b := range backends {
		if n := len(b.Requests()); n < rollouts/6 || n%2 != 0 {
			t.Errorf("a replica served %d of %d calls", n, 2*rollouts)
		}
	}
	for range 6 {
		post(t, g.URL+"/chat/completions", hello)
	}
	for i, b := range backends {
		if n := len(b.Requests()); n == 0 {
			t.Errorf("replica %d served none of the calls without a rollout", i)
		}
	}
}
