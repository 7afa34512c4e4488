package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
)

type rolloutsCommand struct {
	Status    []agl.RolloutStatus `enum:"${rolloutStatuses}" placeholder:"STATUS" help:"Only rollouts of this status; repeat it or separate several by commas: ${enum}."`
	listFlags `set:"limit=100"`

	Watch bool `short:"w" help:"Then print a line for every change, until interrupted."`
}

func (rolloutsCommand) Help() string {
	return "The newest rollouts come first.\n\nExamples:\n  agl rollouts --status failed --json\n  agl rollouts --watch"
}

func (c *rolloutsCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	return c.listing(store).run(ctx, out, store, c.Watch)
}

func (c *rolloutsCommand) listing(store agl.Store) *listing[agl.AttemptedRollout, *agl.AttemptedRollout] {
	return &listing[agl.AttemptedRollout, *agl.AttemptedRollout]{
		flags:   c.listFlags,
		headers: []string{"ROLLOUT", "STATUS", "MODE", "ATTEMPT", "WORKER", "RESOURCES", "STARTED", "TOOK", "INPUT"},
		status:  1,
		row:     rolloutRow,
		query: func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
			p.SortBy, p.Order = "start_time", agl.Descending
			return store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: c.Status, Paging: p})
		},
		wanted: func(event agl.Event) bool {
			return event.Kind == agl.EventRollout && (len(c.Status) == 0 || slices.Contains(c.Status, agl.RolloutStatus(event.Status)))
		},
		get: func(ctx context.Context, event agl.Event) (agl.AttemptedRollout, error) {
			return store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: event.RolloutID})
		},
	}
}

func rolloutRow(r *agl.AttemptedRollout) []string {
	attempt, worker := "-", "-"
	if r.Attempt != nil {
		attempt, worker = fmt.Sprintf("%d %s", r.Attempt.SequenceID, r.Attempt.Status), console.Dash(r.Attempt.WorkerID.V)
	}
	return []string{
		r.RolloutID, string(r.Status), console.Dash(string(r.Mode)), attempt, worker, console.Dash(r.ResourcesID.V),
		console.Time(agl.Some(r.StartTime)), console.Took(agl.Some(r.StartTime), r.EndTime, "-"), console.Shorten(inputText(r)),
	}
}

// inputText is a rollout's input without the keys in it.
func inputText(r *agl.AttemptedRollout) string {
	input, err := console.RedactJSON(r.Input)
	if err != nil {
		return console.Redacted // it may contain a key
	}
	return console.Printable(string(input))
}
