package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
)

// queueReader is a store that counts its queue and its workers.
type queueReader interface {
	QueueStatistics(ctx context.Context) (agl.QueueStatistics, error)
}

const (
	// queueTimeout bounds one look at the queue: Prometheus waits for ten seconds.
	queueTimeout = 5 * time.Second
	// queueFor is the shortest time for which one look is reused; queueTimeout is the longest.
	queueFor = time.Second
)

// queueGauges show what waits in a store. Those of all servers on one database show the same, and none shows anything while the
// store cannot say.
type queueGauges struct {
	queued, oldest, workers *prometheus.GaugeVec

	mu    sync.Mutex
	until time.Time // when what they show becomes too old
}

func newQueueGauges() queueGauges {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return queueGauges{
		queued:  gauge("agl_queue_rollouts", "Rollouts that wait for a runner, counted up to 100,000. Servers on one database show the same."),
		oldest:  gauge("agl_queue_oldest_seconds", "How long the rollout at the head of the queue has waited."),
		workers: gauge("agl_workers", "Workers of runners that were heard of within the last minute, by whether they have a rollout.", "status"),
	}
}

// refreshing returns a handler that updates the gauges and then calls show.
func (g *queueGauges) refreshing(store queueReader, show http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.read(r.Context(), store)
		show.ServeHTTP(w, r)
	})
}

func (g *queueGauges) read(ctx context.Context, store queueReader) {
	asked := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if asked.Before(g.until) { // or another one has looked meanwhile
		return
	}
	began := time.Now()
	// Others are shown the same, even if this client has disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTimeout)
	defer cancel()
	found, err := store.QueueStatistics(ctx)
	now := time.Now()
	if err != nil {
		for _, gauge := range []*prometheus.GaugeVec{g.queued, g.oldest, g.workers} {
			gauge.Reset()
		}
		g.until = now
		return
	}
	g.until = now.Add(min(max(queueFor, countShare*now.Sub(began)), queueTimeout))
	g.queued.WithLabelValues().Set(float64(found.Queued))
	g.oldest.WithLabelValues().Set(found.Oldest.Seconds())
	g.workers.WithLabelValues(string(agl.WorkerIdle)).Set(float64(found.Idle))
	g.workers.WithLabelValues(string(agl.WorkerBusy)).Set(float64(found.Busy))
}
