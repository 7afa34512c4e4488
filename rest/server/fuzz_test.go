package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// bodyRoutes are the routes that read a body.
func bodyRoutes() []string {
	return []string{
		"/queues/rollouts/enqueue", "/queues/rollouts/dequeue", "/queues/rollouts/return", "/rollouts", "/rollouts/search", "/rollouts/ro-1",
		"/rollouts/ro-1/attempts", "/rollouts/ro-1/attempts/search", "/rollouts/ro-1/attempts/latest", "/workers/search",
		"/workers/w", "/resources", "/resources/x", "/spans", "/spans/batch", "/spans/search", "/spans/next", "/spans/next/batch",
	}
}

// FuzzBodies sends any body to any route: the answer is never a fault of ours,
// and always JSON.
func FuzzBodies(f *testing.F) {
	api := newServer(f, server.Config{Store: memorytest.Open(f)})
	for i, r := range badRequests() {
		f.Add(uint8(i), r.body, r.path)
	}
	f.Add(uint8(12), spanDocument, "limit=1")
	f.Add(uint8(0), "{\"rollouts\":[\xb0]}", "")
	f.Fuzz(func(t *testing.T, route uint8, body, query string) {
		routes := bodyRoutes()
		path := routes[int(route)%len(routes)]
		for _, r := range []*http.Request{
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl"+path, strings.NewReader(body)),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/spans", nil),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/rollouts", nil),
		} {
			if r.Method == http.MethodGet {
				r.URL.RawQuery = query
			}
			if strings.Contains(body, "wait_seconds") {
				continue // would block
			}
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Fatalf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
			}
			if w.Code == http.StatusNoContent {
				continue
			}
			if !jsontext.Value(w.Body.Bytes()).IsValid(jsontext.AllowDuplicateNames(true)) {
				t.Fatalf("%s %s: the answer is not JSON: %q", r.Method, r.URL, w.Body)
			}
		}
	})
}
