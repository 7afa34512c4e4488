package server_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// FuzzRoutes sends any body and any query to any route: the answer is never a fault of ours, and what it says to be JSON is
// JSON.
func FuzzRoutes(f *testing.F) {
	engine := memorytest.Open(f)
	collector, err := collect.New(collect.Config{Store: engine})
	if err != nil {
		f.Fatal(err)
	}
	api := newServer(f, server.Config{Store: engine, Token: "root", Keys: access.NewKeys(engine), Audit: access.NewAudit(engine), Collector: collector})
	r, err := engine.StartRollout(f.Context(), agl.StartRolloutParams{})
	if err != nil {
		f.Fatal(err)
	}
	// A deleted rollout would end what the others find.
	routes := slices.DeleteFunc(api.Routes(), func(route string) bool {
		return strings.HasSuffix(route, "/events") || strings.HasPrefix(route, http.MethodDelete)
	})
	fill := strings.NewReplacer("{rollout_id}", r.RolloutID, "{attempt_id}", r.Attempt.AttemptID, "{$}", "", "{", "", "}", "")
	bodies := []string{
		"", "null", "[]", "{}", "\xb0", "{\"rollouts\":[\xb0]}", spanDocument, `{"rollouts":[{"input":1}]}`, `{"value":0.5,"source":"user"}`, `{"dimensions":{"a":1},"call":"x"}`,
		`{"name":"n","scopes":["read"],"requests":10,"window":60}`, `{"run_id":"x","name":"n"}`, `{"metrics":[{"step":1,"values":{"loss":0.5}}]}`,
		`{"resources_id":"x","resources":{"p":{"resource_type":"prompt_template","template":"t","engine":"jinja"}}}`,
		`{"candidate":"x","percent":10,"reason":"r"}`, `{"status":"succeeded","metadata":{"a":1},"config":{"max_attempts":2}}`,
		`{"rollout_id":"x","attempt_id":"y","count":3}`, `{"input":{"a":"\ud800"},"mode":"train"}`, `{"filter":{"status_in":["running"]},"limit":1,"sort_by":"start_time"}`,
	}
	for i := range routes {
		for _, body := range bodies {
			f.Add(uint8(i), body, "limit=1&sort_by=x&since=y&step=1e9")
		}
	}
	for _, bad := range badRequests() {
		i := slices.IndexFunc(routes, func(route string) bool { return fill.Replace(route) == bad.method+" /v1/agl"+bad.path })
		f.Add(uint8(max(i, 0)), bad.body, "")
	}
	f.Fuzz(func(t *testing.T, route uint8, body, query string) {
		method, path, _ := strings.Cut(routes[int(route)%len(routes)], " ")
		if strings.Contains(body, "wait_seconds") || strings.Contains(query, "wait_seconds") || strings.Contains(body, "timeout") {
			return // would block
		}
		r := httptest.NewRequestWithContext(t.Context(), method, fill.Replace(path), strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer root")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError && w.Code != http.StatusNotImplemented {
			t.Fatalf("%s %s: %d %s", method, r.URL, w.Code, w.Body)
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
			return
		}
		// Half of a surrogate pair is JSON, as the escape that it was sent as.
		if answer := w.Body.Bytes(); !utf8.Valid(answer) || !jsontext.Value(answer).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("%s %s: the answer is not JSON: %q", method, r.URL, w.Body)
		}
	})
}
