package grpo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/background"
)

// collect waits for the next part of the groups of a step. They stay in the accounts until trained.
func (p *pump) collect(ctx context.Context, step int) (stepBatch, error) {
	start := time.Now()
	p.mu.Lock()
	p.admits, p.resources = true, p.collector.session.ResourcesID
	p.mu.Unlock()
	background.Wake(p.wake)
	if p.taken == nil {
		p.began, p.shown = start, 0
	}
	var b stepBatch
	for b.groups == nil {
		ready, err := p.take(&b)
		if err != nil {
			return stepBatch{}, err
		}
		for ; p.shown < ready; p.shown++ {
			p.cfg.Progress.OnRollouts(algorithm.PhaseTrain, step, (p.shown+1)*p.cfg.GroupSize, p.cfg.PromptsPerStep*p.cfg.GroupSize)
		}
		if b.groups != nil {
			break
		}
		select {
		case <-ctx.Done():
			return stepBatch{}, fmt.Errorf("wait for rollouts: %w", ctx.Err())
		case <-p.arrived:
		}
	}
	b.waited = time.Since(start)
	p.taken = append(p.taken, b.groups...)
	if !b.last {
		return b, nil
	}
	all := slices.Concat(p.taken...)
	p.taken = nil
	if b.sampled == 0 {
		b.sampled = time.Since(p.began)
	}
	for k, role := range p.collector.roles {
		samples := all.of(k)
		var coverage []algorithm.Coverage
		for _, s := range samples {
			coverage = append(coverage, s.coverage)
		}
		if err := cmp.Or(checkPolicy(samples), checkReward(role, samples), algorithm.CheckCoverage(ctx, "step", coverage, p.cfg.Logger)); err != nil {
			return stepBatch{}, role.failed(err)
		}
	}
	return b, nil
}

// take fills in the next part of the batch if it is ready, and returns how many groups of the step are.
func (p *pump) take(b *stepBatch) (ready int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	list := p.accounts.Take(p.cfg.PromptsPerStep / p.cfg.parts())
	ready = min(len(p.accounts.State().Ready), p.cfg.PromptsPerStep)
	if list == nil {
		return ready, nil
	}
	for _, g := range list {
		b.groups = append(b.groups, p.live[g.ID].samples)
	}
	if b.last = len(p.taken)+len(list) == p.cfg.PromptsPerStep; !b.last {
		return ready, nil
	}
	b.dropped, b.unused, b.stopped = p.dropped, p.unused, p.stopped
	p.dropped, p.unused, p.stopped, p.refilled = map[admission.Reason]int{}, 0, 0, 0
	p.admits = p.cfg.Async.MaxStaleness > 0
	if p.admits {
		b.sampled = time.Since(p.lastBatch)
	}
	p.lastBatch = time.Now()
	return ready, nil
}

// trained ends the step of the groups that collect returned: more may start, with the newest weights.
func (p *pump) trained(ctx context.Context) {
	p.mu.Lock()
	for _, g := range p.accounts.Batch() {
		delete(p.live, g.ID)
	}
	var ids, stale []string
	for _, g := range p.accounts.Trained() {
		late := p.live[g.ID]
		stale = append(stale, late.ids...)
		if late.samples == nil {
			ids = append(ids, late.ids...)
		} else {
			p.unused += tokensOf(late.samples)
		}
		p.drop(g.ID, admission.Stale)
	}
	p.resources = p.collector.session.ResourcesID
	p.mu.Unlock()
	if err := algorithm.Cancel(ctx, p.store, ids); err != nil {
		p.cfg.Logger.WarnContext(ctx, "cancel stale rollouts", "error", err)
	}
	p.collector.note(ctx, stale, admission.Stale)
	background.Wake(p.wake)
}
