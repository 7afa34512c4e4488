package grpo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// replayed is a rollout that may be learned from again.
type replayed struct {
	ID         string       `json:"id"`
	Generation int          `json:"generation"` // of the weights that learned from it first
	Uses       int          `json:"uses"`       // further ones
	Expected   *expectation `json:"expected"`
}

// remember adds the rollouts of a batch that count to those that can be replayed.
func (l *liveFeeder) remember(groups []taskGroup) {
	if l.cfg.Live.Replay.Times == 0 {
		return
	}
	for _, g := range groups {
		if s := g[0]; len(g) == 1 && s.mask == "" && s.expected != nil && !s.grouped {
			l.next.Replay = append(l.next.Replay, replayed{ID: s.id, Generation: l.collector.session.Generation(), Expected: s.expected})
		}
	}
}

// replay adds rollouts of earlier steps to a batch. users counts those of each user in the step.
func (l *liveFeeder) replay(ctx context.Context, b *stepBatch, users map[string]int) error {
	settings := l.cfg.Live
	newest := l.collector.session.Generation()
	l.next.Replay = slices.DeleteFunc(l.next.Replay, func(r replayed) bool {
		return r.Uses >= settings.Replay.Times || newest-r.Generation > settings.MaxStaleness
	})
	gone := map[string]bool{}
	for i := len(l.next.Replay) - 1; i >= 0 && len(b.replayed) < settings.Replay.Rollouts; i-- {
		entry := &l.next.Replay[i]
		s, user, err := l.again(ctx, *entry)
		if err != nil {
			return fmt.Errorf("replay rollout %q: %w", entry.ID, err)
		}
		if s.mask != "" { // forgotten meanwhile, or too old by now
			gone[entry.ID] = true
			continue
		}
		if user != "" && settings.PerUser > 0 {
			if users[user] >= settings.PerUser {
				continue
			}
			users[user]++
		}
		entry.Uses++
		b.groups, b.replayed = append(b.groups, taskGroup{s}), append(b.replayed, s.id)
	}
	l.next.Replay = slices.DeleteFunc(l.next.Replay, func(r replayed) bool { return gone[r.ID] })
	return nil
}

// again reads a rollout that was learned from before. One that cannot be learned from any more has a mask.
func (l *liveFeeder) again(ctx context.Context, r replayed) (s sample, user string, err error) {
	store := l.collector.session.Store()
	rollout, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: r.ID})
	if errors.Is(err, agl.ErrNotFound) {
		return sample{mask: algorithm.MaskStale}, "", nil
	}
	if err != nil {
		return s, "", err
	}
	e, err := algorithm.ReadFor(l.cfg.Adapter)(ctx, store, rollout)
	if errors.Is(err, agl.ErrEvicted) {
		return sample{mask: algorithm.MaskStale}, "", nil
	}
	if err != nil {
		return s, "", err
	}
	s = l.collector.read(ctx, rollout.Input, &e)
	s.expected, s.again = r.Expected, true
	if s.mask == "" && l.age(s) > l.cfg.Live.MaxStaleness {
		s.mask = algorithm.MaskStale
	}
	return s, labelsOf(&rollout.Rollout).User, nil
}
