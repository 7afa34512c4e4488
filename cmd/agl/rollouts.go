package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

type rolloutsCommand struct {
	storeFlags
	Status []rolloutStatus `placeholder:"STATUS" help:"Only rollouts of this status; repeat it or separate several by commas: ${rolloutStatuses}."`
	Limit  int             `default:"100" help:"List at most so many, the newest first; 0 is all."`
	Watch  bool            `short:"w" help:"Go on and print a line for every change, until interrupted."`
	JSON   bool            `help:"Print JSON, one rollout a line, instead of a table."`
}

// Help is shown below the flags.
func (rolloutsCommand) Help() string {
	return "Examples:\n  agl rollouts --status failed --json\n  agl rollouts --watch"
}

// Validate is called by kong.
func (c *rolloutsCommand) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit=%d: must be 0 (all) or more", c.Limit)
	}
	return nil
}

// rolloutStatus is a status on the command line.
type rolloutStatus agl.RolloutStatus

// UnmarshalText reads a status.
func (s *rolloutStatus) UnmarshalText(text []byte) error {
	status := agl.RolloutStatus(text)
	if !status.Valid() {
		return fmt.Errorf("got %q, must be one of %s", text, statusList())
	}
	*s = rolloutStatus(status)
	return nil
}

func statusList() string {
	var names []string
	for _, s := range agl.RolloutStatuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// statuses is nil when every status is meant.
func (c *rolloutsCommand) statuses() []agl.RolloutStatus {
	var list []agl.RolloutStatus
	for _, s := range c.Status {
		list = append(list, agl.RolloutStatus(s))
	}
	return list
}

func (c *rolloutsCommand) run(ctx context.Context, m *Main) error {
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

func (c *rolloutsCommand) list(ctx context.Context, m *Main, store agl.Store) error {
	var rows [][]string
	err := allPages(ctx, c.Limit, func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		p.SortBy, p.Order = "start_time", agl.Descending
		return store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: c.statuses(), Paging: p})
	}, func(r *agl.AttemptedRollout) error {
		if c.JSON {
			return m.printJSON(r.AppendJSON(nil))
		}
		rows = append(rows, row(r))
		return nil
	})
	if err != nil {
		return c.errStore(err)
	}
	if c.JSON {
		return nil
	}
	listing := grid{headers: headers(), status: 1, rows: rows}
	return listing.print(m)
}

func headers() []string {
	return []string{"ROLLOUT", "STATUS", "MODE", "ATTEMPT", "WORKER", "RESOURCES", "STARTED", "TOOK", "INPUT"}
}

// row shows a rollout; a dash is a value that is not there.
func row(r *agl.AttemptedRollout) []string {
	attempt, worker := "-", "-"
	if r.Attempt != nil {
		attempt, worker = fmt.Sprintf("%d %s", r.Attempt.SequenceID, r.Attempt.Status), orDash(r.Attempt.WorkerID.V)
	}
	took := "-"
	if r.EndTime.Valid {
		took = lifetime(r.StartTime, r.EndTime)
	}
	return []string{
		r.RolloutID, string(r.Status), orDash(string(r.Mode)), attempt, worker, orDash(r.ResourcesID.V),
		r.StartTime.Time().Local().Format(time.DateTime), took, shorten(inputText(r)),
	}
}

// inputText is a rollout's input without the keys in it.
func inputText(r *agl.AttemptedRollout) string {
	input, err := redactJSON(r.Input)
	if err != nil {
		return redacted // what cannot be read may hold anything
	}
	return printable(string(input))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// shorten cuts an input to what fits into a table.
func shorten(s string) string {
	const most = 48
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}

// watch lists what there is and then prints every change.
func (c *rolloutsCommand) watch(ctx context.Context, m *Main, store agl.Store) error {
	return c.follow(ctx, store, func(ctx context.Context) error { return c.list(ctx, m, store) }, func(ctx context.Context, event agl.Event) error {
		return c.changed(ctx, m, store, event)
	})
}

// deleted is the status in the event of a rollout that is gone.
const deleted = "deleted"

func (c *rolloutsCommand) changed(ctx context.Context, m *Main, store agl.Store, event agl.Event) error {
	wanted := c.statuses()
	if event.Kind != agl.EventRollout || wanted != nil && !slices.Contains(wanted, agl.RolloutStatus(event.Status)) {
		return nil
	}
	r, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: event.RolloutID})
	if event.Status == deleted || errors.Is(err, agl.ErrNotFound) {
		if !c.JSON {
			return m.printf("%s  %s\n", event.RolloutID, deleted)
		}
		return m.printf("%s\n", event.AppendJSON(nil))
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return m.printJSON(r.AppendJSON(nil))
	}
	// The event's status, not the present one: a change is not to be missed.
	r.Status = agl.RolloutStatus(event.Status)
	return m.printf("%s\n", strings.Join(row(&r), "  "))
}
