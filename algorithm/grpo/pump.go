package grpo

import (
	"context"
	"fmt"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/panics"
)

// newPump opens the accounts; saved is nil without a checkpoint that has them.
func newPump(c collector, in agl.AlgorithmInput, saved *savedPump) (*pump, error) {
	cfg := c.cfg
	state := admission.Synchronous(c.session.Step, cfg.PromptsPerStep)
	if saved != nil {
		state = saved.Accounts
	}
	accounts, err := admission.New(admission.Config{
		Groups: cfg.PromptsPerStep, Steps: max(cfg.Steps, c.session.Step), MaxStaleness: cfg.Async.MaxStaleness,
		Concurrency: cfg.Async.Concurrency, OnStale: cfg.Async.OnStale,
	}, state)
	if err != nil {
		return nil, err
	}
	p := &pump{
		cfg: cfg, collector: c, store: in.Store, flusher: cfg.Flusher,
		wake: make(chan struct{}, 1), arrived: make(chan struct{}, 1), accounts: accounts, live: map[int]*liveGroup{}, dropped: map[admission.Reason]int{},
	}
	if saved == nil {
		return p, nil
	}
	p.versions = saved.Versions
	for version, generation := range saved.Versions {
		ownerOf(c.roles, version).calls.Published(version, generation)
	}
	for _, g := range saved.Groups {
		accounts.Reopen(g.ID)
		p.restored = append(p.restored, &liveGroup{Group: admission.Group{ID: g.ID}, task: Task{Input: g.Task, Index: g.Index}, ids: g.Rollouts, over: g.Rollouts != nil})
	}
	for i, g := range accounts.State().Open {
		if i >= len(p.restored) || p.restored[i].ID != g.ID {
			return nil, agl.Errorf(agl.CodeInvalid, "the accounts have the open group %d, which the checkpoint does not describe", g.ID)
		}
		p.restored[i].Group = g
		p.live[g.ID] = p.restored[i]
	}
	return p, nil
}

// start starts the pump. The caller closes it.
func (p *pump) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.lastBatch = time.Now()
	p.work(func() { p.run(ctx) })
}

// work runs f in a goroutine. A panic, such as one of an adapter, ends the run with an error.
func (p *pump) work(f func()) {
	p.workers.Go(func() {
		if err := panics.Catch(func() error { f(); return nil }); err != nil {
			p.fail(panics.Located(err))
		}
	})
}

// close cancels the rollouts that are still open and waits for all goroutines. On a nil pump, or one that was not started, it
// does nothing.
func (p *pump) close(ctx context.Context) {
	if p == nil || p.stop == nil {
		return
	}
	p.stop()
	p.workers.Wait()
	var ids []string
	for _, g := range p.live {
		if g.samples == nil {
			ids = append(ids, g.ids...)
		}
	}
	if err := algorithm.Cancel(ctx, p.store, ids); err != nil {
		p.cfg.Logger.WarnContext(ctx, "cancel outstanding rollouts", "error", err)
	}
}

// run starts groups whenever there is room, until ctx ends.
func (p *pump) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		if err := p.admit(ctx); err != nil {
			p.fail(err)
			return
		}
	}
}

// admit starts the groups of the checkpoint and those for which there is room.
func (p *pump) admit(ctx context.Context) error {
	p.mu.Lock()
	restored := p.restored
	p.restored = nil
	p.mu.Unlock()
	restart, err := p.reread(ctx, restored)
	if err != nil {
		return err
	}
	opened, err := p.open(ctx)
	if err != nil {
		return err
	}
	return p.enqueue(ctx, append(restart, opened...))
}

// open takes tasks for as many groups as there is room for.
func (p *pump) open(ctx context.Context) (opened []*liveGroup, err error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	for {
		p.mu.Lock()
		room := 0
		if p.admits {
			room = p.accounts.Room()
		}
		p.mu.Unlock()
		if room == 0 {
			return opened, nil
		}
		p.tell(p.news())
		tasks, err := p.collector.source.Next(ctx, room)
		if err != nil {
			return nil, fmt.Errorf("next tasks: %w", err)
		}
		if len(tasks) == 0 || len(tasks) > room {
			return nil, agl.Errorf(agl.CodeInvalid, "the source returned %d tasks of %d that were asked for", len(tasks), room)
		}
		p.mu.Lock()
		for _, task := range tasks {
			g := &liveGroup{Group: p.accounts.Admit(), task: task}
			p.live[g.ID] = g
			opened = append(opened, g)
		}
		p.mu.Unlock()
	}
}

// enqueue enqueues the rollouts of groups and waits for each group in a goroutine of its own.
func (p *pump) enqueue(ctx context.Context, groups []*liveGroup) error {
	if len(groups) == 0 {
		return nil
	}
	p.mu.Lock()
	resources := p.resources
	for _, g := range groups {
		g.pinned = resources
	}
	p.mu.Unlock()
	var rollouts []agl.EnqueueRollout
	for _, g := range groups {
		list, err := p.collector.rollouts(g.Group, g.task, resources, 0, p.cfg.GroupSize+p.cfg.Async.Oversample)
		if err != nil {
			return err
		}
		rollouts = append(rollouts, list...)
	}
	queued, err := p.store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: rollouts})
	if err != nil {
		return fmt.Errorf("enqueue rollouts: %w", err)
	}
	each := len(queued) / len(groups)
	for i, g := range groups {
		p.mu.Lock()
		g.ids = idsOf(queued[i*each : (i+1)*each])
		p.mu.Unlock()
		p.work(func() { p.await(ctx, g) })
	}
	return nil
}
