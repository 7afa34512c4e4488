package proxy

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
)

// slowIDs is a store that takes its time to give sequence ids.
type slowIDs struct {
	agl.UnimplementedStore

	stored int
}

func (s *slowIDs) ReserveSequenceIDs(context.Context, agl.ReserveSequenceIDsParams) (int64, error) {
	time.Sleep(time.Second)
	return 1, nil
}

func (s *slowIDs) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	s.stored += len(p.Spans)
	return agl.AddSpansResult{}, nil
}

// A record whose sequence id comes while the recorder closes is written.
func TestCloseWaitsForIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowIDs{}
		cfg := Config{Spans: store}.withDefaults()
		r, err := newRecorder(&cfg, &budget{limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		c := &call{
			route: route{rolloutID: "r", attemptID: "a", path: "/chat/completions"}, method: http.MethodPost, model: "m",
			backend: &backend{base: &url.URL{Scheme: "http", Host: "backend"}}, reply: []byte(`{}`), status: http.StatusOK,
			start: now, end: now,
		}
		r.begin(t.Context(), c)
		r.finish(c)
		if err := r.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if store.stored != spansPerCall {
			t.Errorf("%d spans stored, want the %d of the call", store.stored, spansPerCall)
		}
		if err := r.lost(scope{}); err != nil {
			t.Error(err)
		}
	})
}
