package main

import (
	"context"
	"strconv"
	"time"

	"github.com/agl-go/agl"
)

type attemptsCommand struct {
	storeFlags
	Rollout string `arg:"" help:"Id of the rollout."`
	JSON    bool   `help:"Print JSON, one attempt a line, instead of a table."`
}

// Help is shown below the flags.
func (attemptsCommand) Help() string {
	return "Attempts are listed in their order, each with the outcome that its runner reported.\n\nExample:\n  agl attempts ro-b66f639043f4 --json"
}

func (c *attemptsCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	// The attempts of a rollout that is not there are none.
	if _, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: c.Rollout}); err != nil {
		return c.errStore(err)
	}
	listing := grid{headers: []string{"ATTEMPT", "ID", "STATUS", "OUTCOME", "WORKER", "STARTED", "TOOK", "HEARTBEAT", "MESSAGE"}, status: 2}
	err = allPages(ctx, 0, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Attempt], error) {
		return store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: c.Rollout, Paging: p})
	}, func(a *agl.Attempt) error {
		if c.JSON {
			return m.printJSON(a.AppendJSON(nil))
		}
		listing.rows = append(listing.rows, attemptRow(a))
		return nil
	})
	if err != nil || c.JSON {
		return c.errStore(err)
	}
	return listing.print(m)
}

func attemptRow(a *agl.Attempt) []string {
	took, kind, message := "-", "-", "-"
	if a.EndTime.Valid {
		took = lifetime(a.StartTime, a.EndTime)
	}
	// Of an attempt that reported nothing the status says it all.
	if outcome, ok := a.Outcome(); ok {
		kind, message = orDash(string(outcome.Kind)), shorten(orDash(outcome.Message))
	}
	return []string{
		strconv.Itoa(a.SequenceID), a.AttemptID, string(a.Status), kind, orDash(a.WorkerID.V),
		a.StartTime.Time().Local().Format(time.DateTime), took, clock(a.LastHeartbeatTime), message,
	}
}

// clock writes a point in time that may not be there.
func clock(t agl.Null[agl.Timestamp]) string {
	if !t.Valid {
		return "-"
	}
	return t.V.Time().Local().Format(time.DateTime)
}
