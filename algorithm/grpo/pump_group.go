package grpo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
)

// await waits for the rollouts of a group and reads them. Those that are not done within the group's time are cancelled, and so are
// those without which the group is complete. A group that is too hard gets more.
func (p *pump) await(ctx context.Context, g *liveGroup) {
	limited, done := ctx, func() {}
	if p.cfg.Async.GroupTimeout > 0 {
		limited, done = context.WithTimeout(ctx, p.cfg.Async.GroupTimeout)
	}
	defer done()
	var samples, stopped taskGroup
	var ids, spare []string
	for waiting := g.ids; len(waiting) > 0; {
		late, err := p.deadline(ctx, limited, waiting)
		var episodes []algorithm.Episode
		if err == nil {
			episodes, err = algorithm.Await(ctx, p.store, p.flusher, algorithm.ReadFor(p.cfg.Adapter), waiting)
		}
		if err != nil {
			p.fail(err)
			return
		}
		for i := range episodes {
			one := p.collector.read(ctx, g.task.Input, &episodes[i])
			if slices.Contains(late, waiting[i]) && one.mask == algorithm.Mask(agl.OutcomeCancelled) {
				stopped, spare = append(stopped, one), append(spare, one.id)
				continue
			}
			samples, ids = append(samples, one), append(ids, one.id)
		}
		waiting = nil
		if limited.Err() == nil && p.hard(g, samples) {
			if waiting, err = p.grow(ctx, g, len(samples)); err != nil {
				p.fail(err)
				return
			}
		}
	}
	p.mu.Lock()
	g.ids = ids
	p.stopped += len(stopped)
	p.unused += tokensOf(stopped)
	p.mu.Unlock()
	if err := p.rest(ctx, samples); err != nil {
		p.fail(err)
		return
	}
	reason := p.finish(g, samples)
	left := passedOver{oversampled: spare}
	for _, s := range samples {
		switch {
		case reason == admission.Stale: // trained says so
		case reason != "":
			left.add(reason, s.id)
		case s.mask != "":
			left.add(admission.Reason(s.mask), s.id)
		case s.truncated && p.cfg.MaskTruncated:
			left.add(truncated, s.id)
		}
	}
	p.collector.noteAll(ctx, left)
}

// rewardsOf are the rewards that count.
func rewardsOf(samples taskGroup) (rewards []float64) {
	for _, s := range samples {
		if s.mask == "" {
			rewards = append(rewards, s.reward)
		}
	}
	return rewards
}

// hard reports whether a group needs more rollouts to have an advantage: all that count have the same reward, which does not pass.
func (p *pump) hard(g *liveGroup, samples taskGroup) bool {
	rewards := rewardsOf(samples)
	return !g.over && len(samples) < p.cfg.MaxGroupSize && len(rewards) > 0 && rewards[0] < p.cfg.PassReward && !p.varies(samples)
}

// grow enqueues as many rollouts again as a group has, up to MaxGroupSize, and returns them. A group that was dropped gets none.
func (p *pump) grow(ctx context.Context, g *liveGroup, size int) ([]string, error) {
	p.mu.Lock()
	live, resources := p.live[g.ID] == g, p.resources
	if p.cfg.Async.Pin == PinRollout {
		resources = g.pinned
	}
	p.mu.Unlock()
	if !live {
		return nil, nil
	}
	rollouts, err := p.collector.rollouts(g.Group, g.task, resources, size, min(2*size, p.cfg.MaxGroupSize))
	if err != nil {
		return nil, err
	}
	queued, err := p.store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: rollouts})
	if err != nil {
		return nil, fmt.Errorf("enqueue rollouts: %w", err)
	}
	ids := idsOf(queued)
	p.mu.Lock()
	defer p.mu.Unlock()
	g.ids = slices.Concat(g.ids, ids)
	return ids, nil
}

// deadline waits until the rollouts complete their group, or until the group's time is over and limited ends. It cancels the unfinished
// rollouts, and returns those that it cancelled because the group was complete without them.
func (p *pump) deadline(ctx, limited context.Context, ids []string) (spare []string, err error) {
	if p.cfg.Async.GroupTimeout == 0 && p.cfg.Async.Oversample == 0 {
		return nil, nil
	}
	if p.cfg.Async.Oversample > 0 {
		spare, err = p.enough(limited, ids)
	} else {
		_, err = p.store.WaitForRollouts(limited, agl.WaitForRolloutsParams{RolloutIDs: ids})
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, algorithm.Cancel(ctx, p.store, ids)
	case err != nil:
		return nil, fmt.Errorf("wait for rollouts: %w", err)
	}
	return spare, algorithm.Cancel(ctx, p.store, spare)
}

// enough waits until GroupSize rollouts that count have finished, or all have, and returns the unfinished ones.
func (p *pump) enough(ctx context.Context, ids []string) (unfinished []string, err error) {
	type end struct {
		id     string
		counts bool
		err    error
	}
	ends := make(chan end, len(ids)) // never blocks a sender
	ctx, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	defer waits.Wait()
	defer stop()
	for _, id := range ids {
		waits.Go(func() {
			counts, err := p.counts(ctx, id)
			ends <- end{id, counts, err}
		})
	}
	unfinished = slices.Clone(ids)
	for counting := 0; counting < p.cfg.GroupSize && len(unfinished) > 0; {
		e := <-ends
		if e.err != nil {
			return nil, e.err
		}
		unfinished = slices.DeleteFunc(unfinished, func(id string) bool { return id == e.id })
		if e.counts {
			counting++
		}
	}
	return unfinished, nil
}

// counts waits for a rollout, and reports whether it may count: the infrastructure has not failed it.
func (p *pump) counts(ctx context.Context, id string) (bool, error) {
	if _, err := p.store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}}); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	r, err := p.store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})
	if errors.Is(err, agl.ErrNotFound) { // deleted
		return false, nil
	}
	if err != nil {
		return false, err
	}
	episode := algorithm.NewEpisode(r)
	return episode.Failure() == "", nil
}

// rest waits before a group gives its place to the next one, if it fails and the groups of a step have failed before it: an engine that
// is away for seconds must not fail those of maxFailures steps.
func (p *pump) rest(ctx context.Context, samples taskGroup) error {
	p.mu.Lock()
	rests := p.fails(samples) && p.failedInRow >= p.cfg.PromptsPerStep
	p.mu.Unlock()
	if !rests {
		return nil
	}
	return backoff.Sleep(ctx, failurePause)
}

// finish makes a group ready, or drops it for the reason that it returns. A group that was dropped meanwhile is stale.
func (p *pump) finish(g *liveGroup, samples taskGroup) (reason admission.Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer background.Wake(p.arrived)
	defer background.Wake(p.wake)
	if p.live[g.ID] != g { // dropped by trained
		p.unused += tokensOf(samples)
		return admission.Stale
	}
	if !g.over { // the source heard of it before the run was resumed
		p.heard = append(p.heard, heard{g.ID, g.task, rewardsOf(samples)})
	}
	reason = p.verdict(samples)
	if p.fails(samples) {
		if p.failedInRow++; p.failedInRow >= maxFailures*p.cfg.PromptsPerStep && p.err == nil {
			var r StepReport
			countSamples([]taskGroup{samples}, p.cfg.PassReward, &r)
			what := fmt.Sprintf("no rollout of the last %d groups counts", p.failedInRow)
			if reason == admission.Failed {
				what = fmt.Sprintf("the last %d groups have fewer than min_viable (%d) rollouts that count", p.failedInRow, p.cfg.Async.MinViable)
			}
			p.err = agl.Errorf(agl.CodeIllegalState, "%s; of the last one are masked: %s", what, algorithm.DescribeMasked(r.Masked))
		}
	} else {
		p.failedInRow = 0
	}
	if reason == "" {
		g.samples = samples
		p.accounts.Done(g.ID)
		return ""
	}
	p.drop(g.ID, reason)
	p.accounts.Drop(g.ID, reason)
	p.unused += tokensOf(samples)
	if reason == admission.NoVariance {
		p.refilled++
	}
	return reason
}

// verdict returns why a complete group is not trained on; empty if it is. The lock is held.
func (p *pump) verdict(samples taskGroup) admission.Reason {
	if slices.Min(p.viable(samples)) < p.cfg.Async.MinViable {
		return admission.Failed
	}
	if p.cfg.DynamicSampling && !p.varies(samples) && p.refilled < maxRefills*p.cfg.PromptsPerStep {
		return admission.NoVariance
	}
	return ""
}

// fails reports whether a group fails: too few of its rollouts count, or none.
func (p *pump) fails(samples taskGroup) bool {
	counts := p.viable(samples)
	return slices.Min(counts) < p.cfg.Async.MinViable || slices.Max(counts) == 0
}

// viable returns how many rollouts of a group count for each role.
func (p *pump) viable(samples taskGroup) []int {
	counts := make([]int, len(p.collector.roles))
	for k := range counts {
		counts[k] = len(counting(samples.of(k)))
	}
	return counts
}

// varies reports whether a group has an advantage for any role.
func (p *pump) varies(samples taskGroup) bool {
	for k := range p.collector.roles {
		if _, ok := credit(p.cfg.Credit, p.cfg.Baseline, p.cfg.PlainAdvantage, counting(samples.of(k))); ok {
			return true
		}
	}
	return false
}

// drop forgets a group that the accounts drop. The lock is held.
func (p *pump) drop(id int, reason admission.Reason) {
	delete(p.live, id)
	p.dropped[reason]++
}

func tokensOf(g taskGroup) int {
	n := 0
	for _, s := range g {
		n += s.sampled() + s.lostTokens + tokensOf(s.peers)
	}
	return n
}
