package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

type workersCommand struct {
	storeFlags
	Status   []workerStatus `placeholder:"STATUS" help:"Only workers of this status; repeat it or separate several by commas: ${workerStatuses}."`
	Contains string         `placeholder:"TEXT" help:"Only workers with this in their id."`
	Any      bool           `help:"List workers that pass any of these filters instead of all."`
	Limit    int            `default:"100" help:"List at most so many, the last heartbeat first; 0 is all."`
	Watch    bool           `short:"w" help:"Go on and print a line for every change, until interrupted."`
	JSON     bool           `help:"Print JSON, one worker a line, instead of a table."`
}

// Help is shown below the flags.
func (workersCommand) Help() string {
	return "Examples:\n  agl workers --status busy --json\n  agl workers --watch"
}

// Validate is called by kong.
func (c *workersCommand) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit=%d: must be 0 (all) or more", c.Limit)
	}
	return nil
}

// workerStatus is a worker's status on the command line.
type workerStatus agl.WorkerStatus

// UnmarshalText reads a status.
func (s *workerStatus) UnmarshalText(text []byte) error {
	if !slices.Contains(agl.WorkerStatuses(), agl.WorkerStatus(text)) {
		return fmt.Errorf("got %q, must be one of %s", text, workerStatusList())
	}
	*s = workerStatus(text)
	return nil
}

func workerStatusList() string {
	var names []string
	for _, s := range agl.WorkerStatuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func (c *workersCommand) query(p agl.Paging) agl.QueryWorkersParams {
	query := agl.QueryWorkersParams{WorkerIDContains: c.Contains, Paging: p}
	for _, s := range c.Status {
		query.StatusIn = append(query.StatusIn, agl.WorkerStatus(s))
	}
	if c.Any {
		query.Logic = agl.FilterOr
	}
	return query
}

func (c *workersCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	if !c.Watch {
		return c.list(ctx, m, store)
	}
	return c.watch(ctx, m, store)
}

func (c *workersCommand) list(ctx context.Context, m *Main, store agl.Store) error {
	listing := grid{headers: []string{"WORKER", "STATUS", "HEARTBEAT", "DEQUEUED", "ROLLOUT", "ATTEMPT"}, status: 1}
	err := allPages(ctx, c.Limit, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Worker], error) {
		p.SortBy, p.Order = "last_heartbeat_time", agl.Descending
		return store.QueryWorkers(ctx, c.query(p))
	}, func(w *agl.Worker) error {
		if c.JSON {
			return m.printJSON(w.AppendJSON(nil))
		}
		listing.rows = append(listing.rows, workerRow(w))
		return nil
	})
	if err != nil || c.JSON {
		return c.errStore(err)
	}
	return listing.print(m)
}

func workerRow(w *agl.Worker) []string {
	return []string{
		orDash(w.WorkerID), string(w.Status), clock(w.LastHeartbeatTime), clock(w.LastDequeueTime),
		orDash(w.CurrentRolloutID.V), orDash(w.CurrentAttemptID.V),
	}
}

// watch lists what there is and then prints every change.
func (c *workersCommand) watch(ctx context.Context, m *Main, store agl.Store) error {
	return c.follow(ctx, store, func(ctx context.Context) error { return c.list(ctx, m, store) }, func(ctx context.Context, event agl.Event) error {
		return c.changed(ctx, m, store, event)
	})
}

func (c *workersCommand) changed(ctx context.Context, m *Main, store agl.Store, event agl.Event) error {
	if event.Kind != agl.EventWorker || !c.wanted(event) {
		return nil
	}
	w, err := store.GetWorker(ctx, agl.GetWorkerParams{WorkerID: event.WorkerID})
	if err != nil {
		return err
	}
	if c.JSON {
		return m.printJSON(w.AppendJSON(nil))
	}
	// The event's status, not the present one: a change is not to be missed.
	w.Status = agl.WorkerStatus(event.Status)
	return m.printf("%s\n", strings.Join(workerRow(&w), "  "))
}

// wanted reports whether the worker of an event passes the filters, as the
// store applies them.
func (c *workersCommand) wanted(event agl.Event) bool {
	byStatus := slices.Contains(c.Status, workerStatus(event.Status))
	byID := strings.Contains(event.WorkerID, c.Contains)
	switch {
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
