package memory

import (
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// batch implements store.Batch. The engine has one open at a time, so there is
// one, used again and again.
type batch struct {
	driver *Driver
	cursor int // into the queue: how many places were looked at
}

// Begin implements store.Driver.
func (d *Driver) Begin(context.Context) (store.Batch, error) {
	d.batch.cursor = 0
	return &d.batch, nil
}

// Discard implements store.Batch.
func (*batch) Discard() {}

// Load implements store.Batch.
func (b *batch) Load(_ context.Context, want *store.LoadParams, got *store.Loaded) error {
	d := b.driver
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, id := range want.Rollouts {
		if r := d.rollouts[id]; r != nil {
			d.loadRollout(r, got)
		}
	}
	for _, key := range want.Attempts {
		d.loadAttempt(key, got)
	}
	for _, id := range want.Workers {
		w := d.workers[id]
		if w == nil {
			continue
		}
		d.loadWorker(w, id, got)
		if w.cur != nil && w.cur.CurrentAttemptID.Valid {
			d.loadAttempt(store.AttemptKey{RolloutID: w.cur.CurrentRolloutID.V, AttemptID: w.cur.CurrentAttemptID.V}, got)
		}
	}
	for _, id := range want.Resources {
		if u := d.resources[id]; u != nil {
			got.Resources = append(got.Resources, u.cur)
		}
	}
	for _, id := range want.Sequences {
		if last, there := d.sequences[id]; there {
			got.Sequences = append(got.Sequences, store.Sequence{RolloutID: id, Last: last})
		}
	}
	for _, key := range want.Spans {
		if r := d.rollouts[key.RolloutID]; r != nil {
			if a := r.attempt(key.AttemptID); a != nil {
				if _, there := a.ids[key.SpanID]; there {
					got.Spans = append(got.Spans, key)
				}
			}
		}
	}
	for _, scope := range want.Keys {
		if record, there := d.keys.get(scope, want.Now); there {
			got.Keys = append(got.Keys, record)
		}
	}
	if d.latest != nil {
		got.LatestResources = agl.Some(d.latest.cur.ResourcesID)
	}
	got.QueueClosed = d.closed
	got.SpanRoom = agl.Some(d.evictAt - d.evictable.total + d.evictable.finished)
	return nil
}

// loadRollout adds a rollout with its latest attempt and that one's worker.
func (d *Driver) loadRollout(r *rollout, got *store.Loaded) {
	loaded := store.LoadedRollout{Rollout: r.cur}
	if a := r.latest(); a != nil {
		loaded.Latest = a.cur.AttemptID
		got.Attempts = append(got.Attempts, a.cur)
		d.loadWorkerOf(a.cur, got)
	}
	got.Rollouts = append(got.Rollouts, loaded)
}

// loadAttempt adds an attempt with its worker and its rollout.
func (d *Driver) loadAttempt(key store.AttemptKey, got *store.Loaded) {
	r := d.rollouts[key.RolloutID]
	if r == nil {
		return
	}
	d.loadRollout(r, got)
	if a := r.attempt(key.AttemptID); a != nil && a != r.latest() {
		got.Attempts = append(got.Attempts, a.cur)
		d.loadWorkerOf(a.cur, got)
	}
}

func (d *Driver) loadWorkerOf(a *agl.Attempt, got *store.Loaded) {
	if a.WorkerID.V == "" {
		return
	}
	if w := d.workers[a.WorkerID.V]; w != nil {
		d.loadWorker(w, a.WorkerID.V, got)
	}
}

func (*Driver) loadWorker(w *worker, id string, got *store.Loaded) {
	got.Workers = append(got.Workers, store.LoadedWorker{Worker: w.cur, WorkerID: id, LiveAttempts: w.live})
}

// Claim implements store.Batch.
func (b *batch) Claim(_ context.Context, limit int, got *store.Loaded) ([]string, error) {
	d := b.driver
	d.mu.RLock()
	defer d.mu.RUnlock()
	var claimed []string
	for len(claimed) < limit {
		r := d.queue.at(b.cursor)
		if r == nil {
			break
		}
		b.cursor++
		if r.entry.ticket == r.ticket {
			claimed = append(claimed, r.entry.cur.RolloutID)
			d.loadRollout(r.entry, got)
		}
	}
	return claimed, nil
}

// Apply implements store.Batch.
func (b *batch) Apply(_ context.Context, c *store.Changes) error {
	d := b.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range c.Rollouts {
		d.applyRollout(c.Rollouts[i])
	}
	// The first of several goes to the very front.
	for i := len(c.Rollouts) - 1; i >= 0; i-- {
		if change := &c.Rollouts[i]; change.Front {
			d.enqueue(d.rollouts[change.Rollout.RolloutID], true)
		}
	}
	d.queue.trim()
	for _, change := range c.Attempts {
		d.applyAttempt(change)
	}
	for _, key := range c.ReturnedAttempts {
		d.removeAttempt(key)
	}
	for _, w := range c.Workers {
		d.applyWorker(w)
	}
	for _, u := range c.Resources {
		d.applyResources(u)
	}
	for _, s := range c.Sequences {
		d.applySequence(s)
	}
	for i := range c.Spans {
		d.applySpan(&c.Spans[i])
	}
	if c.QueueClosed.Valid {
		d.closed = c.QueueClosed.V
	}
	d.keys.put(c.Now, c.Keys, c.ForgottenKeys)
	d.events.append(c.Now, c.Events)
	for _, id := range c.EvictedRollouts {
		d.dropSpans(d.rollouts[id])
		d.rollouts[id].evicted = true
	}
	for _, id := range c.DeletedRollouts {
		d.deleteRollout(id)
	}
	d.evict()
	return nil
}

func (d *Driver) nextOrdinal() int64 {
	d.ordinal++
	return d.ordinal
}

func (d *Driver) applyRollout(change store.RolloutChange) {
	id := change.Rollout.RolloutID
	r := d.rollouts[id]
	if r == nil {
		r = &rollout{ordinal: d.nextOrdinal()}
		d.rollouts[id] = r
		d.ordered = append(d.ordered, r)
	}
	finished := r.cur != nil && r.cur.Status.Finished()
	r.cur = change.Rollout
	if r.cur.Status.Finished() != finished {
		d.evictable.moved(r, r.cur.Status.Finished())
	}
	switch {
	case !r.cur.Status.Queued() && r.ticket != 0:
		r.ticket = 0
		d.queue.left()
	case r.cur.Status.Queued() && r.ticket == 0 && !change.Front:
		d.enqueue(r, false)
	}
}

func (d *Driver) enqueue(r *rollout, front bool) {
	if r.ticket == 0 && r.cur.Status.Queued() {
		r.ticket = d.nextOrdinal()
		d.queue.add(r, front)
	}
}

// count adds n to the live attempts of the worker that the rollout's latest
// attempt names.
func (d *Driver) count(r *rollout, n int) {
	a := r.latest()
	if a == nil || !a.cur.Status.Live() || a.cur.WorkerID.V == "" {
		return
	}
	w := d.workers[a.cur.WorkerID.V]
	if w == nil {
		w = new(worker)
		d.workers[a.cur.WorkerID.V] = w
	}
	w.live += n
	if w.cur == nil && w.live == 0 {
		delete(d.workers, a.cur.WorkerID.V)
	}
}

func (d *Driver) applyAttempt(change store.AttemptChange) {
	r := d.rollouts[change.Attempt.RolloutID]
	d.count(r, -1)
	if change.New {
		d.attempts++
		r.attempts = append(r.attempts, &attempt{cur: change.Attempt})
	} else {
		r.attempt(change.Attempt.AttemptID).cur = change.Attempt
	}
	d.count(r, 1)
}

func (d *Driver) removeAttempt(key store.AttemptKey) {
	r := d.rollouts[key.RolloutID]
	d.count(r, -1)
	r.attempts = slices.DeleteFunc(r.attempts, func(a *attempt) bool { return a.cur.AttemptID == key.AttemptID })
	d.attempts--
	d.count(r, 1)
}

func (d *Driver) applyWorker(cur *agl.Worker) {
	w := d.workers[cur.WorkerID]
	if w == nil {
		w = new(worker)
		d.workers[cur.WorkerID] = w
	}
	if w.cur == nil {
		d.staff = append(d.staff, w)
	}
	w.cur = cur
}

func (d *Driver) applyResources(cur *agl.ResourcesUpdate) {
	u := d.resources[cur.ResourcesID]
	if u == nil {
		u = new(bundle)
		d.resources[cur.ResourcesID] = u
		d.shelf = append(d.shelf, u)
	}
	u.cur = cur
	d.latest = u
}

// maxGhosts is how many sequences are kept of rollouts that do not exist.
const maxGhosts = 10_000

func (d *Driver) applySequence(s store.Sequence) {
	if _, known := d.sequences[s.RolloutID]; !known && d.rollouts[s.RolloutID] == nil {
		d.ghosts = append(d.ghosts, s.RolloutID)
		if len(d.ghosts) > maxGhosts {
			if d.rollouts[d.ghosts[0]] == nil {
				delete(d.sequences, d.ghosts[0])
			}
			d.ghosts = d.ghosts[1:]
		}
	}
	d.sequences[s.RolloutID] = s.Last
}

func (d *Driver) deleteRollout(id string) {
	r := d.rollouts[id]
	if r == nil {
		return
	}
	d.count(r, -1)
	d.evictable.forget(r)
	d.dropSpans(r)
	d.attempts -= len(r.attempts)
	delete(d.rollouts, id)
	delete(d.sequences, id)
	if at, found := slices.BinarySearchFunc(d.ordered, r.ordinal, func(r *rollout, ordinal int64) int {
		return int(r.ordinal - ordinal)
	}); found {
		d.ordered = slices.Delete(d.ordered, at, at+1)
	}
}
