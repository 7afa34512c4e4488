package grpo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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
	over    bool      // all rollouts had finished when the checkpoint was made from which the run resumed
	samples taskGroup // of a ready group
}

// heard is a group whose result the source has not heard.
type heard struct {
	id      int
	task    Task
	rewards []float64
}

// savedGroup is a live group in a checkpoint.
type savedGroup struct {
	ID    int            `json:"id"`
	Task  jsontext.Value `json:"task"`
	Index int            `json:"index"`
	// Rollouts of a group that was ready. An open group starts again: its rollouts may have been answered by weights that were lost.
	Rollouts []string `json:"rollouts,omitzero"`
}

// savedPump is what a checkpoint holds beside the source, unless the run is synchronous and nothing was dropped.
type savedPump struct {
	Accounts admission.State `json:"accounts"`
	Groups   []savedGroup    `json:"groups,omitzero"`
	// Versions are those that answered the calls of ready Groups, with their generations.
	Versions map[string]int `json:"versions,omitzero"`
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

// reread reads the groups of a checkpoint whose rollouts have all finished, and returns the others.
func (p *pump) reread(ctx context.Context, groups []*liveGroup) (restart []*liveGroup, err error) {
	for _, g := range groups {
		complete := false
		if len(g.ids) > 0 {
			page, err := p.store.QueryRollouts(ctx, agl.QueryRolloutsParams{
				RolloutIDIn: g.ids, StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed},
			})
			if err != nil {
				return nil, fmt.Errorf("read rollouts of the checkpoint: %w", err)
			}
			complete = len(page.Items) == len(g.ids)
		}
		if complete {
			p.workers.Go(func() { p.await(ctx, g) })
			continue
		}
		p.mu.Lock()
		p.accounts.Restart(g.ID)
		g.Version, g.ids, g.over = p.accounts.State().Version, nil, false
		p.mu.Unlock()
		restart = append(restart, g)
	}
	return restart, nil
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

// enqueue enqueues the rollouts of groups and waits for each group in a goroutine of its own.
func (p *pump) enqueue(ctx context.Context, groups []*liveGroup) error {
	if len(groups) == 0 {
		return nil
	}
	p.mu.Lock()
	resources := p.resources
	p.mu.Unlock()
	var rollouts []agl.EnqueueRollout
	for _, g := range groups {
		list, err := p.collector.rollouts(g, resources)
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
		ids := make([]string, each)
		for s := range ids {
			ids[s] = queued[i*each+s].RolloutID
		}
		p.mu.Lock()
		g.ids = ids
		p.mu.Unlock()
		p.workers.Go(func() { p.await(ctx, g) })
	}
	return nil
}

// await waits for the rollouts of a group and reads them. Those that are not done within the group's time are cancelled, and so are
// those without which the group is complete.
func (p *pump) await(ctx context.Context, g *liveGroup) {
	spare, err := p.deadline(ctx, g.ids)
	var episodes []algorithm.Episode
	if err == nil {
		episodes, err = algorithm.Await(ctx, p.store, p.flusher, algorithm.ReadFor(p.cfg.Adapter), g.ids)
	}
	if err != nil {
		p.fail(err)
		return
	}
	var samples, stopped taskGroup
	var ids []string
	for i := range episodes {
		one := p.collector.read(ctx, g.task.Input, &episodes[i])
		if slices.Contains(spare, g.ids[i]) && one.mask == algorithm.Mask(agl.OutcomeCancelled) {
			stopped = append(stopped, one)
			continue
		}
		samples, ids = append(samples, one), append(ids, g.ids[i])
	}
	p.mu.Lock()
	g.ids = ids
	p.stopped += len(stopped)
	p.unused += tokensOf(stopped)
	p.mu.Unlock()
	p.finish(g, samples)
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

// deadline waits until a group is complete, or its time is over, and cancels what is then unfinished. It returns the rollouts that were
// cancelled because the group was complete without them.
func (p *pump) deadline(ctx context.Context, ids []string) (spare []string, err error) {
	if p.cfg.Async.GroupTimeout == 0 && p.cfg.Async.Oversample == 0 {
		return nil, nil
	}
	limited, done := ctx, func() {}
	if p.cfg.Async.GroupTimeout > 0 {
		limited, done = context.WithTimeout(ctx, p.cfg.Async.GroupTimeout)
	}
	defer done()
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

// enough waits until as many rollouts as a group has count, or all have finished, and returns those that have not.
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

// finish makes a group ready, or drops it.
func (p *pump) finish(g *liveGroup, samples taskGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer signal(p.arrived)
	defer signal(p.wake)
	if p.live[g.ID] != g { // dropped as stale
		p.unused += tokensOf(samples)
		return
	}
	if !g.over { // the source of the run that was resumed has heard of it
		p.heard = append(p.heard, heard{g.ID, g.task, rewardsOf(samples)})
	}
	reason := p.verdict(samples)
	if reason == "" {
		g.samples, p.failedInRow = samples, 0
		p.accounts.Done(g.ID)
		return
	}
	p.drop(g.ID, reason)
	p.accounts.Drop(g.ID, reason)
	p.unused += tokensOf(samples)
	switch reason {
	case admission.NoVariance:
		p.refilled, p.failedInRow = p.refilled+1, 0
	case admission.Failed:
		if p.failedInRow++; p.failedInRow >= maxFailures*p.cfg.PromptsPerStep && p.err == nil {
			var r StepReport
			countSamples([]taskGroup{samples}, p.cfg.PassReward, &r)
			p.err = agl.Errorf(agl.CodeIllegalState, "the last %d groups have fewer than min_viable (%d) rollouts that count; of the last one are masked: %s",
				p.failedInRow, p.cfg.Async.MinViable, describeMasked(r))
		}
	case admission.Stale:
	}
}

// verdict is why a complete group is not trained on; empty if it is. The lock is held.
func (p *pump) verdict(samples taskGroup) admission.Reason {
	varies := false // to a role
	for k := range p.collector.roles {
		counting := slices.DeleteFunc(slices.Clone(samples.of(k)), func(s sample) bool { return s.mask != "" })
		if len(counting) < p.cfg.Async.MinViable {
			return admission.Failed
		}
		_, ok := credit(p.cfg, counting)
		varies = varies || ok
	}
	if p.cfg.DynamicSampling && !varies && p.refilled < maxRefills*p.cfg.PromptsPerStep {
		return admission.NoVariance
	}
	return ""
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

// batch is what a step trains on.
type batch struct {
	groups  []taskGroup // by id
	waited  time.Duration
	sampled time.Duration // the time in which as much was sampled
	dropped map[admission.Reason]int
	unused  int
	stopped int      // rollouts without which their group was complete
	learned []string // rollouts that count, in a live run
	stale   int      // rollouts that were passed over, in a live run
	crowded int      // likewise, because of Live.PerUser
}

// collect waits for the groups of a step. They stay in the accounts until trained.
func (p *pump) collect(ctx context.Context, step int) (batch, error) {
	start := time.Now()
	p.mu.Lock()
	p.admits, p.resources = true, p.collector.session.ResourcesID
	p.mu.Unlock()
	signal(p.wake)
	var b batch
	for shown := 0; b.groups == nil; {
		ready, err := p.take(&b)
		if err != nil {
			return batch{}, err
		}
		for ; shown < ready; shown++ {
			p.cfg.Progress.OnRollouts(algorithm.PhaseTrain, step, (shown+1)*p.cfg.GroupSize, p.cfg.PromptsPerStep*p.cfg.GroupSize)
		}
		if b.groups != nil {
			break
		}
		select {
		case <-ctx.Done():
			return batch{}, fmt.Errorf("wait for rollouts: %w", ctx.Err())
		case <-p.arrived:
		}
	}
	b.waited = time.Since(start)
	if b.sampled == 0 {
		b.sampled = b.waited
	}
	all := slices.Concat(b.groups...)
	for k, role := range p.collector.roles {
		samples := all.of(k)
		var coverage []algorithm.Coverage
		for _, s := range samples {
			coverage = append(coverage, s.coverage)
		}
		if err := cmp.Or(checkPolicy(samples), checkReward(role, samples), algorithm.CheckCoverage(ctx, "step", coverage, p.cfg.Logger)); err != nil {
			return batch{}, role.failed(err)
		}
	}
	return b, nil
}

// take fills in the batch if there is one, and returns how many of its groups are ready.
func (p *pump) take(b *batch) (ready int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.accounts.Batch()
	if list == nil {
		return len(p.accounts.State().Ready), p.err
	}
	for _, g := range list {
		b.groups = append(b.groups, p.live[g.ID].samples)
	}
	b.dropped, b.unused, b.stopped = p.dropped, p.unused, p.stopped
	p.dropped, p.unused, p.stopped, p.refilled = map[admission.Reason]int{}, 0, 0, 0
	p.admits = p.cfg.Async.MaxStaleness > 0
	if p.admits {
		b.sampled = time.Since(p.lastBatch)
	}
	p.lastBatch = time.Now()
	return len(list), nil
}

// trained ends the step of the groups that collect returned: more may start, with the newest weights.
func (p *pump) trained(ctx context.Context) {
	p.mu.Lock()
	for _, g := range p.accounts.Batch() {
		delete(p.live, g.ID)
	}
	var ids []string
	for _, g := range p.accounts.Trained() {
		if late := p.live[g.ID]; late.samples == nil {
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
	signal(p.wake)
}

// save returns the position of the source and, if a synchronous run would not have the same, the accounts.
func (p *pump) save() (position jsontext.Value, saved *savedPump, err error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	saved, news := p.saveGroups()
	p.tell(news)
	if position, err = p.collector.source.State(); err != nil {
		return nil, nil, fmt.Errorf("position in the tasks: %w", err)
	}
	return position, saved, nil
}

// saveGroups returns the accounts, and the groups that they have of which the source has not heard.
func (p *pump) saveGroups() (saved *savedPump, news []heard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.heard = p.heard, nil
	state := p.accounts.State()
	if state.Admitted == state.Consumed {
		return nil, news
	}
	saved = &savedPump{Accounts: state}
	all := slices.Concat(state.Ready, state.Open)
	slices.SortFunc(all, func(a, b admission.Group) int { return a.ID - b.ID })
	saved.Versions = map[string]int{}
	for _, g := range all {
		live := p.live[g.ID]
		one := savedGroup{ID: g.ID, Task: live.task.Input, Index: live.task.Index}
		switch {
		case live.samples != nil:
			one.Rollouts = live.ids
			p.noteVersions(saved.Versions, live.samples)
		case live.over: // not read yet
			one.Rollouts = live.ids
			maps.Copy(saved.Versions, p.versions)
		}
		saved.Groups = append(saved.Groups, one)
	}
	return saved, news
}

// noteVersions adds the versions that answered the calls of a group.
func (p *pump) noteVersions(to map[string]int, g taskGroup) {
	for k, role := range p.collector.roles {
		role.noteVersions(to, g.of(k))
	}
}

func (r *trainee) noteVersions(to map[string]int, g taskGroup) {
	for _, s := range g {
		for _, t := range s.sequences {
			for _, version := range t.Versions() {
				if generation, ok := r.calls.Generation(version); ok {
					to[version] = generation
				}
			}
		}
	}
}

// stalenessOf compares the versions that sampled a role's tokens with its weights in training, which were published with resources.
func stalenessOf(role *trainee, resourcesID string, groups []taskGroup) Staleness {
	var s Staleness
	calls := role.calls
	newest, ok := calls.Generation(role.version(resourcesID))
	tokens := 0
	for _, one := range slices.Concat(groups...) {
		if one.mask != "" || !ok {
			continue
		}
		for _, t := range one.sequences {
			for _, reply := range t.Replies {
				if generation, known := calls.Generation(reply.Version); known {
					n := reply.End - reply.Start
					tokens += n
					s.Mean += float64(n * (newest - generation))
					s.Max = max(s.Max, newest-generation)
				}
			}
		}
	}
	if tokens > 0 {
		s.Mean /= float64(tokens)
	}
	return s
}
