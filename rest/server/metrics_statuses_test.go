package server_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

const statusCountsPath = "/v1/agl/statistics/rollouts"

func TestStatusCounts(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	if _, err := engine.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 3)}); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	w := ask(t, newServer(t, server.Config{Store: engine}), "GET", statusCountsPath, "")
	want := `{"by_status":{"queuing":2,"preparing":1,"running":0,"failed":0,"succeeded":0,"cancelled":0,"requeuing":0}}`
	if w.Code != 200 || w.Body.String() != want {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
	}
}

// countingStore takes its time to count.
type countingStore struct {
	agl.UnimplementedStore
	counts atomic.Int64
	takes  time.Duration
}

func (s *countingStore) QueryRollouts(context.Context, agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	time.Sleep(s.takes)
	return agl.Page[agl.AttemptedRollout]{Total: int(s.counts.Add(1))}, nil
}

// Those who ask at about the same time share one answer, the longer the more work it is.
func TestStatusCountsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{takes: 10 * time.Millisecond}
		api := newServer(t, server.Config{Store: store})
		each := int64(len(agl.RolloutStatuses()))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if w := ask(t, api, "GET", statusCountsPath, ""); w.Code != 200 {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		took := time.Duration(each) * store.takes
		for _, step := range []struct {
			after time.Duration
			want  int64
		}{{0, each}, {49 * took, each}, {2 * took, 2 * each}} {
			time.Sleep(step.after)
			before := store.counts.Load()
			w := ask(t, api, "GET", statusCountsPath, "")
			if store.counts.Load() != step.want {
				t.Errorf("%s later: %d counts, want %d", step.after, store.counts.Load(), step.want)
			}
			// An answer that may be too old says when to ask again.
			if old := strings.Contains(w.Body.String(), `"fresh_in":`); old != (before == step.want) {
				t.Errorf("%s later: got %s", step.after, w.Body)
			}
		}
	})
}
