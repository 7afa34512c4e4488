package proxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	v1 "github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// A revoked key is refused within a second by every server: the one that revoked it, another
// one of the same database, a project, the API of Agent-lightning v1.0, and a proxy.
func TestRevokedEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		here := access.NewKeys(store)
		key, err := here.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Train})
		if err != nil {
			t.Fatal(err)
		}
		newServer := func(keys *access.Keys) *server.Server {
			s, err := server.New(server.Config{Store: store, Token: "s3cret", Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		gate, err := v1.New(v1.Config{Store: store, Key: "s3cret", Access: access.NewKeys(store)})
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Close()
		registry := project.NewRegistry(store, func(context.Context, string) error { return nil })
		if _, err := registry.Create(t.Context(), "p", "root", access.Limits{}); err != nil {
			t.Fatal(err)
		}
		host := project.NewHost(project.Config{Registry: registry, Open: func(context.Context, string) (*project.Tenant, error) {
			s := newServer(access.NewKeys(store))
			return &project.Tenant{Handler: s, Drain: s.Drain, Close: func(context.Context) error { return nil }}, nil
		}})
		gatewayOfModels, _ := plugged(t, func(*http.Request) (*http.Response, error) { return ok(), nil }, func(c *proxy.Config) {
			c.Access, c.RequireKeys = access.NewCache(access.NewKeys(store).Check, access.AskTTL), true
		}, "one")
		servers := []struct {
			name    string
			handler http.Handler
			path    string
		}{
			{"the server itself", newServer(here), "/v1/agl/rollouts"},
			{"another server", newServer(access.NewKeys(store)), "/v1/agl/rollouts"},
			{"a project", host, "/p/p/v1/agl/rollouts"},
			{"the gateway", gate, "/api/rollouts/none"},
			{"a proxy", gatewayOfModels, "/v1/models"},
			{"a proxy's admin", gatewayOfModels, "/admin/models"},
		}
		status := func(handler http.Handler, path string) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Header.Set("Authorization", "Bearer "+key.Text)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code
		}
		for range 20 { // they all know it, and have asked at other times
			for _, s := range servers {
				if got := status(s.handler, s.path); got == http.StatusUnauthorized || got == http.StatusForbidden {
					t.Errorf("%s: %d while the key is valid", s.name, got)
				}
				time.Sleep(17 * time.Millisecond)
			}
		}
		if _, err := here.Revoke(t.Context(), key.ID, "test"); err != nil {
			t.Fatal(err)
		}
		if got := status(servers[0].handler, servers[0].path); got != http.StatusUnauthorized {
			t.Errorf("the server itself, at once: %d", got)
		}
		time.Sleep(time.Second)
		for _, s := range servers {
			if got := status(s.handler, s.path); got != http.StatusUnauthorized {
				t.Errorf("%s, after a second: %d", s.name, got)
			}
		}
		for _, end := range []func(context.Context) error{host.Close, gatewayOfModels.Close} {
			if err := end(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A call that is running when the key of its caller is revoked or expires ends within a second or so,
// also at its backend, and what it may have cost is spent.
func TestCallsEndWithTheKey(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, keys *access.Keys, id string){
		"a revoked key": func(t *testing.T, keys *access.Keys, id string) {
			t.Helper()
			if _, err := keys.Revoke(t.Context(), id, "test"); err != nil {
				t.Fatal(err)
			}
		},
		"an expired key": func(*testing.T, *access.Keys, string) { time.Sleep(2 * time.Minute) },
		"a revoked attempt": func(t *testing.T, keys *access.Keys, _ string) {
			t.Helper()
			if _, err := keys.RevokeAttempt(t.Context(), agl.Claim{RolloutID: "ro-1", AttemptID: "at-1"}, "test"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				keys := access.NewKeys(memorytest.Open(t))
				arrived, left := make(chan struct{}), make(chan struct{})
				p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
					close(arrived)
					<-r.Context().Done()
					close(left)
					return nil, r.Context().Err()
				}, func(c *proxy.Config) {
					c.Access, c.Budgets, c.KeySecret, c.Revoked = access.NewCache(keys.Check, access.AskTTL), keys, "the proxy's secret", access.NewRevocations(keys.RevokedAttempts, access.AskTTL)
				}, "one")
				defer closed(t, p)
				limits := access.Limits{MaxTokens: 1000}
				key, err := keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Expire: 2 * time.Minute, Limits: limits})
				if err != nil {
					t.Fatal(err)
				}
				const body = `{"model":"m","messages":[],"max_tokens":9}`
				path, given := "/v1/chat/completions", key.Text
				if name == "a revoked attempt" {
					path = attemptPath
					if given, err = p.AttemptKey("ro-1", "at-1", 0); err != nil {
						t.Fatal(err)
					}
				}
				answer := make(chan *httptest.ResponseRecorder)
				go func() { answer <- ask(t.Context(), p, path, body, http.Header{"Authorization": {"Bearer " + given}}) }()
				<-arrived
				time.Sleep(10 * time.Second)
				select {
				case w := <-answer:
					t.Fatalf("it has ended before its key: %d %s", w.Code, w.Body)
				default:
				}
				lose(t, keys, key.ID)
				time.Sleep(1500 * time.Millisecond)
				select {
				case <-left:
				default:
					t.Fatal("the backend goes on")
				}
				if w := <-answer; w.Code != http.StatusUnauthorized {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				synctest.Wait()
				if name == "a revoked attempt" {
					return
				}
				list, err := keys.List(t.Context())
				if err != nil || list[0].Usage.Spent.Tokens != int64(len(body)+9) {
					t.Errorf("spent %+v, %v, want all that was reserved", list[0].Usage, err)
				}
			})
		})
	}
}

// A caller has so many calls at once, and not more; others have as many.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memorytest.Open(t))
		release := make(chan struct{})
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
			<-release
			return respond(http.StatusOK, nil, usedBody), nil
		}, func(c *proxy.Config) { c.Access = keys }, "one")
		defer closed(t, p)
		one, other := create(t, keys, access.NewKey{Name: "one", Scopes: access.Live}), create(t, keys, access.NewKey{Name: "other", Scopes: access.Live})
		answers := make(chan *httptest.ResponseRecorder, access.MaxOpen+2)
		call := func(key string) {
			go func() {
				answers <- ask(t.Context(), p, "/v1/chat/completions", `{"model":"m","messages":[]}`, http.Header{"Authorization": {"Bearer " + key}})
			}()
		}
		for range access.MaxOpen {
			call(one)
		}
		synctest.Wait()
		call(one)
		synctest.Wait()
		select {
		case w := <-answers:
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		default:
			t.Error("one more is let in")
		}
		call(other)
		synctest.Wait()
		if len(answers) > 0 {
			t.Error("another caller is refused")
		}
		close(release)
		for range access.MaxOpen + 1 {
			if w := <-answers; w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
	})
}
