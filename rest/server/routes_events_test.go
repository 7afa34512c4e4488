package server_test

import (
	"context"
	"iter"
	"net/http/httptest"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// What the stream of events cannot do is refused.
func TestEventsEveryIsChecked(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	for _, every := range []string{"-1", "61", "x", "NaN", "1e99"} {
		w := ask(t, api, "GET", "/v1/agl/events?every="+every, "")
		if w.Code != 400 || w.Header().Get("Content-Type") == "text/event-stream" {
			t.Errorf("every=%s: got %d %s", every, w.Code, w.Body)
		}
	}
}

// beganStore knows whether its stream of events has begun.
type beganStore struct {
	agl.UnimplementedStore
	began bool
}

func (s *beganStore) Events(ctx context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	s.began = true
	return s.UnimplementedStore.Events(ctx, p)
}

// headerWriter notices what had happened when the header was sent.
type headerWriter struct {
	*httptest.ResponseRecorder
	store *beganStore
	late  bool
}

func (w *headerWriter) WriteHeader(status int) {
	w.late = !w.store.began
	w.ResponseRecorder.WriteHeader(status)
}

// Whoever has the header of the stream misses nothing that happens from then on.
func TestEventsBeginBeforeTheHeader(t *testing.T) {
	t.Parallel()
	store := &beganStore{}
	w := &headerWriter{ResponseRecorder: httptest.NewRecorder(), store: store}
	newServer(t, server.Config{Store: store}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/agl/events", nil))
	if !store.began || w.late || w.Code != 200 {
		t.Errorf("the stream had begun: %t, after the header: %t, status %d", store.began, w.late, w.Code)
	}
}
