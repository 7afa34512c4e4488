package rest_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest"
)

// bodyRoutes are the routes that read a body.
func bodyRoutes() []string {
	return []string{
		"/queues/rollouts/enqueue", "/queues/rollouts/dequeue", "/rollouts", "/rollouts/search", "/rollouts/ro-1",
		"/rollouts/ro-1/attempts", "/rollouts/ro-1/attempts/search", "/rollouts/ro-1/attempts/latest", "/workers/search",
		"/workers/w", "/resources", "/resources/x", "/spans", "/spans/batch", "/spans/search", "/spans/next", "/spans/next/batch",
	}
}

// FuzzBodies sends any body to any route: the answer is never a fault of ours,
// and always JSON.
func FuzzBodies(f *testing.F) {
	server := newServer(f, rest.ServerConfig{Store: newStore(f)})
	for i, r := range badRequests() {
		f.Add(uint8(i), r.body, r.path)
	}
	f.Add(uint8(12), spanDocument, "limit=1")
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
			server.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Fatalf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
			}
			if !jsontext.Value(w.Body.Bytes()).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
				t.Fatalf("%s %s: the answer is not JSON: %q", r.Method, r.URL, w.Body)
			}
		}
	})
}

// answering returns a client whose server gives one answer to everything.
func answering(t testing.TB, status int, body []byte) *rest.Client {
	t.Helper()
	client, err := rest.NewClient(rest.ClientConfig{
		URL: "http://store", RetryBudget: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// FuzzAnswers has the client read any answer: it returns a value or an error
// with a code.
func FuzzAnswers(f *testing.F) {
	for _, doc := range []string{
		"null", "[]", "{}", spanDocument, `{"items":[` + spanDocument + `],"limit":1,"offset":0,"total":1}`,
		`{"detail":[{"type":"missing","loc":["body",0],"msg":"Field required","input":{}}]}`,
		`{"detail":"no","error_type":"RuntimeError","code":"evicted"}`, `{"stored":[[0,7]],"cancelled":["at-1"]}`,
		`[{"rollout_id":"ro-1","attempt":{"attempt_id":"at-1","status":"running"}}]`,
	} {
		f.Add(200, []byte(doc))
		f.Add(422, []byte(doc))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		client := answering(t, status, body)
		ctx := t.Context()
		span := agl.Span{RolloutID: "ro-1", AttemptID: "at-1", SpanID: "s"}
		var errs []error
		_, err := client.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: "ro-1"})
		errs = append(errs, err)
		_, err = client.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}})
		errs = append(errs, err)
		_, err = client.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1})
		errs = append(errs, err)
		_, err = client.GetResources(ctx, agl.GetResourcesParams{ResourcesID: "x"})
		errs = append(errs, err)
		_, err = client.Statistics(ctx)
		errs = append(errs, err)
		for _, err := range errs {
			if err != nil && agl.ErrorCode(err) == "" {
				t.Errorf("%v has no code", err)
			}
			if status >= 300 && err == nil {
				t.Errorf("status %d is no error", status)
			}
		}
	})
}

// FuzzEvents has the client read any event stream; it always ends with an error.
func FuzzEvents(f *testing.F) {
	for _, stream := range []string{
		": agl\n\nid: 1\nevent: rollout\ndata: {\"id\":\"1\",\"kind\":\"rollout\",\"rollout_id\":\"ro-1\",\"status\":\"running\"}\n\n",
		"event: error\ndata: {\"detail\":\"no\",\"code\":\"unimplemented\"}\n\n",
		"data: {\ndata: \"id\":\"2\"}\r\n\r\n", "data:\n\n", ":\n\n", "data: nonsense\n\n", "id: 1",
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var last error
		for _, err := range answering(t, 200, stream).Events(t.Context(), agl.EventsParams{}) {
			last = err
		}
		if last == nil {
			t.Error("the stream ended without an error")
		}
	})
}

// TestSlowAnswer checks that a client does not wait for ever for one request.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	client, err := rest.NewClient(rest.ClientConfig{
		URL: "http://store", RetryBudget: -1, RequestTimeout: time.Millisecond,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Statistics(t.Context()); agl.ErrorCode(err) != agl.CodeUnavailable {
		t.Errorf("error is %v, want unavailable", err)
	}
}
