package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/session"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Every route has a scope. One that is forgotten is closed even to the proxy's token.
func TestForgottenScope(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	p, err := New(Config{
		Token: "s3cret", RequireKeys: true, Access: access.NewKeys(store), Spans: store, ForwardPaths: []string{"/rerank"},
		Sessions: Sessions{Store: store, IdleTimeout: time.Hour}, Models: []Model{{Name: "m", BaseURL: "http://127.0.0.1:1/v1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for route, to := range p.routes {
		if to.scope == 0 || (to.serve == nil) == (to.about == nil) {
			t.Errorf("%s has the scopes (%s), must have some, and one handler", route, to.scope)
		}
	}
	p.routes["GET /forgotten"] = endpoint{serve: func(http.ResponseWriter, *http.Request, route) { t.Error("a route without a scope was reached") }}
	p.routes["POST /agl/sessions/{id}/forgotten"] = endpoint{about: func(*Proxy, *http.Request, route, *session.Session) (int, any, error) {
		t.Error("a route about sessions without a scope was reached")
		return http.StatusOK, nil, nil
	}}
	for method, path := range map[string]string{http.MethodGet: "/v1/forgotten", http.MethodPost: "/v1/agl/sessions/ro-1/forgotten"} {
		for _, key := range []string{"", "s3cret", "other"} {
			r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			if p.ServeHTTP(w, r); w.Code != http.StatusForbidden {
				t.Errorf("%s %s with %q: %d %s, want 403", method, path, key, w.Code, w.Body)
			}
		}
	}
}
