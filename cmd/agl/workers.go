package main

import (
	"context"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
)

type workersCommand struct {
	Status    []agl.WorkerStatus `enum:"${workerStatuses}" placeholder:"STATUS" help:"Only workers of this status; repeat it or separate several by commas: ${enum}."`
	Contains  string             `placeholder:"TEXT" help:"Only workers with this in their id."`
	Any       bool               `help:"List workers that pass any of these filters instead of all."`
	listFlags `set:"limit=100"`

	Watch bool `short:"w" help:"Then print a line for every change, until interrupted."`
}

func (c *workersCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	return c.listing(store).run(ctx, out, store, c.Watch)
}

func (c *workersCommand) listing(store agl.Store) *listing[agl.Worker, *agl.Worker] {
	return &listing[agl.Worker, *agl.Worker]{
		flags:   c.listFlags,
		headers: []string{"WORKER", "STATUS", "HEARTBEAT", "DEQUEUED", "ROLLOUT", "ATTEMPT"},
		status:  1,
		drop:    []string{"DEQUEUED", "HEARTBEAT", "ROLLOUT"},
		row: plainRow(func(w *agl.Worker) []string {
			return []string{
				console.Dash(w.WorkerID), string(w.Status), console.Time(w.LastHeartbeatTime), console.Time(w.LastDequeueTime),
				console.Dash(w.CurrentRolloutID.V), console.Dash(w.CurrentAttemptID.V),
			}
		}),
		query: func(ctx context.Context, p agl.Paging) (agl.Page[agl.Worker], error) {
			p.SortBy, p.Order = "last_heartbeat_time", agl.Descending
			query := agl.QueryWorkersParams{StatusIn: c.Status, WorkerIDContains: c.Contains, Paging: p}
			if c.Any {
				query.Logic = agl.FilterOr
			}
			return store.QueryWorkers(ctx, query)
		},
		wanted: c.wanted,
		get: func(ctx context.Context, event agl.Event) (agl.Worker, error) {
			return store.GetWorker(ctx, agl.GetWorkerParams{WorkerID: event.WorkerID})
		},
	}
}

// wanted reports whether the worker of an event passes the filters, as the store applies them.
func (c *workersCommand) wanted(event agl.Event) bool {
	byStatus := slices.Contains(c.Status, agl.WorkerStatus(event.Status))
	byID := strings.Contains(event.WorkerID, c.Contains)
	switch {
	case event.Kind != agl.EventWorker:
		return false
	case len(c.Status) == 0:
		return byID
	case c.Contains == "":
		return byStatus
	case c.Any:
		return byStatus || byID
	default:
		return byStatus && byID
	}
}
