package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// The rows that a Load locks. The arguments are: $1 rollouts, $2 workers, $3 rollouts whose
// workers are not needed. A statement that waits for a locked row sees its new version, but
// joins it with old versions of other rows. So each table has a statement of its own, which
// starts when the previous one has its locks.
const (
	// The named rollouts, and the current rollouts of the named workers.
	wantedRollouts = `($1::text[] || ARRAY(SELECT w.current_rollout_id FROM workers w
		WHERE w.worker_id = ANY($2::text[]) AND w.current_rollout_id IS NOT NULL))`
	// The named workers, and the workers of the rollouts' attempts.
	wantedWorkers = `($2::text[] || ARRAY(SELECT a.worker_id FROM attempts a
		WHERE a.rollout_id = ANY(` + wantedRollouts + `) AND a.worker_id IS NOT NULL))`

	lockRollouts = `SELECT ` + rolloutColumns + ` FROM rollouts r WHERE r.rollout_id = ANY(` + wantedRollouts + ` || $3::text[])
		ORDER BY r.rollout_id FOR UPDATE`
	readAttempts = `SELECT ` + attemptColumns + ` FROM attempts a WHERE a.rollout_id = ANY(` + wantedRollouts + ` || $3::text[])
		ORDER BY a.rollout_id, a.sequence_id, a.ordinal`
	lockWorkers = `SELECT ` + workerColumns + ` FROM workers w WHERE w.worker_id = ANY(` + wantedWorkers + `)
		ORDER BY w.worker_id FOR UPDATE`
	lockSequences = `SELECT q.rollout_id, q.last FROM sequences q WHERE q.rollout_id = ANY($1::text[]) ORDER BY q.rollout_id FOR UPDATE`
	lockResources = `SELECT ` + resourcesColumns + ` FROM resources u WHERE u.resources_id = ANY($1::text[])
		ORDER BY u.resources_id FOR UPDATE`
)

// Other statements of a Load.
const (
	countLive = `SELECT a.worker_id, count(*) FROM attempts a
		WHERE a.worker_id = ANY(` + wantedWorkers + `) AND a.status IN ('preparing', 'running') AND NOT EXISTS (
			SELECT FROM attempts b WHERE b.rollout_id = a.rollout_id AND b.sequence_id > a.sequence_id)
		GROUP BY a.worker_id`
	existingRollouts = `SELECT FROM rollouts WHERE rollout_id = ANY($1::text[])`

	// A restored backup gets this row after nearly all others, and these indexes at the end.
	readStore = `SELECT queue_closed, latest_resources FROM store
		WHERE to_regclass('rollouts_by_ordinal') IS NOT NULL AND to_regclass('spans_in_order') IS NOT NULL`
	// A plan made for an empty table might scan all spans of a rollout for one key. The
	// expression on rollout_id keeps that index out of the plan.
	readSpans = `SELECT s.rollout_id, s.attempt_id, s.span_id
		FROM unnest($1::text[], $2::text[], $3::text[]) v (rollout_id, attempt_id, span_id)
		JOIN spans s ON s.attempt_id = v.attempt_id AND s.span_id = v.span_id AND s.rollout_id || '' = v.rollout_id`
	// The indexes of the live and of the queued rollouts have all that are unfinished.
	readUsed = `SELECT u.id FROM unnest($1::text[]) u (id)
		WHERE EXISTS (SELECT FROM rollouts r WHERE r.resources_id = u.id AND r.status IN ('preparing', 'running'))
			OR EXISTS (SELECT FROM rollouts r WHERE r.resources_id = u.id AND r.place IS NOT NULL)`
	// They are locked, since a dequeue at one server and the return of its claims at another depend on the same record.
	readKeys = `SELECT ` + keyColumns + ` FROM idempotency k WHERE k.scope = ANY($1::text[]) ORDER BY k.scope FOR UPDATE`

	claimRollouts = `SELECT r.place, r.attempts, ` + rolloutColumns + ` FROM rollouts r
		WHERE r.place > $1::int8 ORDER BY r.place LIMIT $2::int8 FOR UPDATE SKIP LOCKED`
	countQueued = `SELECT count(*) FROM (SELECT FROM rollouts r
		WHERE r.place > $1::int8 ORDER BY r.place LIMIT $2::int8) q`
)

// found holds the rows that one Load or Claim has read.
type found struct {
	rollouts []*agl.Rollout
	attempts map[string][]*agl.Attempt // by rollout, in order
	workers  map[string]*agl.Worker
	live     map[string]int  // by worker
	alone    map[string]bool // rollouts that are wanted without the workers of their attempts
}

func newFound() *found {
	return &found{attempts: map[string][]*agl.Attempt{}, workers: map[string]*agl.Worker{}, live: map[string]int{}, alone: map[string]bool{}}
}

// Load implements driver.Tx.
func (b *batch) Load(ctx context.Context, want *driver.LoadParams, got *driver.Loaded) error {
	bounded, cancel := b.driver.config.bound(ctx)
	defer cancel()
	ids := slices.Clone(want.Rollouts)
	for _, key := range want.Attempts {
		ids = append(ids, key.RolloutID)
	}
	ids, workers := unique(ids), unique(want.Workers)
	f := newFound()
	for _, key := range want.SpanAttempts {
		if _, found := slices.BinarySearch(ids, key.RolloutID); !found {
			f.alone[key.RolloutID] = true
		}
	}
	alone := slices.Sorted(maps.Keys(f.alone))
	calls := b.loadNouns(f, ids, workers, alone)
	complete := false
	calls = append(calls, call{readStore, nil, func(r *row) error {
		complete = true
		got.QueueClosed, got.LatestResources = r.bool(), r.nullText()
		return nil
	}})
	calls = b.loadRest(calls, want, got)
	if err := b.run(bounded, calls); err != nil {
		return batchFailed(ctx, "load", err)
	}
	if !complete {
		return errIncomplete
	}
	b.loaded = true
	b.remember(f, append(ids, alone...), workers)
	if err := b.checkLocked(bounded, f, workers); err != nil {
		return batchFailed(ctx, "load", err)
	}
	b.deliver(f, want, workers, got)
	return nil
}

// unique returns the sorted ids without repetitions.
func unique(ids []string) []string {
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}

// locking returns a statement that locks rows. After the first Load of a batch it fails
// instead of waiting for a lock.
func (b *batch) locking(sql string) string {
	if b.loaded {
		return sql + noWait
	}
	return sql
}

const noWait = ` NOWAIT`

// loadNouns reads rollouts with their attempts, the workers of these, and the named
// workers; and the rollouts alone with their attempts, but without the workers.
func (b *batch) loadNouns(f *found, rollouts, workers, alone []string) (calls []call) {
	p := &b.params
	args := [][]byte{textsParam(p, rollouts), textsParam(p, workers)}
	if len(rollouts)+len(workers)+len(alone) > 0 {
		all := append(slices.Clip(args), textsParam(p, alone))
		calls = append(calls, call{b.locking(lockRollouts), all, f.addRollout}, call{readAttempts, all, f.addAttempt})
	}
	if len(rollouts)+len(workers) > 0 {
		calls = append(calls, call{b.locking(lockWorkers), args, f.addWorker}, call{countLive, args, f.addLive})
	}
	return calls
}

func (f *found) addRollout(r *row) error {
	out, err := r.rollout()
	f.rollouts = append(f.rollouts, out)
	return err
}

func (f *found) addAttempt(r *row) error {
	a := r.attempt()
	f.attempts[a.RolloutID] = append(f.attempts[a.RolloutID], a)
	return nil
}

func (f *found) addWorker(r *row) error {
	w := r.worker()
	f.workers[w.WorkerID] = w
	return nil
}

func (f *found) addLive(r *row) error {
	id := r.text()
	f.live[id] = int(r.int8())
	return nil
}

// loadRest reads the rows that are independent of others.
func (b *batch) loadRest(calls []call, want *driver.LoadParams, got *driver.Loaded) []call {
	// look adds a call that reads the rows with these ids. An id is missing in found until each has read its row.
	look := func(sql string, ids []string, found map[string]bool, each func(r *row) error) {
		if ids = unique(ids); len(ids) == 0 {
			return
		}
		for _, id := range ids {
			found[id] = false
		}
		calls = append(calls, call{sql, [][]byte{textsParam(&b.params, ids)}, each})
	}
	look(b.locking(lockSequences), want.Sequences, b.sequences, func(r *row) error {
		s := driver.Sequence{RolloutID: r.text(), Last: r.int8()}
		b.sequences[s.RolloutID] = true
		got.Sequences = append(got.Sequences, s)
		return nil
	})
	look(b.locking(lockResources), want.Resources, b.resources, func(r *row) error {
		u, err := r.resources()
		if err == nil {
			b.resources[u.ResourcesID] = true
			got.Resources = append(got.Resources, u)
		}
		return err
	})
	calls = b.loadDocuments(calls, want.Documents, got)
	if len(want.Spans) > 0 {
		p := &b.params
		calls = append(calls, call{readSpans, [][]byte{
			textArray(p, want.Spans, func(k driver.SpanKey) string { return k.RolloutID }),
			textArray(p, want.Spans, func(k driver.SpanKey) string { return k.AttemptID }),
			textArray(p, want.Spans, func(k driver.SpanKey) string { return k.SpanID }),
		}, func(r *row) error {
			got.Spans = append(got.Spans, driver.SpanKey{RolloutID: r.text(), AttemptID: r.text(), SpanID: r.text()})
			return nil
		}})
	}
	if len(want.ResourcesInUse) > 0 {
		calls = append(calls, call{readUsed, [][]byte{textsParam(&b.params, want.ResourcesInUse)}, func(r *row) error {
			got.InUse = append(got.InUse, r.text())
			return nil
		}})
	}
	look(readKeys, want.Keys, b.keys, func(r *row) error {
		record, err := r.key()
		switch {
		case err != nil:
		case want.Now.Sub(record.CreateTime) > b.driver.config.IdempotencyTTL:
			b.expired = append(b.expired, record)
		default:
			b.keys[record.Scope] = true
			got.Keys = append(got.Keys, record)
		}
		return err
	})
	return calls
}

// remember records which rows are locked, and which do not exist.
func (b *batch) remember(f *found, rollouts, workers []string) {
	for _, id := range rollouts {
		b.rollouts[id] = nil
	}
	for _, id := range workers {
		b.workers[id] = false
	}
	for _, r := range f.rollouts {
		b.rollouts[r.RolloutID] = r
	}
	for id := range f.workers {
		b.workers[id] = true
	}
}

var errMoved = errors.New("a worker has moved on to a rollout that is not locked")

// checkLocked ensures that the current rollouts of the named workers are locked. They
// were looked up before the workers were locked, and may have changed until then.
func (b *batch) checkLocked(ctx context.Context, f *found, workers []string) error {
	var open []string
	for _, id := range workers {
		if w := f.workers[id]; w != nil && w.CurrentRolloutID.Valid {
			if _, locked := b.rollouts[w.CurrentRolloutID.V]; !locked {
				open = append(open, w.CurrentRolloutID.V)
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	// A deleted rollout needs no lock.
	moved := false
	err := b.run(ctx, []call{{existingRollouts, [][]byte{textsParam(&b.params, open)}, func(*row) error {
		moved = true
		return nil
	}}})
	if err == nil && moved {
		err = retry("load", errMoved)
	}
	return err
}

// deliver adds the found rows that want asks for to got.
func (b *batch) deliver(f *found, want *driver.LoadParams, workers []string, got *driver.Loaded) {
	wanted := make(map[driver.AttemptKey]bool, len(want.Attempts)+len(want.SpanAttempts))
	for _, keys := range [][]driver.AttemptKey{want.Attempts, want.SpanAttempts} {
		for _, key := range keys {
			wanted[key] = true
		}
	}
	for _, id := range workers {
		if w := f.workers[id]; w != nil && w.CurrentAttemptID.Valid {
			wanted[driver.AttemptKey{RolloutID: w.CurrentRolloutID.V, AttemptID: w.CurrentAttemptID.V}] = true
		}
	}
	named := make(map[string]bool, len(workers))
	for _, id := range workers {
		named[id] = true
	}
	for _, r := range f.rollouts {
		loaded := driver.LoadedRollout{Rollout: r}
		all := f.attempts[r.RolloutID]
		for i, a := range all {
			key := driver.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
			latest := i == len(all)-1
			if !latest && !wanted[key] {
				continue
			}
			if latest {
				loaded.Latest = a.AttemptID
			}
			b.attempts[key] = a
			got.Attempts = append(got.Attempts, a)
			if id := a.WorkerID.V; id != "" && (!f.alone[r.RolloutID] || f.workers[id] != nil) {
				named[id] = true
			}
		}
		got.Rollouts = append(got.Rollouts, loaded)
	}
	for id := range named {
		if _, known := b.workers[id]; !known {
			b.workers[id] = false
		}
		if w, live := f.workers[id], f.live[id]; w != nil || live > 0 {
			got.Workers = append(got.Workers, driver.LoadedWorker{Worker: w, WorkerID: id, LiveAttempts: live})
		}
	}
}

const (
	// claimWait is how long a Claim waits if other servers hold all rows that it finds.
	// It waits because an empty answer should mean an empty queue, and servers hold rows
	// for milliseconds only.
	claimWait = 250 * time.Millisecond
	// claimPoll and claimPollMost bound the delay between tries, which doubles.
	claimPoll     = time.Millisecond
	claimPollMost = 8 * time.Millisecond
)

// Claim implements driver.Tx.
func (b *batch) Claim(ctx context.Context, limit int, got *driver.Loaded) ([]string, error) {
	bounded, cancel := b.driver.config.bound(ctx)
	defer cancel()
	c := &claim{found: newFound()}
	poll := claimPoll
	for begin := time.Now(); ; poll = min(2*poll, claimPollMost) {
		if err := b.claim(bounded, c, limit); err != nil {
			return nil, batchFailed(ctx, "claim", err)
		}
		if len(c.ids) > 0 || c.skipped == 0 || time.Since(begin) > claimWait {
			break
		}
		time.Sleep(poll)
	}
	if c.skipped > 0 && len(c.ids) < limit {
		// The server that holds them may leave them in the queue without a notification.
		b.driver.listener.tellSoon()
	}
	if len(c.tried) > 0 {
		// Under the lock no other server can add an attempt.
		again := newFound()
		if err := b.run(bounded, b.loadNouns(again, unique(c.tried), nil, nil)); err != nil {
			return nil, batchFailed(ctx, "claim", err)
		}
		c.attempts, c.workers, c.live = again.attempts, again.workers, again.live
	}
	b.remember(c.found, c.ids, nil)
	b.deliver(c.found, &driver.LoadParams{}, nil, got)
	return c.ids, nil
}

// claim is the result of one Claim.
type claim struct {
	*found

	ids     []string
	tried   []string // claimed rollouts that have attempts
	skipped int      // rollouts in the queue that another server holds
}

// claim takes, in one try, the rows that no other server holds.
func (b *batch) claim(ctx context.Context, c *claim, limit int) error {
	args := [][]byte{b.params.int8(b.cursor), b.params.int8(int64(limit))}
	err := b.run(ctx, []call{
		{claimRollouts, args, func(r *row) error {
			b.cursor = r.int8()
			attempts := r.int4()
			if err := c.addRollout(r); err != nil {
				return err
			}
			id := c.rollouts[len(c.rollouts)-1].RolloutID
			c.ids = append(c.ids, id)
			if attempts > 0 {
				c.tried = append(c.tried, id)
			}
			return nil
		}},
		{countQueued, args, func(r *row) error {
			c.skipped = max(int(r.int8())-len(c.ids), 0)
			return nil
		}},
	})
	b.loaded = true
	return err
}

// loadDocuments reads and locks documents.
func (b *batch) loadDocuments(calls []call, keys []driver.DocumentKey, got *driver.Loaded) []call {
	if len(keys) == 0 {
		return calls
	}
	for _, key := range keys {
		b.documents[documentName(key.Kind, key.ID)] = false
	}
	return append(calls, call{b.locking(lockDocuments), documentKeys(&b.params, keys), func(r *row) error {
		out, err := r.document()
		if err == nil {
			b.documents[documentName(out.Kind, out.ID)] = true
			got.Documents = append(got.Documents, &out)
		}
		return err
	}})
}
