package apo

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// gathered is what a round learns from: an entry of the journal.
type gathered struct {
	Parent   string   `json:"parent"`
	Next     string   `json:"next"` // the collector's cursor after it
	Shown    []string `json:"shown"`
	Sessions int      `json:"sessions"`
	Mean     float64  `json:"mean"` // reward of the sessions
	Passed   int      `json:"passed,omitzero"`
	Crowded  int      `json:"crowded,omitzero"`
	Withheld int      `json:"withheld,omitzero"`
}

// ready is a session of the stable prompts that a round may learn from.
type ready struct {
	rollout agl.AttemptedRollout
	reward  float64
	allowed bool // Live.Allow has accepted it
}

// gather waits for the sessions of a round, after a cursor.
func (s *search) gather(ctx context.Context, since string) (*gathered, error) {
	l := s.cfg.Live
	g := &gathered{Next: since}
	var pool []ready // the newest last
	for {
		stable, err := s.tunable(ctx)
		if err != nil {
			return nil, err
		}
		if stable != g.Parent { // somebody has released other prompts, which these sessions did not use
			g.Parent, g.Passed, pool = stable, g.Passed+len(pool), nil
		}
		filter := l.Filter
		filter.ResourcesIDIn = []string{stable}
		var batch agl.Collection
		err = s.untilAvailable(ctx, func() (err error) {
			batch, err = s.in.Collector.Collect(ctx, agl.CollectParams{
				Since: g.Next, Min: min(livePage, max(1, l.Sessions-len(pool))), Max: livePage, MaxWait: liveWait, Filter: filter,
			})
			return err
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("wait for sessions: %w", err)
		}
		g.Next = batch.Next
		for _, r := range batch.Rollouts {
			if r.Reward.Valid && r.Rollout.Mode != agl.ModeVal { // validation tasks are not learned from
				pool = append(pool, ready{rollout: r.Rollout, reward: r.Reward.V})
			}
		}
		if over := len(pool) - liveSpare*l.Sessions; over > 0 {
			pool, g.Passed = slices.Clone(pool[over:]), g.Passed+over
		}
		if len(batch.Rollouts) == livePage || len(pool) < l.Sessions {
			continue
		}
		if pool, err = s.choose(ctx, pool, g); err != nil || len(pool) == l.Sessions {
			return g, err
		}
	}
}

// choose returns the newest sessions that may be learned from, at most Live.Sessions, the newest last. If there are that many, it
// completes the round in g.
func (s *search) choose(ctx context.Context, pool []ready, g *gathered) ([]ready, error) {
	l := s.cfg.Live
	var kept []ready
	users := map[string]int{}
	for i, r := range slices.Backward(pool) {
		if len(kept) == l.Sessions {
			g.Passed += i + 1
			break
		}
		user := userOf(&r.rollout.Rollout)
		if user != "" && l.PerUser > 0 && users[user] == l.PerUser {
			g.Crowded++
			continue
		}
		if !r.allowed && l.Allow != nil {
			ok, err := l.Allow(ctx, s.in.Store, r.rollout)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				s.cfg.Logger.WarnContext(ctx, "a session is not learned from, since it is not known whether it may be", "rollout_id", r.rollout.RolloutID, "error", err)
			}
			if !ok || err != nil {
				g.Withheld++
				continue
			}
		}
		r.allowed = true
		users[user]++
		kept = append(kept, r)
	}
	slices.Reverse(kept)
	if len(kept) < l.Sessions {
		return kept, nil
	}
	ranked := slices.Clone(kept)
	slices.SortStableFunc(ranked, func(a, b ready) int { return cmp.Compare(a.reward, b.reward) })
	for _, r := range ranked {
		g.Mean += r.reward / float64(len(ranked))
	}
	n := min(s.cfg.GradientBatch, len(ranked))
	for i := range n {
		g.Shown = append(g.Shown, ranked[i*(len(ranked)-1)/max(n-1, 1)].rollout.RolloutID)
	}
	g.Sessions = len(kept)
	return kept, nil
}

// userOf returns the user of a session; empty if its metadata names none.
func userOf(r *agl.Rollout) string {
	var labels struct {
		User string `json:"agl.user"`
	}
	_ = rawjson.Unmarshal(r.Metadata, &labels) // other metadata names no user
	return labels.User
}
