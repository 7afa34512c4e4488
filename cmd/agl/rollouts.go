package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store/driver"
)

type rolloutsCommand struct {
	Status      []agl.RolloutStatus `enum:"${rolloutStatuses}" placeholder:"STATUS" help:"Only rollouts of this status; repeat it or separate several by commas: ${enum}."`
	Label       []agl.Label         `sep:"none" placeholder:"NAME=VALUE" help:"Only rollouts with this member in their metadata, such as run=ru-0123456789ab or step=3. If repeated, all must match."`
	RewardBelow *float64            `placeholder:"REWARD" help:"Only rollouts with a reward below this one."`
	Sort        string              `enum:"started,reward,tokens,took" default:"started" help:"What comes first: started, the newest; reward, the lowest; tokens, the most; took, the longest. Default: ${default}."`
	listFlags   `set:"limit=100"`

	Watch bool `short:"w" help:"Then print a line for every change, until interrupted."`
}

func (c *rolloutsCommand) Validate() error {
	switch {
	case c.Watch && (c.RewardBelow != nil || c.Sort != "started"):
		return errors.New("--watch prints changes as they happen; give neither --sort nor --reward-below")
	case c.RewardBelow != nil && (math.IsNaN(*c.RewardBelow) || math.IsInf(*c.RewardBelow, 0)):
		return fmt.Errorf("--reward-below=%g: must be a finite number", *c.RewardBelow)
	}
	return c.listFlags.Validate()
}

func (c *rolloutsCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	return c.listing(store).run(ctx, out, store, c.Watch)
}

func (c *rolloutsCommand) listing(store agl.Store) *listing[agl.AttemptedRollout, *agl.AttemptedRollout] {
	query := func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		p.SortBy, p.Order = "start_time", agl.Descending
		if c.Sort == "reward" {
			p.SortBy, p.Order = "reward", agl.Ascending
		}
		query := agl.QueryRolloutsParams{StatusIn: c.Status, Labels: c.Label, Paging: p}
		if c.RewardBelow != nil {
			query.RewardMax = agl.Some(math.Nextafter(*c.RewardBelow, math.Inf(-1)))
		}
		return store.QueryRollouts(ctx, query)
	}
	l := &listing[agl.AttemptedRollout, *agl.AttemptedRollout]{
		flags:   c.listFlags,
		headers: []string{"ROLLOUT", "STATUS", "MODE", "REWARD", "TOKENS", "ATTEMPT", "WORKER", "RESOURCES", "STARTED", "TOOK", "ERROR", "INPUT"},
		drop:    []string{"RESOURCES", "WORKER", "MODE", "STARTED", "ATTEMPT", "TOOK", "TOKENS", "ERROR"},
		status:  1,
		row: func(ctx context.Context, r *agl.AttemptedRollout) ([]string, error) {
			facts, err := factsOf(ctx, store, r)
			return rolloutRow(r, facts), err
		},
		query: query,
		wanted: func(event agl.Event) bool {
			return event.Kind == agl.EventRollout && (len(c.Status) == 0 || slices.Contains(c.Status, agl.RolloutStatus(event.Status)))
		},
		get: func(ctx context.Context, event agl.Event) (agl.AttemptedRollout, error) {
			r, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: event.RolloutID})
			labels := driver.LabelsOf(r.Metadata) // a rollout that is gone has none
			if (err == nil || errors.Is(err, agl.ErrNotFound)) && slices.ContainsFunc(c.Label, func(l agl.Label) bool { return !labels.Has(l) }) {
				return r, errNotSelected
			}
			return r, err
		},
	}
	if c.Sort == "tokens" || c.Sort == "took" {
		l.query = c.sorted(store, query)
	}
	return l
}

// sorted reads all rollouts at the first query, and pages through them in an order that the store does not know.
func (c *rolloutsCommand) sorted(
	store agl.Store, query func(context.Context, agl.Paging) (agl.Page[agl.AttemptedRollout], error),
) func(context.Context, agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
	type measured struct {
		rollout agl.AttemptedRollout
		facts   rolloutFacts
	}
	var all []measured
	read := func(ctx context.Context) error {
		for r, err := range agl.Pages(ctx, agl.Paging{}, pageSize, query) {
			if err != nil {
				return err
			}
			facts, err := factsOf(ctx, store, r)
			if err != nil {
				return err
			}
			all = append(all, measured{*r, facts})
		}
		took := func(r *agl.AttemptedRollout) agl.Timestamp {
			if !r.EndTime.Valid {
				return 0
			}
			return r.EndTime.V - r.StartTime
		}
		slices.SortStableFunc(all, func(a, b measured) int {
			if c.Sort == "tokens" {
				return cmp.Compare(b.facts.prompt+b.facts.completion, a.facts.prompt+a.facts.completion)
			}
			return cmp.Compare(took(&b.rollout), took(&a.rollout))
		})
		return nil
	}
	done := false
	return func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		if !done {
			if err := read(ctx); err != nil {
				return agl.Page[agl.AttemptedRollout]{}, err
			}
			done = true
		}
		page := agl.Page[agl.AttemptedRollout]{Total: len(all)}
		for _, m := range all[min(p.Offset, len(all)):min(p.Offset+p.Limit, len(all))] {
			page.Items = append(page.Items, m.rollout)
		}
		return page, nil
	}
}

func rolloutRow(r *agl.AttemptedRollout, facts rolloutFacts) []string {
	attempt, worker := "-", "-"
	if r.Attempt != nil {
		attempt, worker = fmt.Sprintf("%d %s", r.Attempt.SequenceID, r.Attempt.Status), console.Dash(r.Attempt.WorkerID.V)
	}
	return []string{
		console.Dash(r.RolloutID), string(r.Status), console.Dash(string(r.Mode)), console.Dash(facts.rewardText()), console.Dash(facts.tokens()),
		attempt, worker, console.Dash(r.ResourcesID.V), console.Time(agl.Some(r.StartTime)),
		console.Took(agl.Some(r.StartTime), r.EndTime, "-"), console.Shorten(console.Dash(facts.failure)), console.Shorten(inputText(r)),
	}
}
