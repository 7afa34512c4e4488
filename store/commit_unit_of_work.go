package store

import (
	"context"
	"slices"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
)

// unitOfWork is the state of one batch: what was loaded from the driver and what
// the batch's commands have changed so far. Only the goroutine that runs the batch
// uses it. reset prepares it for the next batch.
type unitOfWork struct {
	now    agl.Timestamp
	limits limits
	want   driver.LoadParams
	loaded driver.Loaded

	rollouts  map[string]*rolloutEntry
	attempts  map[driver.AttemptKey]*attemptEntry
	workers   map[string]*workerEntry
	resources map[string]*agl.ResourcesUpdate
	sequences map[string]*sequenceEntry
	spans     map[driver.SpanKey]struct{}
	keys      map[string]driver.IdempotencyRecord
	documents map[driver.DocumentKey]*documentEntry
	issued    *issueTimes // of all batches

	usedResources   map[string]struct{} // unfinished rollouts name them
	latestResources agl.Null[string]
	queueClosed     bool
	spanRoom        agl.Null[int64]

	// What was changed, in the order of the first change.
	changedRollouts  []*rolloutEntry
	changedAttempts  []*attemptEntry
	changedWorkers   []*workerEntry
	changedSequences []*sequenceEntry
	changedDocuments []*documentEntry
	queued           []*rolloutEntry // became queued in this batch
	changes          driver.Changes
	spanLayouts      []*spandelta.Layout // of changes.Spans
	lateSpans        []lateSpans

	// Blocked dequeues, which are answered after the commit.
	served   []*waiter // got an answer in this batch
	blocked  []*waiter // start to wait with this batch
	released bool      // the queue is closed: every waiter gets its answer

	rolloutEntries  arena[rolloutEntry]
	attemptEntries  arena[attemptEntry]
	workerEntries   arena[workerEntry]
	sequenceEntries arena[sequenceEntry]
}

// rolloutEntry is a rollout before the batch and now.
type rolloutEntry struct {
	was, cur  *agl.Rollout // was is nil for a new rollout, cur for a deleted one
	wasLatest *agl.Attempt
	latest    *attemptEntry
	changed   bool
	front     bool // queue it at the head
}

type attemptEntry struct {
	was, cur *agl.Attempt
	changed  bool
	returned bool // the claim was returned
}

type workerEntry struct {
	was, cur *agl.Worker
	live     int // live attempts with its id, before the batch
	changed  bool
}

type sequenceEntry struct {
	driver.Sequence

	changed bool
}

// reset prepares w for a new batch, reusing the memory of the last one.
func (w *unitOfWork) reset(now agl.Timestamp, l limits) {
	*w = unitOfWork{
		now:    now,
		limits: l,
		want: driver.LoadParams{
			Now:          now,
			Rollouts:     emptied(w.want.Rollouts),
			Attempts:     emptied(w.want.Attempts),
			SpanAttempts: emptied(w.want.SpanAttempts),
			Workers:      emptied(w.want.Workers),
			Sequences:    emptied(w.want.Sequences),
			Spans:        emptied(w.want.Spans),
			Documents:    emptied(w.want.Documents),
		},
		loaded: w.loaded,

		rollouts:      cleared(w.rollouts),
		attempts:      cleared(w.attempts),
		workers:       cleared(w.workers),
		resources:     cleared(w.resources),
		sequences:     cleared(w.sequences),
		spans:         cleared(w.spans),
		keys:          cleared(w.keys),
		documents:     cleared(w.documents),
		issued:        w.issued,
		usedResources: cleared(w.usedResources),

		changedRollouts:  emptied(w.changedRollouts),
		changedAttempts:  emptied(w.changedAttempts),
		changedWorkers:   emptied(w.changedWorkers),
		changedSequences: emptied(w.changedSequences),
		changedDocuments: emptied(w.changedDocuments),
		queued:           emptied(w.queued),
		spanLayouts:      emptied(w.spanLayouts),
		lateSpans:        emptied(w.lateSpans),
		changes: driver.Changes{
			Rollouts:  emptied(w.changes.Rollouts),
			Attempts:  emptied(w.changes.Attempts),
			Workers:   emptied(w.changes.Workers),
			Spans:     emptied(w.changes.Spans),
			Sequences: emptied(w.changes.Sequences),
			Events:    emptied(w.changes.Events),
		},

		rolloutEntries:  emptied(w.rolloutEntries),
		attemptEntries:  emptied(w.attemptEntries),
		workerEntries:   emptied(w.workerEntries),
		sequenceEntries: emptied(w.sequenceEntries),
	}
}

// arena allocates zero values from memory that emptied reclaims all at once.
type arena[T any] []T

func (a *arena[T]) next() *T {
	n := len(*a)
	if n == cap(*a) { // earlier values stay in their old chunk
		*a, n = make(arena[T], 0, max(2*n, 16)), 0
	}
	*a = (*a)[:n+1]
	return &(*a)[n]
}

// maxKeptSlice and maxKeptMap are the largest sizes for which memory is kept for the next batch. Clearing a map takes
// time proportional to the most that it ever held.
const (
	maxKeptSlice = 1024
	maxKeptMap   = 64
)

func emptied[S ~[]T, T any](s S) S {
	if cap(s) > maxKeptSlice {
		return nil
	}
	clear(s)
	return s[:0]
}

func cleared[K comparable, V any](m map[K]V) map[K]V {
	if m == nil || len(m) > maxKeptMap {
		return map[K]V{}
	}
	clear(m)
	return m
}

// load reads what the commands want.
func (w *unitOfWork) load(ctx context.Context, tx driver.Tx) error {
	got := w.emptyLoaded()
	if err := tx.Load(ctx, &w.want, got); err != nil {
		return err
	}
	w.latestResources, w.queueClosed, w.spanRoom = got.LatestResources, got.QueueClosed, got.SpanRoom
	w.add(got)
	return nil
}

// emptyLoaded returns the memory for a load.
func (w *unitOfWork) emptyLoaded() *driver.Loaded {
	w.loaded = driver.Loaded{
		Rollouts:  emptied(w.loaded.Rollouts),
		Attempts:  emptied(w.loaded.Attempts),
		Workers:   emptied(w.loaded.Workers),
		Sequences: emptied(w.loaded.Sequences),
	}
	return &w.loaded
}

// add adds what was loaded, except what the batch already has: a second load must not undo the batch's changes.
func (w *unitOfWork) add(got *driver.Loaded) {
	for _, a := range got.Attempts {
		key := driver.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
		if w.attempts[key] == nil {
			e := w.attemptEntries.next()
			e.was, e.cur = a, a
			w.attempts[key] = e
		}
	}
	for _, r := range got.Rollouts {
		if w.rollouts[r.Rollout.RolloutID] != nil {
			continue
		}
		e := w.rolloutEntries.next()
		e.was, e.cur = r.Rollout, r.Rollout
		if r.Latest != "" {
			e.latest = w.attempts[driver.AttemptKey{RolloutID: r.Rollout.RolloutID, AttemptID: r.Latest}]
			e.wasLatest = e.latest.was
		}
		w.rollouts[r.Rollout.RolloutID] = e
	}
	for _, worker := range got.Workers {
		if w.workers[worker.WorkerID] == nil {
			e := w.workerEntries.next()
			e.was, e.cur, e.live = worker.Worker, worker.Worker, worker.LiveAttempts
			w.workers[worker.WorkerID] = e
		}
	}
	for _, u := range got.Resources {
		if w.resources[u.ResourcesID] == nil {
			w.resources[u.ResourcesID] = u
		}
	}
	for _, s := range got.Sequences {
		if w.sequences[s.RolloutID] == nil {
			w.sequence(s.RolloutID).Last = s.Last
		}
	}
	for _, k := range got.Spans {
		w.spans[k] = struct{}{}
	}
	for _, d := range got.Documents {
		if key := (driver.DocumentKey{Kind: d.Kind, ID: d.ID}); w.documents[key] == nil {
			w.documents[key] = &documentEntry{key: key, was: d, cur: d}
		}
	}
	for _, id := range got.InUse {
		w.usedResources[id] = struct{}{}
	}
	for _, k := range got.Keys {
		if _, known := w.keys[k.Scope]; !known {
			w.keys[k.Scope] = k
		}
	}
}

// rollout returns a rollout that exists, or nil.
func (w *unitOfWork) rollout(id string) *rolloutEntry {
	e := w.rollouts[id]
	if e == nil || e.cur == nil {
		return nil
	}
	return e
}

// attempt returns an attempt that exists, or nil.
func (w *unitOfWork) attempt(rolloutID, attemptID string) *attemptEntry {
	e := w.attempts[driver.AttemptKey{RolloutID: rolloutID, AttemptID: attemptID}]
	if e == nil || e.returned || w.rollout(rolloutID) == nil {
		return nil
	}
	return e
}

func (w *unitOfWork) addRollout(r *agl.Rollout) *rolloutEntry {
	e := w.rolloutEntries.next()
	w.rollouts[r.RolloutID] = e
	w.setRollout(e, r)
	return e
}

func (w *unitOfWork) setRollout(e *rolloutEntry, r *agl.Rollout) {
	if r.Status.Queued() && (e.cur == nil || !e.cur.Status.Queued()) {
		w.queued = append(w.queued, e)
	}
	e.cur = r
	if !e.changed {
		e.changed = true
		w.changedRollouts = append(w.changedRollouts, e)
	}
}

// deleteRollout deletes a rollout. superseded are the workers that may be busy with an attempt other than its latest.
func (w *unitOfWork) deleteRollout(e *rolloutEntry, superseded []string) {
	id := e.cur.RolloutID
	if e.latest != nil {
		w.releaseWorker(e.latest.cur.WorkerID.V, e.latest.cur)
	}
	for _, worker := range superseded {
		if busy := w.worker(worker); busy.cur.CurrentRolloutID == agl.Some(id) {
			w.setWorker(busy, workerReleased(*busy.cur, agl.WorkerIdle, w.now))
		}
	}
	w.setRollout(e, e.cur)
	e.cur = nil
	w.changes.DeletedRollouts = append(w.changes.DeletedRollouts, id)
	w.changes.EvictedRollouts = slices.DeleteFunc(w.changes.EvictedRollouts, func(evicted string) bool { return evicted == id })
	delete(w.sequences, id)
}

// addAttempt adds an attempt, which becomes the latest of its rollout.
func (w *unitOfWork) addAttempt(e *rolloutEntry, a *agl.Attempt) *attemptEntry {
	ae := w.attemptEntries.next()
	w.attempts[driver.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}] = ae
	e.latest = ae
	w.setAttempt(ae, a)
	return ae
}

func (w *unitOfWork) setAttempt(e *attemptEntry, a *agl.Attempt) {
	e.cur = a
	if !e.changed {
		e.changed = true
		w.changedAttempts = append(w.changedAttempts, e)
	}
}

// worker returns a worker. One that does not exist is created, but not stored before setWorker.
func (w *unitOfWork) worker(id string) *workerEntry {
	e := w.workers[id]
	if e == nil {
		e = w.workerEntries.next()
		w.workers[id] = e
	}
	if e.cur == nil {
		worker := newWorker(id)
		e.cur = &worker
	}
	return e
}

func (w *unitOfWork) setWorker(e *workerEntry, worker agl.Worker) {
	e.cur = &worker
	if !e.changed {
		e.changed = true
		w.changedWorkers = append(w.changedWorkers, e)
	}
}

// syncWorker updates the worker whose id the attempt carries, if any.
func (w *unitOfWork) syncWorker(a *agl.Attempt) {
	if a.WorkerID.V == "" {
		return
	}
	e := w.worker(a.WorkerID.V)
	if worker, changed := workerFollows(*e.cur, a, w.now); changed {
		w.setWorker(e, worker)
	}
}

// releaseWorker frees a worker from an attempt that is no longer its own.
func (w *unitOfWork) releaseWorker(id string, a *agl.Attempt) {
	if id == "" {
		return
	}
	if e := w.worker(id); worksOn(e.cur, a) {
		w.setWorker(e, workerReleased(*e.cur, agl.WorkerIdle, w.now))
	}
}

// liveAttempts counts the live attempts that carry a worker's id now, each the
// latest of its rollout.
func (w *unitOfWork) liveAttempts(e *workerEntry) int {
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

// lastID returns the last sequence id; e may be nil.
func (e *sequenceEntry) lastID() int64 {
	if e == nil {
		return 0
	}
	return e.Last
}

func (w *unitOfWork) sequence(rolloutID string) *sequenceEntry {
	e := w.sequences[rolloutID]
	if e == nil {
		e = w.sequenceEntries.next()
		e.RolloutID = rolloutID
		w.sequences[rolloutID] = e
	}
	return e
}

func (w *unitOfWork) setSequence(e *sequenceEntry, last int64) {
	e.Last = last
	if !e.changed {
		e.changed = true
		w.changedSequences = append(w.changedSequences, e)
	}
}

// latestAttempt returns the latest attempt now, nil if there is none.
func (e *rolloutEntry) latestAttempt() *agl.Attempt {
	if e.latest == nil {
		return nil
	}
	return e.latest.cur
}

// attempted returns the snapshot for callers.
func (e *rolloutEntry) attempted() agl.AttemptedRollout {
	return agl.AttemptedRollout{Rollout: *e.cur, Attempt: e.latestAttempt()}
}

// dropSpans forgets the new spans of an attempt: a reward may be posted while its claim is returned.
func (w *unitOfWork) dropSpans(of driver.AttemptKey) {
	c := &w.changes
	for i := len(c.Spans) - 1; i >= 0; i-- {
		if s := &c.Spans[i]; s.RolloutID == of.RolloutID && s.AttemptID == of.AttemptID {
			c.Spans, w.spanLayouts = slices.Delete(c.Spans, i, i+1), slices.Delete(w.spanLayouts, i, i+1)
		}
	}
}

// lateSpans counts the new spans of an attempt whose rollout had finished.
type lateSpans struct {
	key      driver.AttemptKey
	training bool // they are what a learner has computed
	count    int
}

// countLate counts a new span, if its rollout had finished.
func (w *unitOfWork) countLate(r *agl.Rollout, one lateSpans) {
	if !r.Status.Finished() {
		return
	}
	for i := range w.lateSpans {
		if known := &w.lateSpans[i]; known.key == one.key && known.training == one.training {
			known.count++
			return
		}
	}
	one.count = 1
	w.lateSpans = append(w.lateSpans, one)
}

// collect turns the entries into the changes to apply, with an event for each status that the batch changed.
func (w *unitOfWork) collect() *driver.Changes {
	c := &w.changes
	c.Now = w.now
	for _, e := range w.changedRollouts {
		switch {
		case e.cur == nil:
			if e.was != nil {
				c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: e.was.RolloutID, Status: eventDeleted})
			}
			continue
		case e.was == nil || e.was.Status != e.cur.Status:
			c.Events = append(c.Events, agl.Event{Kind: agl.EventRollout, RolloutID: e.cur.RolloutID, Status: string(e.cur.Status)})
		}
		c.Rollouts = append(c.Rollouts, driver.RolloutChange{Rollout: e.cur, New: e.was == nil, Front: e.front})
	}
	for _, e := range w.changedAttempts {
		key := driver.AttemptKey{RolloutID: e.cur.RolloutID, AttemptID: e.cur.AttemptID}
		if w.rollout(key.RolloutID) == nil {
			continue
		}
		if e.returned {
			c.ReturnedAttempts = append(c.ReturnedAttempts, key)
			continue
		}
		c.Attempts = append(c.Attempts, driver.AttemptChange{Attempt: e.cur, New: e.was == nil})
		if e.was == nil || e.was.Status != e.cur.Status {
			c.Events = append(c.Events, agl.Event{
				Kind: agl.EventAttempt, RolloutID: key.RolloutID, AttemptID: key.AttemptID, Status: string(e.cur.Status),
			})
		}
	}
	for _, late := range w.lateSpans {
		kind := agl.EventSpans
		if late.training {
			kind = agl.EventTraining
		}
		c.Events = append(c.Events, agl.Event{
			Kind: kind, RolloutID: late.key.RolloutID, AttemptID: late.key.AttemptID, Status: strconv.Itoa(late.count),
		})
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
	for _, e := range w.changedDocuments {
		e.collect(c)
	}
	return c
}

// eventDeleted is the status in an event about a deletion.
const eventDeleted = "deleted"

// dirty reports whether there is anything to apply.
func (w *unitOfWork) dirty() bool {
	c := &w.changes
	return len(w.changedRollouts)+len(w.changedAttempts)+len(w.changedWorkers)+len(w.changedSequences)+len(w.changedDocuments)+
		len(c.Resources)+len(c.Spans)+len(c.Keys)+len(c.ForgottenKeys)+
		len(c.EvictedRollouts)+len(c.DeletedWorkers)+len(c.DeletedResources)+len(c.DeletedSequences)+len(c.DeletedDocuments) > 0 || c.QueueClosed.Valid || c.LatestResources.Valid
}
