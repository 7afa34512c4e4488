package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// gauges returns the lines of a scrape about the queue.
func gauges(t *testing.T, api *server.Server) string {
	t.Helper()
	w := ask(t, api, "GET", "/metrics", "")
	if w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	var found []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "agl_queue_") || strings.HasPrefix(line, "agl_workers") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, ", ")
}

// Prometheus sees how much waits, for how long, and how many workers there are.
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		api := newServer(t, server.Config{Store: engine})
		want := func(want string) {
			t.Helper()
			time.Sleep(2 * time.Second) // a scrape is reused for a second
			if got := gauges(t, api); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		want(`agl_queue_oldest_seconds 0, agl_queue_rollouts 0, agl_workers{status="busy"} 0, agl_workers{status="idle"} 0`)
		for _, id := range []string{"idle", "busy", "gone"} { // they find nothing
			if _, err := engine.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some(id)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := engine.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 3)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := engine.UpdateWorker(t.Context(), agl.UpdateWorkerParams{WorkerID: "idle"}); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("busy")}); err != nil {
			t.Fatal(err)
		}
		want(`agl_queue_oldest_seconds 62, agl_queue_rollouts 2, agl_workers{status="busy"} 1, agl_workers{status="idle"} 1`)
	})
}

// awayStore cannot say what waits in it.
type awayStore struct {
	agl.UnimplementedStore
	err error
}

func (s *awayStore) QueueStatistics(context.Context) (agl.QueueStatistics, error) {
	return agl.QueueStatistics{Queued: 1}, s.err
}

// While the store is away, the gauges are absent, not stale, and the other metrics are there.
func TestQueueMetricsWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &awayStore{}
		api := newServer(t, server.Config{Store: store})
		if got := gauges(t, api); !strings.Contains(got, "agl_queue_rollouts 1") {
			t.Errorf("got %s", got)
		}
		store.err = errors.New("away")
		if got := gauges(t, api); !strings.Contains(got, "agl_queue_rollouts 1") {
			t.Errorf("within the second: got %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := gauges(t, api); got != "" {
			t.Errorf("while the store is away: got %s, want none", got)
		}
		store.err = nil
		if got := gauges(t, api); !strings.Contains(got, "agl_queue_rollouts 1") {
			t.Errorf("when it is back: got %s", got)
		}
	})
}
