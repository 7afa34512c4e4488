package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// closeAtEnd closes a proxy at the end of a test.
func closeAtEnd(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Whoever sends many wrong keys to a proxy must wait, and nobody else: the store does not take
// the proxy for the one who guesses, which would end records and budgets of all.
func TestWrongKeysAreTheirSenders(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	asking := askServer(t, server.Config{Store: store, Keys: keys, Failed: access.NewThrottle(5)})
	p, _ := plugged(t, func(*http.Request) (*http.Response, error) { return respond(http.StatusOK, nil, usedBody), nil }, func(c *proxy.Config) {
		c.Token, c.Access, c.Budgets, c.RequireKeys, c.Failed = "the-proxys-token", asking.Keys(), asking, true, access.NewThrottle(5)
	}, "one")
	closeAtEnd(t, p)
	limited := create(t, keys, access.NewKey{Name: "limited", Scopes: access.Live, Limits: access.Limits{MaxTokens: 1000}})
	call := func(from, path, key string) *httptest.ResponseRecorder {
		method := http.MethodPost
		if path == "/admin/models" {
			method = http.MethodGet
		}
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"model":"m","messages":[],"max_tokens":9}`))
		r.RemoteAddr = from
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w
	}
	const chats, here, elsewhere = "/v1/chat/completions", "10.0.0.7:1", "10.0.0.8:1"
	for range 20 {
		if w := call(here, chats, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("without a key: %d", w.Code)
		}
	}
	for i := range 30 {
		wrong := []string{"guess", fmt.Sprintf("agl_aaaaaaaaaaa%c_guess", 'a'+i%26)}[i%2]
		want := http.StatusUnauthorized
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		path := []string{chats, "/admin/models"}[i/2%2]
		if w := call(here, path, wrong); w.Code != want || (want == http.StatusTooManyRequests) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("guess %d: %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
	for _, tc := range []struct {
		from, path, key string
		status          int
	}{
		{here, chats, limited, 200}, // its budget is reserved in the store
		{here, chats, "the-proxys-token", 429},
		{here, "/admin/models", "the-proxys-token", 429},
		{elsewhere, chats, limited, 200},
		{elsewhere, chats, "the-proxys-token", 200},
		{elsewhere, "/admin/models", "the-proxys-token", 200},
		{here, "/health", "", 404}, // the route is for GET
	} {
		if w := call(tc.from, tc.path, tc.key); w.Code != tc.status {
			t.Errorf("%s from %s with %.10s: %d %s, want %d", tc.path, tc.from, tc.key, w.Code, w.Body, tc.status)
		}
	}
	if _, err := asking.WhoAmI(t.Context()); err != nil {
		t.Errorf("the proxy itself: %v", err)
	}
}

// The admin routes of a proxy without a token are this machine's, and not those of others whom a
// reverse proxy on this machine lets through.
func TestAdminOfThisMachine(t *testing.T) {
	t.Parallel()
	p, _ := plugged(t, nil, nil, "one")
	closeAtEnd(t, p)
	for name, tc := range map[string]struct {
		from, host, header string
		status             int
	}{
		"here": {"127.0.0.1:1", "127.0.0.1:4000", "", 200}, "elsewhere": {"10.0.0.1:1", "127.0.0.1:4000", "", 403}, "another name": {"127.0.0.1:1", "evil.example", "", 403},
		"through a reverse proxy": {"127.0.0.1:1", "127.0.0.1:4000", "X-Forwarded-For", 403}, "through another one": {"127.0.0.1:1", "127.0.0.1:4000", "Forwarded", 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/models", nil)
		r.RemoteAddr, r.Host = tc.from, tc.host
		if tc.header != "" {
			r.Header.Set(tc.header, "203.0.113.9")
		}
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != tc.status {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, tc.status)
		}
	}
}
