package sqlite

import (
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// tx is one commit in the making. It first computes the new rows in memory, then
// writes each changed row once, and publishes them to the cache after the commit.
type tx struct {
	d      *Driver
	l      loader
	c      *driver.Changes
	state  state  // after the commit
	oldest oldest // after the commit

	rollouts map[string]*rolloutWork
	order    []*rolloutWork
	workers  []*workerRow
	bundles  []*resourcesRow
	spans    []spanWork
	buckets  map[bucketKey]int64 // changes of the span counts
	garbage  []int64             // dropped streams
	ghosts   []driver.Sequence   // sequences of rollouts that do not exist
	revived  []string            // rollouts that had such a sequence and are created now
}

// rolloutWork is the pending change of a rollout.
type rolloutWork struct {
	id       string
	was      *rolloutRow // before the commit; nil for a new rollout
	row      rolloutRow
	latest   *attemptWork
	attempts []*attemptWork  // those that were looked up, and the latest
	last     agl.Null[int64] // last sequence id
	dirty    bool            // the row must be written
	body     bool            // the documents must be written, too
	deleted  bool
}

// attemptWork is the pending change of an attempt.
type attemptWork struct {
	was     *attemptRow // before the commit; nil for a new attempt
	row     attemptRow
	dirty   bool
	deleted bool
	added   []*driver.SpanRecord
}

// spanWork is a span to insert.
type spanWork struct {
	record *driver.SpanRecord
	stream int64
}

type bucketKey struct{ stream, bucket int64 }

// Apply implements driver.Tx.
func (b *batch) Apply(ctx context.Context, changes *driver.Changes) error {
	d := b.driver
	d.writing.Lock()
	defer d.writing.Unlock()
	err := d.apply(ctx, changes)
	if err != nil || d.failed != nil {
		d.note(err)
	}
	return fault(d.path, err)
}

func (d *Driver) apply(ctx context.Context, changes *driver.Changes) error {
	t := &tx{d: d, l: loader{d: d}, c: changes, state: d.state, oldest: d.oldest, rollouts: map[string]*rolloutWork{}, buckets: map[bucketKey]int64{}}
	if err := t.plan(ctx); err != nil {
		return err
	}
	if !t.dirty() {
		t.publish()
		return nil
	}
	c, err := t.l.conn(ctx)
	if err != nil {
		return err
	}
	if err := d.commit(ctx, c, func() error { return t.write(ctx, c) }, t.publish); err != nil {
		return err
	}
	// The commit stands even if the checkpoint fails.
	if err := d.boundLog(ctx, c); err != nil {
		d.config.Logger.WarnContext(ctx, "the write-ahead log could not be written to the database; it goes on growing", "file", d.path, "error", err)
		if broken(err) {
			d.retire(c)
		}
	}
	return nil
}

// dirty reports whether there is anything to write. Sequence ids inside their block
// need no write.
func (t *tx) dirty() bool {
	if t.state != t.d.state || len(t.spans)+len(t.workers)+len(t.bundles)+len(t.garbage)+len(t.ghosts)+len(t.c.Keys)+len(t.c.ForgottenKeys)+
		len(t.c.DeletedWorkers)+len(t.c.DeletedResources)+len(t.c.DeletedSequences)+len(t.c.Documents)+len(t.c.DeletedDocuments) > 0 {
		return true
	}
	for _, w := range t.order {
		if w.dirty || w.deleted || slices.ContainsFunc(w.attempts, func(a *attemptWork) bool { return a.dirty }) {
			return true
		}
	}
	return false
}

// plan computes the new rows, in the order of driver.Changes.
func (t *tx) plan(ctx context.Context) error {
	c := t.c
	if err := each(ctx, c.Rollouts, t.planRollout); err != nil {
		return err
	}
	// Of several rollouts that go to the front, the first one is in front.
	for i := range slices.Backward(c.Rollouts) {
		if change := &c.Rollouts[i]; change.Front {
			if w := t.rollouts[change.Rollout.RolloutID]; w.row.cur.Status.Queued() && w.row.place == 0 {
				t.state.firstPlace--
				w.row.place = t.state.firstPlace
			}
		}
	}
	t.state.queueClosed = c.QueueClosed.Or(t.state.queueClosed)
	if c.LatestResources.Valid {
		t.state.latestResources = c.LatestResources
	}
	t.state.lastEvent += int64(len(c.Events))
	for _, part := range []func() error{
		func() error { return each(ctx, c.Attempts, t.planAttempt) },
		func() error { return each(ctx, c.ReturnedAttempts, t.planReturn) },
		func() error { return each(ctx, c.Workers, t.planWorker) },
		func() error { return each(ctx, c.Resources, t.planResources) },
		func() error { return each(ctx, c.Sequences, t.planSequence) },
		func() error { return each(ctx, c.Spans, t.planSpan) },
		func() error { return each(ctx, c.EvictedRollouts, t.planEviction) },
		func() error { return each(ctx, c.DeletedRollouts, t.planDeletion) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// each calls plan for every item of a list.
func each[T any](ctx context.Context, list []T, plan func(context.Context, *T) error) error {
	for i := range list {
		if err := plan(ctx, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

// rollout returns the pending change of a rollout, nil if the rollout does not exist.
func (t *tx) rollout(ctx context.Context, id string) (*rolloutWork, error) {
	if w := t.rollouts[id]; w != nil {
		return w, nil
	}
	was, err := t.l.find(ctx, id)
	if err != nil || was == nil {
		return nil, err
	}
	w := &rolloutWork{id: id, was: was, row: *was, last: t.d.lastSequence(was)}
	if was.latest != nil {
		w.latest = &attemptWork{was: was.latest, row: *was.latest}
		w.attempts = append(w.attempts, w.latest)
	}
	t.take(w)
	return w, nil
}

func (t *tx) take(w *rolloutWork) {
	t.rollouts[w.id] = w
	t.order = append(t.order, w)
}

// known is rollout for a rollout that must exist.
func (t *tx) known(ctx context.Context, id string) (*rolloutWork, error) {
	w, err := t.rollout(ctx, id)
	if err == nil && w == nil {
		err = agl.Errorf(agl.CodeInternal, "sqlite: rollout %q is to be changed and does not exist", id)
	}
	return w, err
}

func (t *tx) planRollout(ctx context.Context, change *driver.RolloutChange) error {
	var err error
	w := t.rollouts[change.Rollout.RolloutID]
	if w == nil && !change.New { // the engine has checked that a new one does not exist
		if w, err = t.rollout(ctx, change.Rollout.RolloutID); err != nil {
			return err
		}
	}
	if w == nil {
		if w, err = t.newRollout(ctx, change.Rollout); err != nil {
			return err
		}
	} else if old := w.row.cur; !sqlstore.SameDocuments(old, change.Rollout) {
		w.body = true
	}
	w.row.cur = change.Rollout
	w.dirty = true
	switch {
	case !change.Rollout.Status.Queued():
		w.row.place = 0
	case w.row.place == 0 && !change.Front:
		t.state.lastPlace++
		w.row.place = t.state.lastPlace
	}
	return nil
}

func (t *tx) newRollout(ctx context.Context, r *agl.Rollout) (*rolloutWork, error) {
	t.state.rollouts++
	t.state.lastRollout++
	if start := float64(r.StartTime); start >= t.state.lastStart {
		t.state.lastStart = start
	} else {
		t.state.startOrdered = false
	}
	w := &rolloutWork{id: r.RolloutID, row: rolloutRow{ordinal: t.state.lastRollout}, body: true}
	if t.state.ghosts > 0 {
		var err error
		if w.last, err = t.l.ghost(ctx, w.id); err != nil {
			return nil, err
		}
		if w.last.Valid {
			t.revived = append(t.revived, w.id)
			t.state.ghosts--
		}
	}
	t.take(w)
	return w, nil
}

// attempt returns the pending change of an attempt, nil if the attempt does not exist.
func (t *tx) attempt(ctx context.Context, w *rolloutWork, id string) (*attemptWork, error) {
	for _, a := range slices.Backward(w.attempts) {
		if a.row.cur.AttemptID == id && !a.deleted {
			return a, nil
		}
	}
	if w.was == nil {
		return nil, nil //nolint:nilnil // a new rollout has none but those of this batch
	}
	row, err := t.l.findAttempt(ctx, w.was, id)
	if err != nil || row == nil {
		return nil, err
	}
	a := &attemptWork{was: row, row: *row}
	w.attempts = append(w.attempts, a)
	return a, nil
}

// knownAttempt is attempt for an attempt that must exist.
func (t *tx) knownAttempt(ctx context.Context, w *rolloutWork, id string) (*attemptWork, error) {
	a, err := t.attempt(ctx, w, id)
	if err == nil && a == nil {
		err = agl.Errorf(agl.CodeInternal, "sqlite: attempt %q of rollout %q is to be changed and does not exist", id, w.id)
	}
	return a, err
}

func (t *tx) planAttempt(ctx context.Context, change *driver.AttemptChange) error {
	cur := change.Attempt
	w, err := t.known(ctx, cur.RolloutID)
	if err != nil {
		return err
	}
	if change.New {
		t.state.attempts++
		t.state.lastAttempt++
		a := &attemptWork{dirty: true, row: attemptRow{
			ordinal: t.state.lastAttempt, cur: cur, stream: t.state.lastAttempt, ids: map[string]struct{}{},
		}}
		w.attempts = append(w.attempts, a)
		w.latest, w.dirty = a, true
		return nil
	}
	a, err := t.knownAttempt(ctx, w, cur.AttemptID)
	if err != nil {
		return err
	}
	a.row.cur, a.dirty = cur, true
	return nil
}

func (t *tx) planReturn(ctx context.Context, key *driver.AttemptKey) error {
	w, err := t.known(ctx, key.RolloutID)
	if err != nil {
		return err
	}
	a, err := t.knownAttempt(ctx, w, key.AttemptID)
	if err != nil {
		return err
	}
	a.deleted, a.dirty = true, true
	t.state.attempts--
	t.dropSpans(a)
	if err := t.allAttempts(ctx, w); err != nil {
		return err
	}
	w.row.holds = slices.ContainsFunc(w.attempts, func(other *attemptWork) bool { return !other.deleted && other.row.spans > 0 })
	w.dirty = true
	if a != w.latest {
		return nil
	}
	w.latest = nil
	for _, other := range w.attempts {
		if !other.deleted && (w.latest == nil || other.row.ordinal > w.latest.row.ordinal) {
			w.latest = other
		}
	}
	return nil
}

// allAttempts adds every attempt of a rollout to its pending change.
func (t *tx) allAttempts(ctx context.Context, w *rolloutWork) error {
	if w.was == nil {
		return nil
	}
	c, err := t.l.conn(ctx)
	if err != nil {
		return err
	}
	rows, err := readAttempts(ctx, c, w.row.ordinal, w.id)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if !slices.ContainsFunc(w.attempts, func(a *attemptWork) bool { return a.row.ordinal == row.ordinal }) {
			w.attempts = append(w.attempts, &attemptWork{was: row, row: *row})
		}
	}
	return nil
}

func (t *tx) planWorker(ctx context.Context, worker **agl.Worker) error {
	id := func(w *agl.Worker) string { return w.WorkerID }
	return planRecord(ctx, t, &t.workers, &t.state.workers, *worker, id, t.d.findWorker)
}

// planRecord replaces a worker or a bundle, or adds it to the total of them.
func planRecord[T any](
	ctx context.Context, t *tx, pending *[]*plainRow[T], total *int64, cur *T, id func(*T) string,
	find func(context.Context, *loader, string) (*plainRow[T], error),
) error {
	if i := slices.IndexFunc(*pending, func(r *plainRow[T]) bool { return id(r.cur) == id(cur) }); i >= 0 {
		(*pending)[i].cur = cur
		return nil
	}
	old, err := find(ctx, &t.l, id(cur))
	if err != nil {
		return err
	}
	r := &plainRow[T]{cur: cur}
	if old != nil {
		r.ordinal = old.ordinal
	} else {
		*total++
	}
	*pending = append(*pending, r)
	return nil
}

func (t *tx) planResources(ctx context.Context, update **agl.ResourcesUpdate) error {
	id := func(u *agl.ResourcesUpdate) string { return u.ResourcesID }
	return planRecord(ctx, t, &t.bundles, &t.state.resources, *update, id, t.d.findResources)
}

func (t *tx) planSequence(ctx context.Context, s *driver.Sequence) error {
	w, err := t.rollout(ctx, s.RolloutID)
	if err != nil {
		return err
	}
	if w == nil {
		known, err := t.l.ghost(ctx, s.RolloutID)
		if err != nil {
			return err
		}
		if !known.Valid && !slices.ContainsFunc(t.ghosts, func(g driver.Sequence) bool { return g.RolloutID == s.RolloutID }) {
			t.state.ghosts++
		}
		t.ghosts = append(t.ghosts, *s)
		return nil
	}
	w.last = agl.Some(s.Last)
	if w.was == nil || w.was.boot != t.state.boot || !inBlock(w.was.sequence.V, s.Last) {
		w.dirty = true
	}
	return nil
}

// inBlock reports whether a sequence id needs no write: it is within the block whose
// start is on disk.
func inBlock(written, last int64) bool {
	return last <= written || uint64(last)-uint64(written) <= sequenceBlock
}

func (t *tx) planSpan(ctx context.Context, s *driver.SpanRecord) error {
	w, err := t.known(ctx, s.RolloutID)
	if err != nil {
		return err
	}
	a, err := t.knownAttempt(ctx, w, s.AttemptID)
	if err != nil {
		return err
	}
	t.spans = append(t.spans, spanWork{s, a.row.stream})
	if bucket := s.SequenceID >> bucketBits; bucket != 0 {
		t.buckets[bucketKey{a.row.stream, bucket}]++
	}
	size := int64(len(s.Payload))
	a.row.spans++
	a.row.bytes += size
	a.added = append(a.added, s)
	a.dirty = true
	t.state.spans++
	t.state.spanBytes += size
	if !w.row.holds {
		w.row.holds, w.dirty = true, true
	}
	return nil
}

// dropSpans removes the spans of an attempt by giving it a new stream. Later commits
// delete the old stream in small steps.
func (t *tx) dropSpans(a *attemptWork) {
	if a.row.spans == 0 {
		return
	}
	t.state.spans -= a.row.spans
	t.state.spanBytes -= a.row.bytes
	t.garbage = append(t.garbage, a.row.stream)
	t.state.lastAttempt++
	a.row.stream = t.state.lastAttempt
	a.row.spans, a.row.bytes = 0, 0
	a.row.ids, a.added = map[string]struct{}{}, nil
	a.dirty = true
}

func (t *tx) planEviction(ctx context.Context, id *string) error {
	w, err := t.known(ctx, *id)
	if err != nil {
		return err
	}
	if err := t.allAttempts(ctx, w); err != nil {
		return err
	}
	for _, a := range w.attempts {
		if !a.deleted {
			t.dropSpans(a)
		}
	}
	w.row.holds, w.row.evicted, w.dirty = false, true, true
	return nil
}

func (t *tx) planDeletion(ctx context.Context, id *string) error {
	w, err := t.rollout(ctx, *id)
	if err != nil || w == nil || w.deleted {
		return err
	}
	if err := t.allAttempts(ctx, w); err != nil {
		return err
	}
	for _, a := range w.attempts {
		if !a.deleted {
			t.dropSpans(a)
			t.state.attempts--
			a.deleted, a.dirty = true, true
		}
	}
	w.deleted = true
	w.latest = nil
	t.state.rollouts--
	return nil
}

// settle sets the columns about sequence ids before the row is written.
func (t *tx) settle(w *rolloutWork) {
	w.row.sequence, w.row.boot = w.last, 0
	if s := w.row.cur.Status; s == agl.RolloutPreparing || s == agl.RolloutRunning {
		w.row.boot = t.state.boot
	}
}
