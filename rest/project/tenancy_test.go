package project_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// canary is in everything that is known to project a alone.
const canary = "canary-of-a"

// tenancy is a server with the projects a and b.
type tenancy struct {
	url    string
	routes []string
	stores map[string]*store.Store
	keys   map[string]map[access.Scope]string // by project
	ids    map[string]string                  // of what is in a, by placeholder
	span   string                             // the span token of a's attempt
}

func newTenancy(t testing.TB) *tenancy {
	t.Helper()
	s := &tenancy{stores: map[string]*store.Store{}, keys: map[string]map[access.Scope]string{}}
	registry := project.NewRegistry(memorytest.Open(t), func(context.Context, string) error { return nil })
	apis := map[string]*server.Server{}
	for _, name := range []string{"a", "b"} {
		if _, err := registry.Create(t.Context(), name, "root", access.Limits{}); err != nil {
			t.Fatal(err)
		}
		engine := memorytest.Open(t)
		keys := access.NewKeys(engine)
		api, err := server.New(server.Config{Store: engine, Token: "root-token", SpanSecret: "secret of " + name, Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		s.stores[name], s.keys[name], apis[name], s.routes = engine, map[access.Scope]string{}, api, api.Routes()
		for i := range 7 {
			p := access.NewKey{Name: "key of " + name, Scopes: access.Scope(1 << i)}
			if name == "a" {
				p.Name = canary
			}
			if p.Scopes == access.Agent {
				p.Attempt = agl.Some(agl.Claim{RolloutID: "r", AttemptID: "a"})
			}
			created, err := keys.Create(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			s.keys[name][p.Scopes] = created.Text
		}
	}
	host := project.NewHost(project.Config{Registry: registry, Open: func(_ context.Context, name string) (*project.Tenant, error) {
		return &project.Tenant{Handler: apis[name], Drain: apis[name].Drain, Close: func(context.Context) error { return nil }}, nil
	}})
	web := httptest.NewServer(host)
	t.Cleanup(func() {
		host.Drain()
		web.Close()
		if err := host.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	s.url = web.URL
	s.fill(t)
	return s
}

// fill puts a canary into everything in project a that holds text.
func (s *tenancy) fill(t testing.TB) {
	t.Helper()
	c, err := client.New(client.Config{URL: s.url + "/p/a", Token: "root-token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	input := []byte(`"` + canary + `"`)
	resources, err := c.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: canary, Engine: agl.PromptFString}}}})
	must(err)
	_, err = c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: input}}})
	must(err)
	started, err := c.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: input}, WorkerID: agl.Some("machine-1")})
	must(err)
	run, err := c.StartRun(t.Context(), agl.StartRunParams{Name: canary})
	must(err)
	candidate, err := c.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{Model: canary}, Model: canary + "-stable"})
	must(err)
	at := agl.TimestampOf(time.Now())
	_, err = c.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{{
		RolloutID: started.RolloutID, AttemptID: started.Attempt.AttemptID, SequenceID: 1, TraceID: strings.Repeat("1", 32), SpanID: strings.Repeat("1", 16), Name: canary, StartTime: agl.Some(at), EndTime: agl.Some(at),
	}}})
	must(err)
	s.ids = map[string]string{
		"{rollout_id}": started.RolloutID, "{attempt_id}": started.Attempt.AttemptID, "{resources_id}": resources.ResourcesID, "{worker_id}": "machine-1",
		"{key_id}": strings.Split(s.keys["a"][access.Admin], "_")[1], "{project}": "a", "{run_id}": run.RunID, "{release_id}": candidate.ID, "{act}": "promote",
	}
	tokens, err := client.SpanTokens(client.Config{URL: s.url + "/p/a", Token: "root-token"})
	must(err)
	s.span, err = tokens(t.Context(), started.RolloutID, started.Attempt.AttemptID)
	must(err)
}

// send makes a request and returns the answer.
func (s *tenancy) send(t testing.TB, method, path, key, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w, err := plain.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer w.Body.Close()
	got, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, fmt.Sprint(w.Header, string(got))
}

// dump is everything that a holds.
func (s *tenancy) dump(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, path := range []string{"rollouts", "resources", "workers", "spans", "keys", "runs", "releases"} {
		_, answer := s.send(t, http.MethodGet, "/p/a/v1/agl/"+path, "root-token", "")
		_, body, _ := strings.Cut(answer, "{")
		all.WriteString(body)
	}
	if n := strings.Count(all.String(), canary); n < 10 {
		t.Fatalf("only %d canaries: %s", n, all.String())
	}
	return all.String()
}

// publicPaths answer everybody.
var publicPaths = []string{"/v1/agl/health", "/v1/agl/ready", "/v1/agl/login", "/v1/agl/login/oidc", "/v1/agl/login/oidc/callback", "/v1/agl/logout"}

// Nothing of one project is seen or changed from another: by every route, with the ids of
// what is in the other one, with the root's token and with every kind of key.
func TestTenancy(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	before := s.dump(t)
	names := make([]string, 0, 2*len(s.ids))
	for placeholder, id := range s.ids {
		names = append(names, placeholder, id)
	}
	fill := strings.NewReplacer(append(names, "{$}", "")...)
	bodies := []string{
		`{}`, fill.Replace(`{"rollout_id":"{rollout_id}","rollout_ids":["{rollout_id}"],"attempt_id":"{attempt_id}","worker_id":"{worker_id}","resources_id":"{resources_id}","status":"cancelled","limit":100}`),
		fill.Replace(`{"rollout_ids":["{rollout_id}"],"timeout":0}`), fill.Replace(`["{rollout_id}"]`), fill.Replace(`[{"rollout_id":"{rollout_id}","attempt_id":"{attempt_id}"}]`),
		fill.Replace(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"agl.run_id","value":{"stringValue":"{run_id}"}}]},"scopeMetrics":[{"metrics":[{"name":"loss","gauge":{"dataPoints":[{"asDouble":1}]}}]}]}]}`),
	}
	walked := 0
	for _, route := range s.routes {
		method, path, _ := strings.Cut(route, " ")
		path = fill.Replace(path)
		if strings.Contains(path, "{") {
			t.Fatalf("%s: the test knows no id for a placeholder of it", route)
		}
		if path == "/v1/agl/events" {
			continue // see below
		}
		for _, body := range bodies {
			if method == http.MethodGet && body != bodies[0] {
				continue
			}
			for scope, key := range s.keys["a"] { // of the other project
				status, answer := s.send(t, method, "/p/b"+path, key, body)
				if path == "/v1/agl/login" && method == http.MethodGet && !strings.Contains(answer, `"identity":null`) {
					t.Errorf("%s with a's key for (%s) at b: %d %s", route, scope, status, answer)
				}
				if public := slices.Contains(publicPaths, path); (status == http.StatusUnauthorized) == public || strings.Contains(answer, canary) {
					t.Errorf("%s with a's key for (%s) at b: %d %s", route, scope, status, answer)
				}
				walked++
			}
			for scope, key := range s.keys["b"] {
				if status, answer := s.send(t, method, "/p/b"+path, key, body); strings.Contains(answer, canary) {
					t.Errorf("%s with b's key for (%s) at b: %d %s", route, scope, status, answer)
				}
				walked++
			}
			status, answer := s.send(t, method, "/p/b"+path, "root-token", body)
			if strings.Contains(answer, canary) {
				t.Errorf("%s with the token at b: %d %s", route, status, answer)
			}
		}
	}
	if walked < 1000 {
		t.Errorf("only %d requests were made", walked)
	}
	if status, answer := s.send(t, http.MethodPost, "/p/b/v1/traces", s.span, ""); status != http.StatusUnauthorized {
		t.Errorf("a's span token at b: %d %s", status, answer)
	}
	if status, answer := s.send(t, http.MethodPost, "/p/a/v1/traces", s.span, `{}`); status == http.StatusUnauthorized || status == http.StatusForbidden {
		t.Errorf("a's span token at a: %d %s", status, answer)
	}
	if after := s.dump(t); after != before {
		t.Errorf("a was\n%s\nand is now\n%s", before, after)
	}
}

// The URL of a project leads to its page, also behind a path of a proxy in front.
func TestURLOfProjectLeadsToItsPage(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, want := range map[string]string{"/p/a": "a/", "/p/a?x": "a/", "/p/%61": "", "/p/A": "", "/p/": "", "/p/a/x//": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := answer.Header.Get("Location"); got != want || (answer.StatusCode == http.StatusTemporaryRedirect) != (want != "") {
			t.Errorf("%s: %s to %q, want %q", path, answer.Status, got, want)
		}
	}
	if status, _ := s.send(t, http.MethodPost, "/p/a", "root-token", "{}"); status != http.StatusNotFound {
		t.Errorf("POST /p/a: %d", status)
	}
}

// The events of a project are its own.
func TestEventsOfProjects(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/p/b/v1/agl/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer root-token")
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	enqueue := func(name string) agl.Rollout {
		made, err := s.stores[name].EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte(`"` + canary + `"`)}}})
		if err != nil {
			t.Fatal(err)
		}
		return made[0]
	}
	ofA := enqueue("a")
	ofB := enqueue("b")
	lines := bufio.NewScanner(w.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), ofA.RolloutID) {
			t.Errorf("an event of a in b: %s", lines.Text())
		}
		if strings.Contains(lines.Text(), ofB.RolloutID) {
			return
		}
	}
	t.Errorf("the events ended before that of b: %v", lines.Err())
}

// No spelling of a path leads from one project into another.
func FuzzPathsBetweenProjects(f *testing.F) {
	for _, path := range []string{
		"/p/b/../a/v1/agl/rollouts", "/p/b/%2e%2e/a/v1/agl/rollouts", "/p/b/..%2fa/v1/agl/rollouts", "/p/b%2f..%2fa/v1/agl/rollouts", "/p//a/v1/agl/rollouts",
		"/p/./a/v1/agl/rollouts", "//p/a/v1/agl/rollouts", "/p/b//p/a/v1/agl/rollouts", "/p/b/p/a/v1/agl/rollouts", "/p/b\\..\\a/v1/agl/rollouts", "/p/b/v1/agl/rollouts/../../../../a/v1/agl/rollouts",
		"/p/b/v1/agl/rollouts?project=a", "/p/b;/../a/v1/agl/rollouts", "/p/a%00/v1/agl/rollouts", "/p/b%00a/v1/agl/spans", "/p/%61/v1/agl/keys", "/p/b/v1/agl/resources/..%2f..%2f..%2f..%2fa%2fv1%2fagl%2fresources",
		"/P/a/v1/agl/rollouts", "/p/A/v1/agl/rollouts", "/p/a/v1/agl/workers", "/v1/agl/rollouts", "/p/b/v1/../../a/v1/agl/keys", "/p/b/%252e%252e/a/v1/agl/rollouts",
	} {
		f.Add(path)
	}
	s := newTenancy(f)
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "/events") {
			return
		}
		for scope, key := range s.keys["b"] {
			if status, answer := s.send(t, http.MethodGet, path, key, ""); strings.Contains(answer, canary) {
				t.Errorf("%q with b's key for (%s): %d %s", path, scope, status, answer)
			}
		}
	})
}
