package store

import (
	"context"
	"slices"
	"time"

	"github.com/agl-go/agl"
)

// work is the state of one batch: what was loaded and what the commands have
// made of it so far. Only the goroutine that leads touches it; it is reused from
// batch to batch.
type work struct {
	now      agl.Timestamp
	patience patience
	want     LoadParams
	loaded   Loaded

	rollouts  map[string]*rolloutEntry
	attempts  map[AttemptKey]*attemptEntry
	workers   map[string]*workerEntry
	resources map[string]*agl.ResourcesUpdate
	sequences map[string]*sequenceEntry
	spans     map[SpanKey]struct{}
	keys      map[string]IdempotencyRecord

	latestResources agl.Null[string]
	queueClosed     bool
	spanRoom        agl.Null[int64]

	// What changed, in the order of the first change.
	changedRollouts  []*rolloutEntry
	changedAttempts  []*attemptEntry
	changedWorkers   []*workerEntry
	changedSequences []*sequenceEntry
	queued           []*rolloutEntry // became queued in this batch
	served           []*waiter       // blocked dequeues that got claims, not yet told
	parked           []*waiter       // dequeues of this batch that are to wait
	released         bool            // the queue is closed: tell all waiters
	changes          Changes

	freeRollouts  arena[rolloutEntry]
	freeAttempts  arena[attemptEntry]
	freeWorkers   arena[workerEntry]
	freeSequences arena[sequenceEntry]
}

type rolloutEntry struct {
	was, cur  *agl.Rollout // was is nil for a new one, cur for a deleted one
	wasLatest *agl.Attempt
	latest    *attemptEntry
	changed   bool
	front     bool
}

type attemptEntry struct {
	was, cur *agl.Attempt
	changed  bool
	returned bool
}

type workerEntry struct {
	was, cur *agl.Worker
	live     int // as loaded
	changed  bool
}

type sequenceEntry struct {
	Sequence
	changed bool
}

// arena hands out zeroed values and takes them all back at once.
type arena[T any] struct {
	items []*T
	used  int
}

func (a *arena[T]) next() *T {
	if a.used == len(a.items) {
		a.items = append(a.items, new(T))
	}
	item := a.items[a.used]
	a.used++
	return item
}

func (a *arena[T]) reset() {
	var zero T
	if a.used > maxKept {
		a.items, a.used = nil, 0
		return
	}
	for _, item := range a.items[:a.used] {
		*item = zero
	}
	a.used = 0
}

func newWork() *work {
	return &work{
		rollouts:  map[string]*rolloutEntry{},
		attempts:  map[AttemptKey]*attemptEntry{},
		workers:   map[string]*workerEntry{},
		resources: map[string]*agl.ResourcesUpdate{},
		sequences: map[string]*sequenceEntry{},
		spans:     map[SpanKey]struct{}{},
		keys:      map[string]IdempotencyRecord{},
	}
}

// reset forgets the last batch. Nothing of it is referred to any more but what
// was handed out as immutable.
func (w *work) reset(now time.Time) {
	w.now = agl.TimestampOf(now)
	w.rollouts = cleared(w.rollouts)
	w.attempts = cleared(w.attempts)
	w.workers = cleared(w.workers)
	w.resources = cleared(w.resources)
	w.sequences = cleared(w.sequences)
	w.spans = cleared(w.spans)
	w.keys = cleared(w.keys)
	w.freeRollouts.reset()
	w.freeAttempts.reset()
	w.freeWorkers.reset()
	w.freeSequences.reset()
	w.changedRollouts = emptied(w.changedRollouts)
	w.changedAttempts = emptied(w.changedAttempts)
	w.changedWorkers = emptied(w.changedWorkers)
	w.changedSequences = emptied(w.changedSequences)
	w.queued = emptied(w.queued)
	w.served = emptied(w.served)
	w.parked = emptied(w.parked)
	w.released = false
	w.want.reset()
	w.want.Now = w.now
	w.loaded.reset()
	w.changes.reset()
}

// maxKept and maxKeptMap are how much memory of one kind is kept for the next
// batch. Clearing a map costs what it has ever held, not what it holds.
const (
	maxKept    = 1024
	maxKeptMap = 64
)

func cleared[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > maxKeptMap {
		return map[K]V{}
	}
	clear(m)
	return m
}

func emptied[T any](s []T) []T {
	if cap(s) > maxKept {
		return nil
	}
	clear(s)
	return s[:0]
}

func (p *LoadParams) reset() {
	p.Rollouts = emptied(p.Rollouts)
	p.Attempts = emptied(p.Attempts)
	p.Workers = emptied(p.Workers)
	p.Resources = emptied(p.Resources)
	p.Sequences = emptied(p.Sequences)
	p.Spans = emptied(p.Spans)
	p.Keys = emptied(p.Keys)
}

func (l *Loaded) reset() {
	l.Rollouts = emptied(l.Rollouts)
	l.Attempts = emptied(l.Attempts)
	l.Workers = emptied(l.Workers)
	l.Resources = emptied(l.Resources)
	l.Sequences = emptied(l.Sequences)
	l.Spans = emptied(l.Spans)
	l.Keys = emptied(l.Keys)
	l.LatestResources = agl.Null[string]{}
	l.QueueClosed = false
	l.SpanRoom = agl.Null[int64]{}
}

func (c *Changes) reset() {
	c.Rollouts = emptied(c.Rollouts)
	c.Attempts = emptied(c.Attempts)
	c.ReturnedAttempts = emptied(c.ReturnedAttempts)
	c.Workers = emptied(c.Workers)
	c.Resources = emptied(c.Resources)
	c.Spans = emptied(c.Spans)
	c.Sequences = emptied(c.Sequences)
	c.DeletedRollouts = emptied(c.DeletedRollouts)
	c.EvictedRollouts = emptied(c.EvictedRollouts)
	c.QueueClosed = agl.Null[bool]{}
	c.Keys = emptied(c.Keys)
	c.ForgottenKeys = emptied(c.ForgottenKeys)
	c.Events = emptied(c.Events)
}

// load reads what the commands want and adds it to the state.
func (w *work) load(ctx context.Context, tx Batch) error {
	w.loaded.reset()
	if err := tx.Load(ctx, &w.want, &w.loaded); err != nil {
		return err
	}
	w.latestResources = w.loaded.LatestResources
	w.queueClosed = w.loaded.QueueClosed
	w.spanRoom = w.loaded.SpanRoom
	w.index()
	return nil
}

// index adds what was loaded, except for what is known already: a second load
// must not undo what the batch has done so far.
func (w *work) index() {
	l := &w.loaded
	for _, a := range l.Attempts {
		key := AttemptKey{a.RolloutID, a.AttemptID}
		if w.attempts[key] == nil {
			e := w.freeAttempts.next()
			e.was, e.cur = a, a
			w.attempts[key] = e
		}
	}
	for _, r := range l.Rollouts {
		if w.rollouts[r.Rollout.RolloutID] != nil {
			continue
		}
		e := w.freeRollouts.next()
		e.was, e.cur = r.Rollout, r.Rollout
		if r.Latest != "" {
			e.latest = w.attempts[AttemptKey{r.Rollout.RolloutID, r.Latest}]
			e.wasLatest = e.latest.was
		}
		w.rollouts[r.Rollout.RolloutID] = e
	}
	for _, worker := range l.Workers {
		if w.workers[worker.WorkerID] == nil {
			e := w.freeWorkers.next()
			e.was, e.cur, e.live = worker.Worker, worker.Worker, worker.LiveAttempts
			w.workers[worker.WorkerID] = e
		}
	}
	for _, u := range l.Resources {
		if w.resources[u.ResourcesID] == nil {
			w.resources[u.ResourcesID] = u
		}
	}
	for _, s := range l.Sequences {
		if w.sequences[s.RolloutID] == nil {
			e := w.freeSequences.next()
			e.Sequence = s
			w.sequences[s.RolloutID] = e
		}
	}
	for _, k := range l.Spans {
		w.spans[k] = struct{}{}
	}
	for _, k := range l.Keys {
		if _, known := w.keys[k.Scope]; !known {
			w.keys[k.Scope] = k
		}
	}
}

// rollout returns a rollout that exists, or nil.
func (w *work) rollout(id string) *rolloutEntry {
	e := w.rollouts[id]
	if e == nil || e.cur == nil {
		return nil
	}
	return e
}

// attempt returns an attempt that exists, or nil.
func (w *work) attempt(rolloutID, attemptID string) *attemptEntry {
	e := w.attempts[AttemptKey{rolloutID, attemptID}]
	if e == nil || e.returned || w.rollout(rolloutID) == nil {
		return nil
	}
	return e
}

func (w *work) addRollout(r *agl.Rollout) *rolloutEntry {
	e := w.freeRollouts.next()
	w.rollouts[r.RolloutID] = e
	w.setRollout(e, r)
	return e
}

func (w *work) setRollout(e *rolloutEntry, r *agl.Rollout) {
	if r.Status.Queued() && (e.cur == nil || !e.cur.Status.Queued()) {
		w.queued = append(w.queued, e)
	}
	e.cur = r
	if !e.changed {
		e.changed = true
		w.changedRollouts = append(w.changedRollouts, e)
	}
}

func (w *work) deleteRollout(e *rolloutEntry) {
	id := e.cur.RolloutID
	w.setRollout(e, e.cur)
	e.cur = nil
	w.changes.DeletedRollouts = append(w.changes.DeletedRollouts, id)
	w.changes.EvictedRollouts = slices.DeleteFunc(w.changes.EvictedRollouts, func(evicted string) bool { return evicted == id })
	delete(w.sequences, id)
}

// addAttempt makes an attempt the latest of its rollout.
func (w *work) addAttempt(e *rolloutEntry, a *agl.Attempt) *attemptEntry {
	ae := w.freeAttempts.next()
	w.attempts[AttemptKey{a.RolloutID, a.AttemptID}] = ae
	e.latest = ae
	w.setAttempt(ae, a)
	return ae
}

func (w *work) setAttempt(e *attemptEntry, a *agl.Attempt) {
	e.cur = a
	if !e.changed {
		e.changed = true
		w.changedAttempts = append(w.changedAttempts, e)
	}
}

// worker returns a worker, made anew (but not yet to be stored) when there is none.
func (w *work) worker(id string) *workerEntry {
	e := w.workers[id]
	if e == nil {
		e = w.freeWorkers.next()
		w.workers[id] = e
	}
	if e.cur == nil {
		worker := workerOf(id)
		e.cur = &worker
	}
	return e
}

func (w *work) setWorker(e *workerEntry, worker agl.Worker) {
	e.cur = &worker
	if !e.changed {
		e.changed = true
		w.changedWorkers = append(w.changedWorkers, e)
	}
}

// syncWorker moves the worker whose id the attempt carries, if any.
func (w *work) syncWorker(a *agl.Attempt) {
	if a.WorkerID.V == "" {
		return
	}
	e := w.worker(a.WorkerID.V)
	if worker, changed := workerFollows(*e.cur, a, w.now); changed {
		w.setWorker(e, worker)
	}
}

// releaseWorker takes a worker off an attempt that is no longer its own.
func (w *work) releaseWorker(id string, a *agl.Attempt) {
	if id == "" {
		return
	}
	if e := w.worker(id); worksOn(e.cur, a) {
		w.setWorker(e, workerReleased(*e.cur, agl.WorkerIdle, w.now))
	}
}

// liveAttempts counts the live attempts that carry a worker's id, each the
// latest of its rollout, as they are now.
func (w *work) liveAttempts(e *workerEntry) int {
	id, n := e.cur.WorkerID, e.live
	carries := func(a *agl.Attempt) bool {
		return a != nil && a.Status.Live() && a.WorkerID.V == id
	}
	for _, r := range w.rollouts {
		if carries(r.wasLatest) {
			n--
		}
		if r.cur != nil && r.latest != nil && carries(r.latest.cur) {
			n++
		}
	}
	return n
}

func (w *work) sequence(rolloutID string) *sequenceEntry {
	e := w.sequences[rolloutID]
	if e == nil {
		e = w.freeSequences.next()
		e.RolloutID = rolloutID
		w.sequences[rolloutID] = e
	}
	return e
}

func (w *work) setSequence(e *sequenceEntry, last int64) {
	e.Last = last
	if !e.changed {
		e.changed = true
		w.changedSequences = append(w.changedSequences, e)
	}
}

// attempted is the snapshot to answer with.
func (e *rolloutEntry) attempted() agl.AttemptedRollout {
	out := agl.AttemptedRollout{Rollout: *e.cur}
	if e.latest != nil {
		out.Attempt = e.latest.cur
	}
	return out
}

// collect turns the state into the changes to apply, one event for each status
// that is not what it was before the batch.
func (w *work) collect() *Changes {
	c := &w.changes
	c.Now = w.now
	for _, e := range w.changedRollouts {
		switch {
		case e.cur == nil:
			if e.was != nil {
				c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: e.was.RolloutID, Status: "deleted"})
			}
			continue
		case e.was == nil || e.was.Status != e.cur.Status:
			c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: e.cur.RolloutID, Status: string(e.cur.Status)})
		}
		c.Rollouts = append(c.Rollouts, RolloutChange{Rollout: e.cur, New: e.was == nil, Front: e.front})
	}
	for _, e := range w.changedAttempts {
		key := AttemptKey{e.cur.RolloutID, e.cur.AttemptID}
		if w.rollout(key.RolloutID) == nil {
			continue
		}
		if e.returned {
			c.ReturnedAttempts = append(c.ReturnedAttempts, key)
			continue
		}
		c.Attempts = append(c.Attempts, AttemptChange{Attempt: e.cur, New: e.was == nil})
		if e.was == nil || e.was.Status != e.cur.Status {
			c.Events = append(c.Events, agl.Event{
				Kind: agl.EventAttempt, RolloutID: key.RolloutID, AttemptID: key.AttemptID, Status: string(e.cur.Status),
			})
		}
	}
	for _, e := range w.changedWorkers {
		c.Workers = append(c.Workers, e.cur)
		if e.was == nil || e.was.Status != e.cur.Status {
			c.Events = append(c.Events, agl.Event{Kind: agl.EventWorker, WorkerID: e.cur.WorkerID, Status: string(e.cur.Status)})
		}
	}
	for _, e := range w.changedSequences {
		if w.sequences[e.RolloutID] == e {
			c.Sequences = append(c.Sequences, e.Sequence)
		}
	}
	return c
}

// dirty reports whether there is anything to apply.
func (w *work) dirty() bool {
	c := &w.changes
	return len(w.changedRollouts)+len(w.changedAttempts)+len(w.changedWorkers)+len(w.changedSequences)+
		len(c.Resources)+len(c.Spans)+len(c.Keys)+len(c.ForgottenKeys)+len(c.EvictedRollouts) > 0 || c.QueueClosed.Valid
}
