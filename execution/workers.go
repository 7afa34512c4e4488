package execution

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/changes"
)

// servedWorkers finds the workers that take work from this run's queue. Workers in other processes may still need
// what this process serves when the run ends.
type servedWorkers struct {
	store agl.Store
	// before is when each worker last began to work before this run, perhaps for another one.
	before map[string]agl.Null[agl.Timestamp]
}

// newServedWorkers must be called before the queue is opened. It returns nil for a store that does not know its
// workers.
func newServedWorkers(ctx context.Context, store agl.Store) (*servedWorkers, error) {
	page, err := store.QueryWorkers(ctx, agl.QueryWorkersParams{})
	if agl.ErrorCode(err) == agl.CodeUnimplemented {
		return nil, nil //nolint:nilnil // there is no known worker to wait for
	}
	if err != nil {
		return nil, fmt.Errorf("query the workers: %w", err)
	}
	w := &servedWorkers{store: store, before: make(map[string]agl.Null[agl.Timestamp], len(page.Items))}
	for i := range page.Items {
		w.before[page.Items[i].WorkerID] = page.Items[i].LastBusyTime
	}
	return w, nil
}

// await waits, once the queue is closed, until every busy worker has reported and knows that the queue is closed. It
// gives up after the timeout, or when ctx ends.
func (w *servedWorkers) await(ctx context.Context, timeout time.Duration) error {
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.awaitReports(ctx)
	if err == nil {
		err = w.awaitLastRequests(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("wait for the workers: %w", err)
	}
	return nil
}

// noEvent is an id that no event has: a stream that resumes after it begins with a
// reset.
const noEvent = "none"

// awaitReports returns when no worker is busy.
func (w *servedWorkers) awaitReports(ctx context.Context) error {
	for event, err := range changes.Follow(ctx, w.store, agl.EventsParams{Since: noEvent}) {
		if err != nil {
			return err
		}
		if event.Kind != agl.EventReset && event.Kind != agl.EventWorker {
			continue
		}
		busy, err := w.withStatus(ctx, agl.WorkerBusy)
		if len(busy) == 0 || err != nil {
			return err
		}
	}
	return nil
}

const (
	// lastRequestTimeout is how long a worker that has reported may take to ask for more work, and so to learn that
	// the queue is closed. A worker that has done all that it wants never asks.
	lastRequestTimeout = time.Second
	// lastRequestPoll is how often this is checked: a request causes no event.
	lastRequestPoll = 20 * time.Millisecond
)

// awaitLastRequests returns when every worker that has just reported has asked for more work. A worker that asked
// before has been answered already: its request was blocked when the queue was closed.
func (w *servedWorkers) awaitLastRequests(ctx context.Context) error {
	for {
		idle, err := w.withStatus(ctx, agl.WorkerIdle)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(idle, func(w agl.Worker) bool {
			return w.LastIdleTime.V > w.LastDequeueTime.V && time.Since(w.LastIdleTime.V.Time()) < lastRequestTimeout
		}) {
			return nil
		}
		if err := backoff.Sleep(ctx, lastRequestPoll); err != nil {
			return err
		}
	}
}

// withStatus returns the workers with a status that have begun to work since this run opened the queue.
func (w *servedWorkers) withStatus(ctx context.Context, status agl.WorkerStatus) ([]agl.Worker, error) {
	page, err := w.store.QueryWorkers(ctx, agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{status}})
	return slices.DeleteFunc(page.Items, func(worker agl.Worker) bool {
		return worker.LastBusyTime == w.before[worker.WorkerID]
	}), err
}
