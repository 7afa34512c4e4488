package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// buffer is a log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// guarded is a server with a token, keys, an audit and a log of everything.
type guarded struct {
	*server.Server

	store agl.DocumentStore
	runs  agl.Runs
	keys  *access.Keys
	audit *access.Audit
	log   *buffer
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	return newGuardedBy(t, "root-token-canary")
}

func newGuardedBy(t *testing.T, token string) *guarded {
	t.Helper()
	store := memorytest.Open(t)
	g := &guarded{store: store, runs: agl.RunsOf(store), keys: access.NewKeys(store), audit: access.NewAudit(store), log: &buffer{}}
	var err error
	g.Server, err = server.New(server.Config{
		Store: store, Token: token, Keys: g.keys, Audit: g.audit, Failed: access.NewThrottle(5),
		Logger: slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guarded) send(t *testing.T, method, path, from, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = from
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

func (g *guarded) create(t *testing.T, scope access.Scope) access.CreatedKey {
	t.Helper()
	created, err := g.keys.Create(t.Context(), access.NewKey{Name: scope.String(), Scopes: scope})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// What callers do with the scopes train and admin is kept, with who and from where; what they
// read, what fails, and what runners do is not.
func TestAudit(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	train, runner := g.create(t, access.Train), g.create(t, access.Runner)
	if _, err := g.runs.StartRun(t.Context(), agl.StartRunParams{RunID: "ru-1"}); err != nil {
		t.Fatal(err)
	}
	const token, here = "root-token-canary", "10.0.0.7:1234"
	for _, r := range []struct{ method, path, key, body string }{
		{"POST", "/v1/agl/queues/rollouts/enqueue?secret=x", train.Text, `{"rollouts":[{"input":1}]}`},
		{"GET", "/v1/agl/rollouts", train.Text, ""},
		{"POST", "/v1/agl/queues/rollouts/dequeue", runner.Text, ""},
		{"POST", "/v1/agl/queues/rollouts/enqueue", train.Text, `{`},
		{"POST", "/v1/agl/queues/rollouts/enqueue", runner.Text, `{"rollouts":[{"input":1}]}`},
		{"POST", "/v1/agl/rollouts/search", train.Text, `{}`},
		{"POST", "/v1/agl/runs/ru-1", train.Text, `{}`}, // a heartbeat
		{"DELETE", "/v1/agl/keys/" + runner.ID, token, ""},
	} {
		g.send(t, r.method, r.path, here, r.key, r.body)
	}
	w := g.send(t, "GET", "/v1/agl/audit", here, token, "")
	acts, total, err := g.audit.List(t.Context(), 0, 0)
	if err != nil || total != 2 || w.Code != http.StatusOK {
		t.Fatalf("%d acts, %v, %d %s", total, err, w.Code, w.Body)
	}
	got := map[string]access.Act{}
	for _, a := range acts {
		a.Time = 0
		got[a.Path] = a
		if !strings.Contains(w.Body.String(), `"path":"`+a.Path+`"`) {
			t.Errorf("not in the answer: %+v", a)
		}
	}
	for _, want := range []access.Act{
		{By: "root", From: here, Method: "DELETE", Path: "/v1/agl/keys/" + runner.ID, Status: 200},
		{By: train.ID + " (train)", KeyID: train.ID, From: here, Method: "POST", Path: "/v1/agl/queues/rollouts/enqueue", Status: 201},
	} {
		if got[want.Path] != want {
			t.Errorf("got %+v, want %+v", got[want.Path], want)
		}
	}
	if w := g.send(t, "GET", "/v1/agl/audit?limit=-1", here, token, ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "limit: got") {
		t.Errorf("a wrong limit: %d %s", w.Code, w.Body)
	}
	if w := g.send(t, "GET", "/v1/agl/audit", here, train.Text, ""); w.Code != http.StatusForbidden {
		t.Errorf("without the scope: %d", w.Code)
	}
}

// A client behind a proxy that does not name its port has none in the list.
func TestAuditWithoutPort(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for from, want := range map[string]string{"192.0.2.7:0": "192.0.2.7", "[2001:db8::1]:0": "[2001:db8::1]", "192.0.2.7:40000": "192.0.2.7:40000"} {
		g.send(t, "POST", "/v1/agl/queues/rollouts/enqueue", from, "root-token-canary", `{"rollouts":[{"input":1}]}`)
		acts, _, err := g.audit.List(t.Context(), 1, 0)
		if err != nil || len(acts) != 1 || acts[0].From != want {
			t.Errorf("%s: got %+v, %v, want it from %s", from, acts, err, want)
		}
	}
}

// A server without a token does not know who its callers without a key are.
func TestAuditOfAnOpenServer(t *testing.T) {
	t.Parallel()
	g := newGuardedBy(t, "")
	key := g.create(t, access.Train)
	for _, by := range []string{"", key.Text, ""} {
		if w := g.send(t, "POST", "/v1/agl/queues/rollouts/enqueue", "127.0.0.1:1", by, `{"rollouts":[{"input":1}]}`); w.Code != http.StatusCreated {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	acts, total, err := g.audit.List(t.Context(), 0, 0)
	if err != nil || total != 1 || acts[0].KeyID != key.ID {
		t.Errorf("%+v, %v; want that of the key", acts, err)
	}
}

// Another server tells what a caller has done there, with the caller's own key: whoever may do
// nothing cannot fill the list, and nobody can name somebody else.
func TestAuditOfAnotherServer(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	train, runner := g.create(t, access.Train), g.create(t, access.Runner)
	const told, from = `{"from":"10.0.0.7:1","method":"PUT","path":"/admin/models","status":200}`, "10.0.0.9:4748"
	for _, tc := range []struct {
		key, body, want string
		status          int
	}{
		{train.Text, told, `"by":"` + train.ID, 201},
		{"root-token-canary", told, `"by":"root"`, 201},
		{runner.Text, told, "needs one of", 403},
		{"", told, "a token is needed", 401},
		{train.Text, `{"from":"f","method":"PUT","path":"/x","status":200,"by":"root"}`, "allowed: from, method, path and status", 400},
		{train.Text, `{"from":"f","method":"PUT","path":"/x","status":403}`, "status: got 403", 400},
		{train.Text, `{"from":"f","method":"","path":"/x","status":200}`, "method: got", 400},
		{train.Text, `{"from":"f","method":"PUT","path":"x","status":200}`, "must begin with /", 400},
		{train.Text, "", "body", 422},
	} {
		w := g.send(t, "POST", "/v1/agl/audit", from, tc.key, tc.body)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %s, want %d with %s", tc.body, w.Code, w.Body, tc.status, tc.want)
		}
	}
	acts, total, err := g.audit.List(t.Context(), 0, 0)
	if err != nil || total != 2 {
		t.Fatalf("%d acts, %v", total, err)
	}
	for _, a := range acts {
		if a.From != "10.0.0.7:1" || a.Via != from || a.Method != http.MethodPut || a.Path != "/admin/models" || a.By == "root" != (a.KeyID == "") {
			t.Errorf("got %+v", a)
		}
	}
}

// Who guesses is refused for a while, even when the guess is right; valid keys from the same
// address, other addresses, and requests without a key are not.
func TestFailedLogins(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	key := g.create(t, access.Read)
	const path, token, here = "/v1/agl/rollouts", "root-token-canary", "10.0.0.7:1"
	for range 20 {
		if w := g.send(t, "GET", path, here, "", ""); w.Code != http.StatusUnauthorized {
			t.Errorf("without a key: %d", w.Code)
		}
	}
	for i := range 5 {
		wrong := []string{"guess", "agl_aaaaaaaaaaaa_guess"}[i%2]
		if w := g.send(t, "GET", path, fmt.Sprint("10.0.0.7:", i), wrong, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("guess %d: %d", i, w.Code)
		}
	}
	for given, want := range map[string]int{"guess": 429, token: 429, "agl_aaaaaaaaaaaa_guess": 429, key.Text: 200} {
		w := g.send(t, "GET", path, here, given, "")
		if w.Code != want || (want == 429) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("with %s: %d %s, want %d", given, w.Code, w.Body, want)
		}
	}
	if w := g.send(t, "GET", path, "10.0.0.8:1", token, ""); w.Code != http.StatusOK {
		t.Errorf("from elsewhere: %d", w.Code)
	}
	if w := g.send(t, "GET", "/v1/agl/health", here, "", ""); w.Code != http.StatusOK {
		t.Errorf("a probe: %d", w.Code)
	}
}

// Secrets that are sent to the server, right or wrong, are neither in its log nor in what it
// keeps, nor in answers but the one that makes a key.
func TestSecretsStayIn(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	const token, here = "root-token-canary", "10.0.0.7:1"
	key, gone := g.create(t, access.Admin), g.create(t, access.Train)
	secrets := []string{token, key.Text[17:], gone.Text[17:], "wrong-token-canary", "wrongkeycanary", "in-the-query-canary", "basic-canary", "span-canary"}
	if w := g.send(t, "DELETE", "/v1/agl/keys/"+gone.ID, here, key.Text, ""); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var answers strings.Builder
	var made string
	for i, credential := range []string{token, key.Text, gone.Text, "wrong-token-canary", "agl_aaaaaaaaaaaa_wrongkeycanary", "agl-span-canary", "agl-run-canary"} {
		from := fmt.Sprintf("10.0.1.%d:1", i)
		for _, route := range g.Routes() {
			method, path, _ := strings.Cut(route, " ")
			if strings.Contains(path, "events") {
				continue
			}
			path = strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path)
			for _, body := range []string{"{}", "{", `{"name":"n","scopes":["read"]}`, `{"rollouts":[{"input":"x"}]}`} {
				w := g.send(t, method, path+"?token=in-the-query-canary", from, credential, body)
				if method == http.MethodPost && strings.HasSuffix(path, "/keys") && w.Code == http.StatusCreated {
					_, text, _ := strings.Cut(w.Body.String(), `"key":"`)
					made, _, _ = strings.Cut(text, `"`)
					continue
				}
				fmt.Fprintln(&answers, route, w.Header(), w.Body)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/rollouts", nil)
		r.SetBasicAuth("agl", "basic-canary")
		g.ServeHTTP(httptest.NewRecorder(), r)
	}
	if !access.IsKey(made) {
		t.Fatalf("no key was made: %q", made)
	}
	secrets = append(secrets, made[17:])
	var kept strings.Builder
	for _, kind := range []string{"key", "audit", "key-usage"} {
		page, err := g.store.QueryDocuments(t.Context(), agl.QueryDocumentsParams{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Items {
			kept.Write(page.Items[i].Body)
		}
	}
	if !strings.Contains(kept.String(), key.ID) || !strings.Contains(g.log.String(), "key created") {
		t.Errorf("nothing is kept or logged: %s", g.log.String())
	}
	for where, text := range map[string]string{"the log": g.log.String(), "the database": kept.String(), "the answers": answers.String()} {
		for _, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s has %s: …%s…", where, secret, text[max(at-200, 0):min(at+100, len(text))])
			}
		}
	}
}
