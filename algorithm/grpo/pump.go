package grpo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
)

// pump runs the rollouts of a run, ahead of training by as much as its accounts admit. Without staleness it starts those of a
// step when collect asks for them.
type pump struct {
	cfg       Config
	collector collector
	store     agl.Store
	flusher   algorithm.Flusher

	stop    context.CancelFunc
	workers sync.WaitGroup
	wake    chan struct{} // of run: there may be room
	arrived chan struct{} // of collect: a group is ready, or run has failed

	taken []taskGroup // of the step under way; those and what follows only collect uses
	began time.Time   // of the step
	shown int         // groups whose rollouts were reported

	opening sync.Mutex // held while tasks are taken from the source

	mu          sync.Mutex
	accounts    *admission.Accounts
	live        map[int]*liveGroup // ready and open, by id
	restored    []*liveGroup       // of the checkpoint, by id, until run takes them
	versions    map[string]int     // of the checkpoint
	admits      bool               // groups may start
	resources   string             // that new rollouts get
	err         error              // that ended run
	dropped     map[admission.Reason]int
	unused      int // tokens in dropped groups, and of stopped rollouts, since the batch before
	stopped     int // rollouts since the batch before
	refilled    int // groups dropped for their rewards since the batch before
	failedInRow int // groups
	heard       []heard
	lastBatch   time.Time
}

// liveGroup is a group that is open or ready.
type liveGroup struct {
	admission.Group

	task    Task
	ids     []string  // of its rollouts; nil before they are enqueued
	pinned  string    // the resources of its rollouts, if this process enqueues them
	over    bool      // all rollouts had finished when the checkpoint was made from which the run resumed
	samples taskGroup // of a ready group
}

// heard is a group whose result the source has not heard.
type heard struct {
	id      int
	task    Task
	rewards []float64
}

const (
	// maxRefills is how many times the groups of a step may be dropped for equal rewards; then they are trained on as they are.
	maxRefills = 10
	// maxFailures is how many times the groups of a step may fail in a row before the run ends.
	maxFailures = 3
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
	p.workers.Go(func() { p.run(ctx) })
}

// close cancels the rollouts that are still open and waits for all goroutines. A nil pump, or one that was not started, has none.
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

// signal wakes who waits for a channel, now or later.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
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

func (p *pump) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	signal(p.arrived)
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

// open takes tasks for all groups that there is room for.
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

// news returns the groups that the source is to hear of.
func (p *pump) news() []heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.heard
	p.heard = nil
	return news
}

// tell lets the source hear of groups. opening is held.
func (p *pump) tell(news []heard) {
	slices.SortFunc(news, func(a, b heard) int { return a.id - b.id })
	if listener, ok := p.collector.source.(Listener); ok {
		for _, n := range news {
			listener.Heard(n.task, n.rewards)
		}
	}
}

// pinned returns the resources of the rollouts of open groups.
func (p *pump) pinned() (resources []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.live {
		if g.samples == nil && g.pinned != "" && !slices.Contains(resources, g.pinned) {
			resources = append(resources, g.pinned)
		}
	}
	return resources
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
		list, err := p.collector.rollouts(g, resources, 0, p.cfg.GroupSize+p.cfg.Async.Oversample)
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
		p.workers.Go(func() { p.await(ctx, g) })
	}
	return nil
}

func idsOf(rollouts []agl.Rollout) []string {
	ids := make([]string, len(rollouts))
	for i, r := range rollouts {
		ids[i] = r.RolloutID
	}
	return ids
}
