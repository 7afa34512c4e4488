package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// The sets of rows that a Load locks, from its parameters: $1 rollouts, $2
// workers. A row that was waited for comes as it is then, but what is joined to
// it would come as it was before: so each table has a statement of its own, which
// begins when the one before it has its locks.
const (
	// The rollouts that are named, and those that the named workers work on.
	wantedRollouts = `($1::text[] || ARRAY(SELECT w.current_rollout_id FROM workers w
		WHERE w.worker_id = ANY($2::text[]) AND w.current_rollout_id IS NOT NULL))`
	// The workers that are named, and those of the rollouts' attempts.
	wantedWorkers = `($2::text[] || ARRAY(SELECT a.worker_id FROM attempts a
		WHERE a.rollout_id = ANY(` + wantedRollouts + `) AND a.worker_id IS NOT NULL))`

	selectRollouts = `SELECT ` + rolloutColumns + ` FROM rollouts r WHERE r.rollout_id = ANY(` + wantedRollouts + `)
		ORDER BY r.rollout_id FOR UPDATE`
	selectAttempts = `SELECT ` + attemptColumns + ` FROM attempts a WHERE a.rollout_id = ANY(` + wantedRollouts + `)
		ORDER BY a.rollout_id, a.sequence_id, a.ordinal`
	selectWorkers = `SELECT ` + workerColumns + ` FROM workers w WHERE w.worker_id = ANY(` + wantedWorkers + `)
		ORDER BY w.worker_id FOR UPDATE`
	selectSequences = `SELECT q.rollout_id, q.last FROM sequences q WHERE q.rollout_id = ANY($1::text[]) ORDER BY q.rollout_id FOR UPDATE`
	selectResources = `SELECT ` + resourcesColumns + ` FROM resources u WHERE u.resources_id = ANY($1::text[])
		ORDER BY u.resources_id FOR UPDATE`
)

// The statements of a Load; those whose names begin with "try" do not wait.
var (
	lockRollouts  = &statement{"lock_rollouts", selectRollouts}
	tryRollouts   = &statement{"try_rollouts", selectRollouts + ` NOWAIT`}
	readAttempts  = &statement{"read_attempts", selectAttempts}
	lockWorkers   = &statement{"lock_workers", selectWorkers}
	tryWorkers    = &statement{"try_workers", selectWorkers + ` NOWAIT`}
	lockSequences = &statement{"lock_sequences", selectSequences}
	trySequences  = &statement{"try_sequences", selectSequences + ` NOWAIT`}
	lockResources = &statement{"lock_resources", selectResources}
	tryResources  = &statement{"try_resources", selectResources + ` NOWAIT`}

	countLive = &statement{"count_live", `SELECT a.worker_id, count(*) FROM attempts a
		WHERE a.worker_id = ANY(` + wantedWorkers + `) AND a.status IN ('preparing', 'running') AND NOT EXISTS (
			SELECT FROM attempts b WHERE b.rollout_id = a.rollout_id AND b.sequence_id > a.sequence_id)
		GROUP BY a.worker_id`}
	existingRollouts = &statement{"existing_rollouts", `SELECT FROM rollouts WHERE rollout_id = ANY($1::text[])`}

	readStore = &statement{"read_store", `SELECT queue_closed, latest_resources FROM store`}
	// The key of one span must not be looked for among all spans of its rollout,
	// which a plan for an empty table might do: so the rollout is no way to find it.
	readSpans = &statement{"read_spans", `SELECT s.rollout_id, s.attempt_id, s.span_id
		FROM unnest($1::text[], $2::text[], $3::text[]) v (rollout_id, attempt_id, span_id)
		JOIN spans s ON s.attempt_id = v.attempt_id AND s.span_id = v.span_id AND s.rollout_id || '' = v.rollout_id`}
	readKeys = &statement{"read_keys", `SELECT ` + keyColumns + ` FROM idempotency k WHERE k.scope = ANY($1::text[])`}

	claimRollouts = &statement{"claim", `SELECT r.place, r.attempts, ` + rolloutColumns + ` FROM rollouts r
		WHERE r.place > $1::int8 ORDER BY r.place LIMIT $2::int8 FOR UPDATE SKIP LOCKED`}
	countQueued = &statement{"count_queued", `SELECT count(*) FROM (SELECT FROM rollouts r
		WHERE r.place > $1::int8 ORDER BY r.place LIMIT $2::int8) q`}
)

// found is what one Load or Claim has read.
type found struct {
	rollouts []*agl.Rollout
	attempts map[string][]*agl.Attempt // by rollout, in their order
	workers  map[string]*agl.Worker
	live     map[string]int // by worker
}

func newFound() *found {
	return &found{attempts: map[string][]*agl.Attempt{}, workers: map[string]*agl.Worker{}, live: map[string]int{}}
}

// Load implements store.Batch.
func (b *batch) Load(ctx context.Context, want *store.LoadParams, got *store.Loaded) error {
	bounded, cancel := b.driver.bound(ctx)
	defer cancel()
	ids := slices.Clone(want.Rollouts)
	for _, key := range want.Attempts {
		ids = append(ids, key.RolloutID)
	}
	ids, workers := unique(ids), unique(want.Workers)
	f := newFound()
	calls := b.loadNouns(f, ids, workers)
	calls = append(calls, call{readStore, nil, func(r *row) error {
		got.QueueClosed, got.LatestResources = r.bool(), r.nullText()
		return nil
	}})
	calls = b.loadRest(calls, want, got)
	if err := b.run(bounded, calls); err != nil {
		return batchFailed(ctx, "load", err)
	}
	b.loaded = true
	b.remember(f, ids, workers)
	if err := b.checkLocked(bounded, f, workers); err != nil {
		return batchFailed(ctx, "load", err)
	}
	b.deliver(f, want, workers, got)
	return nil
}

// unique sorts ids and drops repeated ones.
func unique(ids []string) []string {
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}

// waiting picks the statement that may wait, in the first Load of a batch, or the
// one that must not.
func (b *batch) waiting(lock, try *statement) *statement {
	if b.loaded {
		return try
	}
	return lock
}

// loadNouns reads rollouts, attempts and workers, each with what belongs to it.
func (b *batch) loadNouns(f *found, rollouts, workers []string) []call {
	if len(rollouts)+len(workers) == 0 {
		return nil
	}
	params := [][]byte{textArray(rollouts), textArray(workers)}
	return []call{
		{b.waiting(lockRollouts, tryRollouts), params, f.addRollout},
		{readAttempts, params, f.addAttempt},
		{b.waiting(lockWorkers, tryWorkers), params, f.addWorker},
		{countLive, params, f.addLive},
	}
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

// loadRest reads what has no closure.
func (b *batch) loadRest(calls []call, want *store.LoadParams, got *store.Loaded) []call {
	if ids := unique(want.Sequences); len(ids) > 0 {
		for _, id := range ids {
			b.sequences[id] = false
		}
		calls = append(calls, call{b.waiting(lockSequences, trySequences), [][]byte{textArray(ids)}, func(r *row) error {
			s := store.Sequence{RolloutID: r.text(), Last: r.int8()}
			b.sequences[s.RolloutID] = true
			got.Sequences = append(got.Sequences, s)
			return nil
		}})
	}
	if ids := unique(want.Resources); len(ids) > 0 {
		for _, id := range ids {
			b.resources[id] = false
		}
		calls = append(calls, call{b.waiting(lockResources, tryResources), [][]byte{textArray(ids)}, func(r *row) error {
			u, err := r.resources()
			if err == nil {
				b.resources[u.ResourcesID] = true
				got.Resources = append(got.Resources, u)
			}
			return err
		}})
	}
	if len(want.Spans) > 0 {
		rollouts, attempts, ids := textColumn(len(want.Spans)), textColumn(len(want.Spans)), textColumn(len(want.Spans))
		for _, key := range want.Spans {
			rollouts.text(key.RolloutID)
			attempts.text(key.AttemptID)
			ids.text(key.SpanID)
		}
		calls = append(calls, call{readSpans, [][]byte{rollouts.param(), attempts.param(), ids.param()}, func(r *row) error {
			got.Spans = append(got.Spans, store.SpanKey{RolloutID: r.text(), AttemptID: r.text(), SpanID: r.text()})
			return nil
		}})
	}
	if scopes := unique(want.Keys); len(scopes) > 0 {
		for _, scope := range scopes {
			b.keys[scope] = false
		}
		calls = append(calls, call{readKeys, [][]byte{textArray(scopes)}, func(r *row) error {
			record, err := r.key()
			switch {
			case err != nil:
			case want.Now.Sub(record.CreateTime) > b.driver.config.IdempotencyTTL:
				b.expired = append(b.expired, record.Scope)
			default:
				b.keys[record.Scope] = true
				got.Keys = append(got.Keys, record)
			}
			return err
		}})
	}
	return calls
}

// remember notes which rows are locked now, and which do not exist.
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

// checkLocked makes sure that the rollouts on which the named workers work are
// locked. They were looked up before the workers were locked, which may have got
// other ones meanwhile.
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
	// It may also be one that was deleted.
	moved := false
	err := b.run(ctx, []call{{existingRollouts, [][]byte{textArray(open)}, func(*row) error {
		moved = true
		return nil
	}}})
	if err == nil && moved {
		err = retry("load", errMoved)
	}
	return err
}

// deliver hands out what was found and wanted.
func (b *batch) deliver(f *found, want *store.LoadParams, workers []string, got *store.Loaded) {
	wanted := make(map[store.AttemptKey]bool, len(want.Attempts))
	for _, key := range want.Attempts {
		wanted[key] = true
	}
	for _, id := range workers {
		if w := f.workers[id]; w != nil && w.CurrentAttemptID.Valid {
			wanted[store.AttemptKey{RolloutID: w.CurrentRolloutID.V, AttemptID: w.CurrentAttemptID.V}] = true
		}
	}
	named := make(map[string]bool, len(workers))
	for _, id := range workers {
		named[id] = true
	}
	for _, r := range f.rollouts {
		loaded := store.LoadedRollout{Rollout: r}
		all := f.attempts[r.RolloutID]
		for i, a := range all {
			key := store.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
			latest := i == len(all)-1
			if !latest && !wanted[key] {
				continue
			}
			if latest {
				loaded.Latest = a.AttemptID
			}
			b.attempts[key] = a
			got.Attempts = append(got.Attempts, a)
			if a.WorkerID.V != "" {
				named[a.WorkerID.V] = true
			}
		}
		got.Rollouts = append(got.Rollouts, loaded)
	}
	for id := range named {
		if _, known := b.workers[id]; !known {
			b.workers[id] = false
		}
		if w, live := f.workers[id], f.live[id]; w != nil || live > 0 {
			got.Workers = append(got.Workers, store.LoadedWorker{Worker: w, WorkerID: id, LiveAttempts: live})
		}
	}
}

const (
	// claimPatience is how long a Claim that finds nothing but what other servers
	// hold waits for them: an empty answer should mean an empty queue. A server
	// holds rows for milliseconds.
	claimPatience = 250 * time.Millisecond
	// claimPoll and claimPollMost bound the pauses meanwhile, which double.
	claimPoll     = time.Millisecond
	claimPollMost = 8 * time.Millisecond
)

// Claim implements store.Batch.
func (b *batch) Claim(ctx context.Context, limit int, got *store.Loaded) ([]string, error) {
	bounded, cancel := b.driver.bound(ctx)
	defer cancel()
	c := &claim{found: newFound()}
	poll := claimPoll
	for begin := time.Now(); ; poll = min(2*poll, claimPollMost) {
		if err := b.claim(bounded, c, limit); err != nil {
			return nil, batchFailed(ctx, "claim", err)
		}
		if len(c.ids) > 0 || c.skipped == 0 || time.Since(begin) > claimPatience {
			break
		}
		time.Sleep(poll)
	}
	if c.skipped > 0 && len(c.ids) < limit {
		// Whoever holds them may not take them, and will not tell.
		b.driver.listener.tellSoon()
	}
	if len(c.tried) > 0 {
		// Their attempts, now that nobody can add one.
		again := newFound()
		if err := b.run(bounded, b.loadNouns(again, unique(c.tried), nil)); err != nil {
			return nil, batchFailed(ctx, "claim", err)
		}
		c.attempts, c.workers, c.live = again.attempts, again.workers, again.live
	}
	b.remember(c.found, c.ids, nil)
	b.deliver(c.found, &store.LoadParams{}, nil, got)
	return c.ids, nil
}

// claim is what one Claim has found.
type claim struct {
	*found

	ids     []string
	tried   []string // those that have attempts
	skipped int      // rollouts in the queue that another server holds
}

// claim takes what nobody else holds, once.
func (b *batch) claim(ctx context.Context, c *claim, limit int) error {
	params := [][]byte{int8Param(b.cursor), int8Param(int64(limit))}
	err := b.run(ctx, []call{
		{claimRollouts, params, func(r *row) error {
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
		{countQueued, params, func(r *row) error {
			c.skipped = max(int(r.int8())-len(c.ids), 0)
			return nil
		}},
	})
	b.loaded = true
	return err
}
