package gateway

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Every route declares its scopes and keeps to them, with each single scope and without
// a key. One that declares nothing is closed even to the server's own key.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Translate: true})
	if err != nil {
		t.Fatal(err)
	}
	const forgotten = "/api/forgotten"
	g.route(forgotten, methods{http.MethodGet: {}})
	for _, m := range g.routes { // what is behind the routes does not matter, only who gets there
		for method, to := range m {
			m[method] = endpoint{to.scope, func(w http.ResponseWriter, _ *http.Request) error { writeJSON(w, http.StatusOK, nil); return nil }}
		}
	}
	callers := map[string]access.Scope{"": 0, "s3cret": access.Any, "agl_aaaaaaaaaaaa_unknown": 0}
	for i := range 7 {
		p := access.NewKey{Name: "key", Scopes: access.Scope(1 << i)}
		if p.Scopes == access.Agent {
			p.Attempt = agl.Some(agl.Claim{RolloutID: "id", AttemptID: "a"}) // the id in the paths below
		}
		created, err := keys.Create(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		callers[created.Text] = p.Scopes
	}
	walked := 0
	for path, m := range g.routes {
		for method, to := range m {
			if (to.scope == 0) != (path == forgotten) {
				t.Errorf("%s %s declares the scopes (%s)", method, path, to.scope)
			}
			at := strings.NewReplacer("...", "", "{", "", "}", "").Replace(path)
			for key, has := range callers {
				r := httptest.NewRequestWithContext(t.Context(), method, at, nil)
				r.Header.Set("X-Api-Key", key)
				// An agent is somebody only where its rollout is named.
				known := has != 0 && (has != access.Agent || agentsOwn(r) == "id")
				want := http.StatusOK
				switch caller := (access.Caller{Scopes: has}); {
				case to.scope&access.Public != 0:
				case !known:
					want = http.StatusUnauthorized
				case caller.Allow(to.scope) != nil:
					want = http.StatusForbidden
				}
				w := httptest.NewRecorder()
				if g.ServeHTTP(w, r); w.Code != want {
					t.Errorf("%s %s with (%s): %d %s, want %d", method, at, has, w.Code, w.Body, want)
				}
				walked++
			}
		}
	}
	if walked < 150 {
		t.Errorf("only %d requests were made", walked)
	}
}

// A key that is refused says why, behind the words of the original server; a guess and no key get these alone.
func TestRefusedKeysSayWhy(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys})
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := keys.Create(t.Context(), access.NewKey{Name: "old", Scopes: access.Train})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Revoke(t.Context(), revoked.ID, "root"); err != nil {
		t.Fatal(err)
	}
	agent, err := keys.Create(t.Context(), access.NewKey{Name: "agent", Scopes: access.Agent, Attempt: agl.Some(agl.Claim{RolloutID: "r-1", AttemptID: "0"})})
	if err != nil {
		t.Fatal(err)
	}
	own, _ := runkey.ForAttempt(runkey.New("s3cret", time.Now().Add(time.Hour)), "r-1", anyAttempt)
	for key, want := range map[string]string{
		"":           "Invalid or missing API key",
		"guess":      "Invalid or missing API key",
		revoked.Text: "Invalid or missing API key: the key " + revoked.ID + " is revoked",
		agent.Text:   "Invalid or missing API key: the key " + agent.ID + " is that of rollout r-1; an agent may call models, send events and read its own rollout",
		own:          "Invalid or missing API key: it has expired, or is not that of this rollout; an agent may call models, send events and read its own rollout",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/rollouts/r-2", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != http.StatusUnauthorized || got != `{"detail":"`+want+`"}` {
			t.Errorf("%d %s, want %s", w.Code, got, want)
		}
	}
}

// What callers do with the scope train is kept, with who and from where; what they read, what
// fails, and what runners and agents do is not.
func TestAudit(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys, audit := access.NewKeys(store), access.NewAudit(store)
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Audit: audit})
	if err != nil {
		t.Fatal(err)
	}
	train, err := keys.Create(t.Context(), access.NewKey{Name: "trainer", Scopes: access.Train})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := keys.Create(t.Context(), access.NewKey{Name: "controller", Scopes: access.Runner})
	if err != nil {
		t.Fatal(err)
	}
	const here = "10.0.0.7:1234"
	send := func(method, path, key, body string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr = here
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w.Code
	}
	var want []access.Act
	root := access.Act{By: "root", From: here}
	trainer := access.Act{By: train.ID + " (trainer)", KeyID: train.ID, From: here}
	for _, tc := range []struct {
		method, path, key, body string
		status                  int
		by                      *access.Act // nil: it is no act
	}{
		{"POST", "/api/models?token=canary", train.Text, `[{"model":"m","endpoint":"http://e"}]`, 201, &trainer},
		{"POST", "/proxy/pause", "s3cret", `{}`, 200, &root},
		{"GET", "/proxy/state", "s3cret", "", 200, nil},
		{"POST", "/proxy/pause", train.Text, `[`, 422, nil},
		{"POST", "/proxy/resume", runner.Text, "", 403, nil},
		{"POST", "/proxy/resume", "guess", "", 401, nil},
		{"POST", "/api/rollouts/none/cancel", train.Text, "", 404, nil},
		{"POST", "/api/rollouts/status", train.Text, `{"ids":[]}`, 200, nil},
		{"POST", "/proxy/resume", train.Text, "", 200, &trainer},
		{"DELETE", "/api/models", "s3cret", "", 200, &root},
	} {
		status := send(tc.method, tc.path, tc.key, tc.body)
		if tc.by != nil && status != tc.status || tc.by == nil && tc.status >= 400 && status != tc.status {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, status, tc.status)
		}
		if tc.by != nil {
			act := *tc.by
			act.Method, act.Status = tc.method, tc.status
			act.Path, _, _ = strings.Cut(tc.path, "?")
			want = append(want, act)
		}
	}
	acts, total, err := audit.List(t.Context(), 0, 0)
	if err != nil || total != len(want) {
		t.Errorf("%d acts are kept, %v: %+v", total, err, acts)
	}
	for _, w := range want {
		if !slices.ContainsFunc(acts, func(a access.Act) bool { a.Time = 0; return a == w }) {
			t.Errorf("%+v is not in %+v", w, acts)
		}
	}
}

// Who sends many wrong keys must wait, even when the next one is right; valid keys pass.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	valid, err := keys.Create(t.Context(), access.NewKey{Name: "trainer", Scopes: access.Train})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Failed: access.NewThrottle(3)})
	if err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		key    string
		status int
	}{{"", 401}, {"guess", 401}, {"agl_aaaaaaaaaaaa_guess", 401}, {"guess", 401}, {"s3cret", 429}, {"guess", 429}, {"agl_aaaaaaaaaaaa_guess", 429}, {valid.Text, 200}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/proxy/state", nil)
		r.Header.Set("X-Api-Key", tc.key)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != tc.status || (tc.status == 429) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("request %d with %.10q: %d %s, want %d", i, tc.key, w.Code, w.Body, tc.status)
		}
	}
}
