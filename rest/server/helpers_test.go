package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stubStore answers with what a test puts in; what it does not put in is
// unimplemented.
type stubStore struct {
	agl.UnimplementedStore
	addSpan func(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
}

func (s *stubStore) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return s.addSpan(ctx, p)
}

func newServer(t testing.TB, config server.Config) *server.Server {
	t.Helper()
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends one request straight to a handler.
func ask(t testing.TB, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := rawjson.Unmarshal(data, v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func enqueue(t testing.TB, s agl.Store, inputs ...string) []string {
	t.Helper()
	p := agl.EnqueueRolloutsParams{}
	for _, in := range inputs {
		p.Rollouts = append(p.Rollouts, agl.EnqueueRollout{Input: []byte(in)})
	}
	queued, err := s.EnqueueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(queued))
	for i, r := range queued {
		ids[i] = r.RolloutID
	}
	return ids
}

func finish(t testing.TB, s agl.Store, rolloutID string) {
	t.Helper()
	status := agl.RolloutSucceeded
	if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: rolloutID, Status: &status}); err != nil {
		t.Fatal(err)
	}
}
