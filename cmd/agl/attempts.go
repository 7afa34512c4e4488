package main

import (
	"context"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/trainer"
)

type attemptsCommand struct {
	rolloutArg
	flags.StoreOrRun `set:"order= It may come first."`

	JSON bool `help:"Print JSON, one attempt a line, instead of a table."`
}

// Validate puts the arguments in order.
func (c *attemptsCommand) Validate() error { return c.Order(&c.Rollout, "latest", "rollout") }

func (c *attemptsCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	// The query returns no attempts for an unknown rollout, as for one in the queue.
	rollout, err := findRollout(ctx, store, c.Rollout)
	if err != nil {
		return c.Wrap(err)
	}
	return (&listing[agl.Attempt, *agl.Attempt]{
		flags:   listFlags{StoreOrRun: c.StoreOrRun, JSON: c.JSON},
		headers: []string{"ATTEMPT", "ID", "STATUS", "OUTCOME", "WORKER", "STARTED", "TOOK", "HEARTBEAT", "MESSAGE"},
		status:  2,
		drop:    []string{"HEARTBEAT", "STARTED", "WORKER", "TOOK"},
		row:     plainRow(attemptRow),
		query: func(ctx context.Context, p agl.Paging) (agl.Page[agl.Attempt], error) {
			return store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: rollout.RolloutID, Paging: p})
		},
	}).show(ctx, out)
}

func attemptRow(a *agl.Attempt) []string {
	kind, message := "-", "-"
	// An attempt that reported no outcome has only its status.
	if outcome, ok := a.Outcome(); ok {
		kind, message = console.Dash(string(outcome.Kind)), console.Shorten(console.Dash(trainer.ReasonLine(outcome.Message)))
	}
	return []string{
		strconv.Itoa(a.SequenceID), a.AttemptID, string(a.Status), kind, console.Dash(a.WorkerID.V),
		console.Time(agl.Some(a.StartTime)), console.Took(agl.Some(a.StartTime), a.EndTime, "-"), console.Time(a.LastHeartbeatTime), message,
	}
}
