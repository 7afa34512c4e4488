package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// tx implements driver.Tx. The engine has one open at a time, so it is reused.
type tx struct {
	driver *Driver
	cursor int // the number of places in the queue that were examined
}

// Begin implements driver.Driver.
func (d *Driver) Begin(context.Context) (driver.Tx, error) {
	d.tx.cursor = 0
	return &d.tx, nil
}

// Discard implements driver.Tx.
func (*tx) Discard() {}

// Load implements driver.Tx.
func (b *tx) Load(_ context.Context, want *driver.LoadParams, got *driver.Loaded) error {
	d := b.driver
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, id := range want.Rollouts {
		if r := d.rollouts[id]; r != nil {
			d.loadRollout(r, withWorkers, got)
		}
	}
	for _, key := range want.Attempts {
		d.loadAttempt(key, withWorkers, got)
	}
	for _, key := range want.SpanAttempts {
		d.loadAttempt(key, withoutWorkers, got)
	}
	for _, id := range want.Workers {
		w := d.workers[id]
		if w == nil {
			continue
		}
		d.loadWorker(w, id, got)
		if w.cur != nil && w.cur.CurrentAttemptID.Valid {
			d.loadAttempt(driver.AttemptKey{RolloutID: w.cur.CurrentRolloutID.V, AttemptID: w.cur.CurrentAttemptID.V}, withWorkers, got)
		}
	}
	for _, id := range want.Resources {
		if u := d.resources[id]; u != nil {
			got.Resources = append(got.Resources, u.cur)
		}
	}
	for _, id := range want.Sequences {
		if last, there := d.sequences[id]; there {
			got.Sequences = append(got.Sequences, driver.Sequence{RolloutID: id, Last: last})
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
	if len(want.ResourcesInUse) > 0 {
		used := d.usedResources()
		for _, id := range want.ResourcesInUse {
			if used[id] {
				got.InUse = append(got.InUse, id)
			}
		}
	}
	for _, scope := range want.Keys {
		if record, there := d.keys.get(scope, want.Now); there {
			got.Keys = append(got.Keys, record)
		}
	}
	for _, key := range want.Documents {
		if doc := d.documents.byKey[key]; doc != nil {
			got.Documents = append(got.Documents, doc)
		}
	}
	if d.latest != nil {
		got.LatestResources = agl.Some(d.latest.cur.ResourcesID)
	}
	got.QueueClosed = d.closed
	got.SpanRoom = agl.Some(d.evictAt - d.evictable.total + d.evictable.finished)
	return nil
}

// Whether attempts are loaded with their workers.
const (
	withWorkers    = true
	withoutWorkers = false
)

// loadRollout adds a rollout with its latest attempt and that attempt's worker.
func (d *Driver) loadRollout(r *rollout, workers bool, got *driver.Loaded) {
	loaded := driver.LoadedRollout{Rollout: r.cur}
	if a := r.latest(); a != nil {
		loaded.Latest = a.cur.AttemptID
		d.loadOne(a.cur, workers, got)
	}
	got.Rollouts = append(got.Rollouts, loaded)
}

// loadAttempt adds an attempt with its worker and its rollout.
func (d *Driver) loadAttempt(key driver.AttemptKey, workers bool, got *driver.Loaded) {
	r := d.rollouts[key.RolloutID]
	if r == nil {
		return
	}
	d.loadRollout(r, workers, got)
	if a := r.attempt(key.AttemptID); a != nil && a != r.latest() {
		d.loadOne(a.cur, workers, got)
	}
}

func (d *Driver) loadOne(a *agl.Attempt, workers bool, got *driver.Loaded) {
	got.Attempts = append(got.Attempts, a)
	if !workers || a.WorkerID.V == "" {
		return
	}
	if w := d.workers[a.WorkerID.V]; w != nil {
		d.loadWorker(w, a.WorkerID.V, got)
	}
}

func (*Driver) loadWorker(w *worker, id string, got *driver.Loaded) {
	got.Workers = append(got.Workers, driver.LoadedWorker{Worker: w.cur, WorkerID: id, LiveAttempts: w.live})
}

// Claim implements driver.Tx.
func (b *tx) Claim(_ context.Context, limit int, got *driver.Loaded) ([]string, error) {
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
		if r.valid() {
			claimed = append(claimed, r.entry.cur.RolloutID)
			d.loadRollout(r.entry, withWorkers, got)
		}
	}
	return claimed, nil
}

// Apply implements driver.Tx.
func (b *tx) Apply(_ context.Context, c *driver.Changes) error {
	d := b.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range c.Rollouts {
		d.applyRollout(c.Rollouts[i])
	}
	// The first of several goes to the very front.
	for i := range slices.Backward(c.Rollouts) {
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
	if c.LatestResources.Valid {
		d.latest = d.resources[c.LatestResources.V]
	}
	for _, s := range c.Sequences {
		d.applySequence(s, c.Now)
	}
	for i := range c.Spans {
		d.applySpan(&c.Spans[i])
	}
	for _, doc := range c.Documents {
		d.documents.put(doc)
	}
	for _, key := range c.DeletedDocuments {
		d.documents.remove(key)
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
	d.deleteWorkers(c.DeletedWorkers)
	d.deleteResources(c.DeletedResources)
	d.deleteSequences(c.DeletedSequences)
	d.evict()
	return nil
}

func (d *Driver) nextOrdinal() int64 {
	d.ordinal++
	return d.ordinal
}

func (d *Driver) applyRollout(change driver.RolloutChange) {
	id := change.Rollout.RolloutID
	r := d.rollouts[id]
	if r == nil {
		r = &rollout{ordinal: d.nextOrdinal()}
		d.rollouts[id] = r
		d.ordered = append(d.ordered, r)
		delete(d.unknownSequences, id)
	}
	if r.cur == nil || !bytes.Equal(r.cur.Metadata, change.Rollout.Metadata) {
		r.labels = driver.LabelsOf(change.Rollout.Metadata)
	}
	d.countStatus(r.cur, -1)
	d.countStatus(change.Rollout, 1)
	d.checkOrder(r, change.Rollout)
	finished := r.cur != nil && r.cur.Status.Finished()
	r.cur = change.Rollout
	if r.cur.Status.Finished() != finished {
		d.evictable.moved(r, r.cur.Status.Finished())
	}
	switch {
	case !r.cur.Status.Queued() && r.ticket != 0:
		r.ticket = 0
		d.queue.stale++
	case r.cur.Status.Queued() && r.ticket == 0 && !change.Front:
		d.enqueue(r, false)
	}
}

// countStatus adds n to the rollouts of a status. A rollout that is new was nil before.
func (d *Driver) countStatus(r *agl.Rollout, n int) {
	if r != nil {
		d.statuses[r.Status] += n
	}
}

// checkOrder notes whether rollouts still start in the order of their creation, which only imports can break.
func (d *Driver) checkOrder(r *rollout, next *agl.Rollout) {
	switch last := len(d.ordered) - 1; {
	case r.cur != nil:
		d.unsorted = d.unsorted || r.cur.StartTime != next.StartTime
	case last > 0:
		d.unsorted = d.unsorted || next.StartTime < d.ordered[last-1].cur.StartTime
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

func (d *Driver) applyAttempt(change driver.AttemptChange) {
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

// removeAttempt removes an attempt of an unfinished rollout, with its spans.
func (d *Driver) removeAttempt(key driver.AttemptKey) {
	r := d.rollouts[key.RolloutID]
	d.count(r, -1)
	for _, s := range r.attempt(key.AttemptID).spans.items {
		d.spans--
		r.bytes -= int64(len(s.Payload))
		d.evictable.total -= int64(len(s.Payload))
	}
	r.spans.items = slices.DeleteFunc(r.spans.items, func(s *span) bool { return s.AttemptID == key.AttemptID })
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
		d.workerList = append(d.workerList, w)
	}
	w.cur = cur
}

func (d *Driver) applyResources(cur *agl.ResourcesUpdate) {
	u := d.resources[cur.ResourcesID]
	if u == nil {
		u = new(bundle)
		d.resources[cur.ResourcesID] = u
		d.bundleList = append(d.bundleList, u)
	}
	u.cur = cur
}

func (d *Driver) applySequence(s driver.Sequence, now agl.Timestamp) {
	d.sequences[s.RolloutID] = s.Last
	if d.rollouts[s.RolloutID] == nil {
		d.unknownSequences[s.RolloutID] = now
	}
}

func (d *Driver) deleteRollout(id string) {
	r := d.rollouts[id]
	if r == nil {
		return
	}
	d.count(r, -1)
	d.countStatus(r.cur, -1)
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
