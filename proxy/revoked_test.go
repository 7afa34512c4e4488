package proxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

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
