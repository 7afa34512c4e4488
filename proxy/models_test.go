package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// Clients of Anthropic, which name the version of its API, get the models in its form.
func TestModelsOfAnthropic(t *testing.T) {
	t.Parallel()
	g := start(t, "", func(c *proxy.Config) {
		c.Models = nil
		for _, name := range []string{"a", "b", "org/c"} {
			c.Models = append(c.Models, proxy.Model{Name: name, BaseURL: "http://127.0.0.1:1/v1"})
		}
	})
	model := func(id string) string {
		return fmt.Sprintf(`{"type":"model","id":%q,"display_name":%[1]q,"created_at":"1970-01-01T00:00:00Z","lifecycle":"active"}`, id)
	}
	page := func(more bool, ids ...string) string {
		models := make([]string, len(ids))
		for i, id := range ids {
			models[i] = model(id)
		}
		return fmt.Sprintf(`{"data":[%s],"has_more":%v,"first_id":%q,"last_id":%q}`, strings.Join(models, ","), more, ids[0], ids[len(ids)-1])
	}
	refusal := func(message, kind, param, code string) string {
		return fmt.Sprintf(`{"type":"error","error":{"message":%q,"type":%q,"param":%q,"code":%s}}`, message, kind, param, code)
	}
	const wrong = "invalid_request_error"
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/v1/models":                         {200, page(false, "a", "b", "org/c")},
		"/rollout/r/attempt/t/v1/models":     {200, page(false, "a", "b", "org/c")},
		"/v1/models?limit=2":                 {200, page(true, "a", "b")},
		"/v1/models?limit=2&after_id=b":      {200, page(false, "org/c")},
		"/v1/models?limit=1&before_id=org/c": {200, page(true, "b")},
		"/v1/models?before_id=org/c":         {200, page(false, "a", "b")},
		"/v1/models?after_id=org/c":          {200, `{"data":[],"has_more":false,"first_id":null,"last_id":null}`},
		"/v1/models/b":                       {200, model("b")},
		"/v1/models/org%2Fc":                 {200, model("org/c")},
		"/v1/models/x":                       {404, refusal("the model x does not exist", "not_found_error", "model", `"model_not_found"`)},
		"/v1/models/":                        {404, refusal("the model  does not exist", "not_found_error", "model", `"model_not_found"`)},
		"/v1/models?limit=0":                 {400, refusal(`limit: got "0", must be a number from 1 to 1000`, wrong, "limit", "null")},
		"/v1/models?after_id=x":              {400, refusal(`after_id: got "x", must be the id of a model of the list`, wrong, "after_id", "null")},
		"/v1/models?before_id=x":             {400, refusal(`before_id: got "x", must be the id of a model of the list`, wrong, "before_id", "null")},
		"/v1/models?after_id=a&before_id=b":  {400, refusal(`before_id: got "b", must be left out beside after_id`, wrong, "before_id", "null")},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Anthropic-Version", "2023-06-01")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != want.status || string(body) != want.body {
			t.Errorf("%s: %v %d %s, want %d %s", path, err, res.StatusCode, body, want.status, want.body)
		}
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

// A call whose model is replaced while it is on its way to the backend, which has only the new one then, goes to the new one. A 404 for
// another reason is the agent's.
func TestModelReplacedOnTheWay(t *testing.T) {
	t.Parallel()
	var p *proxy.Proxy
	var spans *spans
	tries := 0
	p, spans = plugged(t, func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		switch tries++; {
		case tries == 1:
			err = p.SetModels([]proxy.Model{{Name: "m", BaseURL: "http://a/v1", BackendModel: "step-2", Version: "2"}})
		case tries == 2 && strings.Contains(string(body), `"step-2"`):
			return ok(), nil
		}
		return respond(404, nil, `{"error":{"message":"the model does not exist","code":"model_not_found"}}`), err
	}, func(c *proxy.Config) { c.Models[0].BackendModel, c.Models[0].Version = "step-1", "1" }, "a")
	if w := ask(t.Context(), p, "/rollout/ro/attempt/at/v1/chat/completions", hello, nil); w.Code != 200 || tries != 2 {
		t.Errorf("got %d after %d tries, want 200 after 2: %s", w.Code, tries, w.Body)
	}
	if w := ask(t.Context(), p, "/v1/chat/completions", hello, nil); w.Code != 404 || tries != 3 {
		t.Errorf("got %d after %d tries, want 404 after 3: %s", w.Code, tries, w.Body)
	}
	closed(t, p)
	if calls := spans.calls(); len(calls) != 1 {
		t.Errorf("%d calls are recorded, want 1", len(calls))
	} else if version, _ := calls[0].Attributes.GetString(agl.AttrModelVersion); version != "2" {
		t.Errorf("the record has the version %q, want 2", version)
	}
}

// A user of a base URL that has no password may be a token: it goes to the backend, and not into records.
func TestBackendWithoutItsUser(t *testing.T) {
	t.Parallel()
	store := &spans{}
	p := unplugged(t, always, store, func(c *proxy.Config) { c.Models[0].BaseURL = "http://s3cret@backend/v1?key=s3cret" })
	call(t.Context(), p, attemptPath)
	closed(t, p)
	for _, c := range store.calls() {
		if got := attribute(t, &c, record.AttrBackend); got != "http://xxxxx@backend/v1" {
			t.Errorf("recorded as %s", got)
		}
	}
	if len(store.calls()) != 1 {
		t.Errorf("%d calls", len(store.calls()))
	}
}
