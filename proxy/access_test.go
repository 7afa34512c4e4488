package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// scopes are all routes of the proxy, and who may use them besides admin.
var scopes = map[string]access.Scope{
	"GET /health":                         access.Public,
	"HEAD /health":                        access.Public,
	"POST /chat/completions":              access.Callers,
	"POST /completions":                   access.Callers,
	"POST /responses":                     access.Callers,
	"POST /messages":                      access.Callers,
	"POST /messages/count_tokens":         access.Callers,
	"POST /embeddings":                    access.Callers,
	"POST /rerank":                        access.Callers,
	"GET /models":                         access.Callers | access.Readers,
	"GET /models/{name}":                  access.Callers | access.Readers,
	"POST " + attemptRoute + "/flush":     access.Callers,
	"POST " + attemptRoute + "/emit":      access.Senders,
	"GET /metrics":                        access.Readers,
	"POST /admin/flush":                   access.Runner | access.Train,
	"POST /admin/attempts/flush":          access.Runner | access.Train,
	"POST /admin/attempts/cancel":         access.Runner | access.Train,
	"POST /admin/attempts/key":            access.Runner | access.Train,
	"GET /admin/models":                   access.Readers,
	"PUT /admin/models":                   access.Train,
	"GET /admin/backends":                 access.Readers,
	"GET /admin/pause":                    access.Readers,
	"POST /admin/pause":                   access.Train,
	"POST /admin/resume":                  access.Train,
	"GET /admin/rollouts/{id}/control":    access.Readers,
	"PUT /admin/rollouts/{id}/control":    access.Train,
	"DELETE /admin/rollouts/{id}/control": access.Train,
	"POST /agl/sessions":                  access.Live | access.Runner | access.Train,
	"POST /rl/start_session":              access.Live | access.Runner | access.Train,
	"POST /agl/sessions/{id}/reward":      access.Senders,
	"POST /agl/sessions/{id}/event":       access.Senders,
	"POST /agl/event":                     access.Senders,
	"POST /agl/sessions/{id}/end":         access.Callers,
	"POST /rl/set_reward":                 ofSession,
	"POST /rl/end_session":                ofSession,
}

const (
	attemptRoute = "/rollout/{id}/attempt/{id}"
	// ofSession is the scope of routes for which the key of a session is needed, which no key of
	// the store is.
	ofSession access.Scope = 0
)

// With a secret for keys of attempts, a call of an attempt may have a key of the store, which resources that no proxy has handed out
// can name; an agent without one is told so.
func TestStoreKeysForAttempts(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) {
		c.Token, c.Access, c.KeySecret = "s3cret", askStore(t, store, keys), "a secret of sixteen bytes or more"
	})
	key := create(t, keys, access.NewKey{Name: "agents", Scopes: access.Live})
	for given, want := range map[string]int{key: http.StatusOK, "": http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+attemptPath, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+given)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != want || want != http.StatusOK && !strings.Contains(string(body), "a key that agl key create has made") {
			t.Errorf("with %q: %s %s, %v", given, answer.Status, body, err)
		}
	}
}

// Every route keeps to its scopes: with each single scope, without a key and with one that
// is unknown. The keys are those of a store that the proxy asks over HTTP.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	asking := askStore(t, store, keys)
	var leaked atomic.Pointer[string]
	backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		for _, values := range r.Header {
			if text := strings.Join(values, " "); strings.Contains(text, "agl_") {
				leaked.Store(&text)
			}
		}
		return proxytest.VLLM(echo)(ctx, r)
	})
	g := start(t, backend.BaseURL(), func(c *proxy.Config) {
		c.Token, c.Access, c.RequireKeys, c.ForwardPaths = "s3cret", asking, true, []string{"/rerank"}
		c.Sessions = proxy.Sessions{Store: store, IdleTimeout: time.Hour}
	})
	callers := map[string]access.Scope{"": 0, "s3cret": access.Any, "agl_aaaaaaaaaaaa_unknown": 0}
	for i := range 7 {
		p := access.NewKey{Name: "key", Scopes: access.Scope(1 << i)}
		if p.Scopes == access.Agent {
			p.Attempt = agl.Some(agl.Claim{RolloutID: "ro-1", AttemptID: "at-1"})
		}
		callers[create(t, keys, p)] = p.Scopes
	}
	if all := slices.Sorted(maps.Keys(scopes)); !slices.Equal(g.Routes(), all) {
		t.Errorf("the proxy has the routes %q, and these have scopes here: %q", g.Routes(), all)
	}
	for _, route := range g.Routes() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("/rollout/{id}/attempt/{id}", "/rollout/ro-1/attempt/at-1", "{id}", "ro-9", "{name}", "m").Replace(path)
		paths := []string{path, "/v1" + path}
		switch scope := scopes[route]; {
		case strings.HasPrefix(path, attempt):
			paths = []string{path, attempt + "/v1" + strings.TrimPrefix(path, attempt)}
		case scope&access.Agent != 0 && !strings.HasPrefix(path, "/agl/"): // a call of a model
			paths = append(paths, attempt+path, attempt+"/v1"+path)
		}
		for _, path := range paths {
			for key, has := range callers {
				for _, header := range []string{"Authorization", "X-Api-Key"} {
					if key == "s3cret" && header == "X-Api-Key" {
						continue
					}
					status := request(t, method, g.URL+path, header, key)
					if status != http.StatusUnauthorized && status != http.StatusForbidden {
						status = 0
					}
					if want := refusal(scopes[route], has, path); status != want {
						t.Errorf("%s %s with (%s) in %s: %d, want %d", method, path, has, header, status, want)
					}
				}
			}
		}
	}
	if text := leaked.Load(); text != nil {
		t.Errorf("a key has reached the backend: %s", *text)
	}
}

// attempt is the path of the attempt whose agent's key the walk has.
const attempt = "/rollout/ro-1/attempt/at-1"

// refusal is the status with which a caller is refused on a path of a scope; 0 is let in, whatever
// comes of it.
func refusal(scope, has access.Scope, path string) int {
	switch caller := (access.Caller{Scopes: has}); {
	case scope&access.Public != 0:
	case has == 0 || scope == ofSession:
		return http.StatusUnauthorized
	case caller.Allow(scope) != nil:
		return http.StatusForbidden
	case has == access.Agent && !strings.HasPrefix(path, attempt+"/"):
		return http.StatusUnauthorized
	}
	return 0
}

// The line of a call in the log has the id of the caller's key, and not the key.
func TestKeyOfACallInTheLog(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	var log lockedBuffer
	g := start(t, serve(t, proxytest.VLLM(echo)).BaseURL(), func(c *proxy.Config) {
		c.Access, c.LogCalls, c.Logger = askStore(t, store, keys), true, slog.New(slog.NewTextHandler(&log, nil))
	})
	created, err := keys.Create(t.Context(), access.NewKey{Name: "live", Scopes: access.Live})
	if err != nil {
		t.Fatal(err)
	}
	if status := request(t, http.MethodPost, g.URL+"/v1/chat/completions", "Authorization", created.Text); status != http.StatusOK {
		t.Fatal(status)
	}
	closed(t, g.Proxy) // the line is written after the reply
	if lines := log.String(); !strings.Contains(lines, " key="+created.ID+" ") || strings.Contains(lines, created.Text) {
		t.Errorf("want the id %s: %s", created.ID, lines)
	}
}

// A revoked key is refused within a second, and one that cannot be checked is not let in.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	var down atomic.Bool
	asking := askStore(t, store, access.NewKeys(store))
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) {
		c.Access = checker(func(ctx context.Context, key string) (access.Caller, error) {
			if down.Load() {
				return access.Caller{}, agl.Errorf(agl.CodeUnavailable, "the store is down")
			}
			return asking.Check(ctx, key)
		})
	})
	created, err := keys.Create(t.Context(), access.NewKey{Name: "live", Scopes: access.Live})
	if err != nil {
		t.Fatal(err)
	}
	call := func() int {
		return request(t, http.MethodPost, g.URL+"/v1/chat/completions", "Authorization", created.Text)
	}
	if status := call(); status != http.StatusOK {
		t.Errorf("a valid key: %d", status)
	}
	down.Store(true)
	if status := call(); status != http.StatusServiceUnavailable {
		t.Errorf("while the store is down: %d", status)
	}
	down.Store(false)
	if _, err := keys.Revoke(t.Context(), created.ID, "test"); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for {
		asked := time.Now() // a call that begins within the second may still be let in
		if status := call(); status == http.StatusUnauthorized {
			break
		}
		if late := asked.Sub(revoked); late > time.Second {
			t.Fatalf("the key was still let in %s after it was revoked", late)
		}
	}
	if status := request(t, http.MethodPost, g.URL+"/v1/chat/completions", "Authorization", "agents-own"); status != http.StatusOK {
		t.Errorf("without RequireKeys, another key: %d", status)
	}
}

// What callers do under /admin with the scope train is kept by the store, with who and from
// where; what they read, what fails and what runners do is not. While the store is down, the
// act is in the log of the proxy.
func TestAudit(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys, audit := access.NewKeys(store), access.NewAudit(store)
	asking := askServer(t, server.Config{Store: store, Keys: keys, Audit: audit})
	var log lockedBuffer
	g := start(t, "http://127.0.0.1:1/v1", func(c *proxy.Config) {
		c.Token, c.Access, c.Audit = "s3cret", asking.Keys(), asking
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	train, runner := create(t, keys, access.NewKey{Name: "trainer", Scopes: access.Train}), create(t, keys, access.NewKey{Name: "gpu", Scopes: access.Runner})
	send := func(method, path, key, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	var want []access.Act
	for _, tc := range []struct {
		method, path, key, body string
		status                  int
		kept                    bool
	}{
		{"POST", "/admin/pause", train, `{"mode":"hold"}`, 200, true},
		{"POST", "/v1/admin/resume?x=canary", "s3cret", "{}", 200, true},
		{"PUT", "/admin/rollouts/ro%ff/control", train, "{}", 200, true},
		{"DELETE", "/admin/rollouts/ro-1/control", "s3cret", "", 200, true},
		{"PUT", "/admin/models", train, `{"models":[]}`, 200, true},
		{"PUT", "/admin/models", train, `{"models":[{}]}`, 400, false},
		{"GET", "/admin/models", train, "", 200, false},
		{"POST", "/admin/flush", runner, "{}", 200, false},
		{"POST", "/admin/pause", runner, `{"mode":"hold"}`, 403, false},
		{"POST", "/admin/pause", "guess", `{"mode":"hold"}`, 401, false},
	} {
		if status := send(tc.method, tc.path, tc.key, tc.body); status != tc.status {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, status, tc.status)
		}
		if tc.kept {
			act := access.Act{By: "root", Method: tc.method, Status: tc.status}
			if tc.key == train {
				act.KeyID = strings.Split(train, "_")[1]
				act.By = act.KeyID + " (trainer)"
			}
			act.Path, _, _ = strings.Cut(strings.ReplaceAll(tc.path, "%ff", "\uFFFD"), "?")
			want = append(want, act)
		}
	}
	acts, total, err := audit.List(t.Context(), 0, 0)
	if err != nil || total != len(want) {
		t.Errorf("%d acts are kept, %v: %+v", total, err, acts)
	}
	for _, w := range want {
		if !slices.ContainsFunc(acts, func(a access.Act) bool {
			if !strings.HasPrefix(a.From, "127.0.0.1:") || !strings.HasPrefix(a.Via, "127.0.0.1:") || a.Time == 0 {
				t.Errorf("got %+v", a)
			}
			a.Time, a.From, a.Via = 0, "", ""
			return a == w
		}) {
			t.Errorf("%+v is not in %+v", w, acts)
		}
	}
	if err := store.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := send("POST", "/admin/resume", "s3cret", "{}"); status != http.StatusOK || !strings.Contains(log.String(), "an act was not recorded") {
		t.Errorf("while the store is down: %d, %s", status, log.String())
	}
}

// lockedBuffer is a log of several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestRequireKeysNeedsAChecker(t *testing.T) {
	t.Parallel()
	if _, err := proxy.New(proxy.Config{RequireKeys: true}); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "RequireKeys") {
		t.Error(err)
	}
}

type checker func(ctx context.Context, key string) (access.Caller, error)

func (c checker) Check(ctx context.Context, key string) (access.Caller, error) { return c(ctx, key) }

// askStore returns what checks keys by asking a server of the store.
func askStore(t *testing.T, store agl.Store, keys *access.Keys) access.Checker {
	t.Helper()
	return askServer(t, server.Config{Store: store, Keys: keys}).Keys()
}

// askServer returns a client of a server, with its token.
func askServer(t *testing.T, config server.Config) *client.Client {
	t.Helper()
	config.Token = "s3cret"
	handler, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(handler)
	t.Cleanup(api.Close)
	c, err := client.New(client.Config{URL: api.URL, Token: config.Token, Transport: api.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func create(t *testing.T, keys *access.Keys, p access.NewKey) (text string) {
	t.Helper()
	created, err := keys.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return created.Text
}

// request sends a chat with a key and returns the status of the answer.
func request(t *testing.T, method, url, header, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	if header == "Authorization" {
		key = "Bearer " + key
	}
	r.Header.Set(header, key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
