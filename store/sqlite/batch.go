package sqlite

import (
	"context"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// batch implements driver.Tx. The engine has one open at a time, so the driver reuses
// one.
type batch struct {
	driver *Driver
	claims agl.Null[int64] // the place of the last rollout that was claimed
}

// Begin implements driver.Driver.
func (d *Driver) Begin(context.Context) (driver.Tx, error) {
	d.batch.claims = agl.Null[int64]{}
	return &d.batch, nil
}

// Discard implements driver.Tx. There is nothing to undo before Apply.
func (*batch) Discard() {}

// loader fills a driver.Loaded from memory or from the file.
type loader struct {
	d   *Driver
	c   *conn // nil until needed
	got *driver.Loaded
}

// Load implements driver.Tx.
func (b *batch) Load(ctx context.Context, want *driver.LoadParams, got *driver.Loaded) error {
	b.driver.writing.Lock()
	defer b.driver.writing.Unlock()
	l := loader{d: b.driver, got: got}
	return fault(b.driver.path, l.load(ctx, want))
}

func (l *loader) load(ctx context.Context, want *driver.LoadParams) error {
	d := l.d
	for _, id := range want.Rollouts {
		if _, err := l.rollout(ctx, id, withWorkers); err != nil {
			return err
		}
	}
	for _, key := range want.Attempts {
		if err := l.attempt(ctx, key, withWorkers); err != nil {
			return err
		}
	}
	for _, key := range want.SpanAttempts {
		if err := l.attempt(ctx, key, withoutWorkers); err != nil {
			return err
		}
	}
	for _, id := range want.Workers {
		w, err := l.worker(ctx, id)
		if err != nil {
			return err
		}
		if w != nil && w.CurrentAttemptID.Valid {
			if err := l.attempt(ctx, driver.AttemptKey{RolloutID: w.CurrentRolloutID.V, AttemptID: w.CurrentAttemptID.V}, withWorkers); err != nil {
				return err
			}
		}
	}
	for _, id := range want.Resources {
		u, err := d.findResources(ctx, l, id)
		if err != nil {
			return err
		}
		if u != nil {
			l.got.Resources = append(l.got.Resources, u.cur)
		}
	}
	for _, id := range want.Sequences {
		if err := l.sequence(ctx, id); err != nil {
			return err
		}
	}
	for _, key := range want.Spans {
		if err := l.span(ctx, key); err != nil {
			return err
		}
	}
	if err := l.inUse(ctx, want.ResourcesInUse); err != nil {
		return err
	}
	for _, scope := range want.Keys {
		if err := l.key(ctx, scope, want.Now); err != nil {
			return err
		}
	}
	if err := l.documents(ctx, want.Documents); err != nil {
		return err
	}
	l.got.LatestResources = d.state.latestResources
	l.got.QueueClosed = d.state.queueClosed
	return nil
}

// conn returns the writing connection.
func (l *loader) conn(ctx context.Context) (*conn, error) {
	if l.c == nil {
		c, err := l.d.connected(ctx)
		if err != nil {
			return nil, err
		}
		l.c = c
	}
	return l.c, nil
}

// find returns a rollout, nil when it does not exist. It reads the cache without a lock,
// because only the batch changes it.
func (l *loader) find(ctx context.Context, id string) (*rolloutRow, error) {
	return recall(ctx, l, l.d.rollouts, l.d.state.rollouts, id, l.d.readRollout)
}

// recall returns a value from the cache, or reads it from the file. existing is how many values there are. It returns nil if
// this one does not exist.
func recall[V any, P interface {
	*V
	size() int64
}](ctx context.Context, l *loader, cache *cache[string, P], existing int64, id string, read func(context.Context, *conn, string) (P, error)) (P, error) {
	if v, there := cache.get(id); there {
		return v, nil
	}
	if int64(len(cache.slots)) == existing {
		return nil, nil // all that exist are in memory
	}
	c, err := l.conn(ctx)
	if err != nil {
		return nil, err
	}
	v, err := read(ctx, c, id)
	if err == nil && v != nil {
		l.d.mu.Lock()
		cache.put(id, v, v.size())
		l.d.mu.Unlock()
	}
	return v, err
}

// keep puts a rollout into the cache.
func (d *Driver) keep(r *rolloutRow) {
	d.mu.Lock()
	d.rollouts.put(r.cur.RolloutID, r, r.size())
	d.mu.Unlock()
}

// Whether attempts are loaded with their workers.
const (
	withWorkers    = true
	withoutWorkers = false
)

// rollout adds a rollout with its latest attempt and the worker of that attempt.
func (l *loader) rollout(ctx context.Context, id string, workers bool) (*rolloutRow, error) {
	r, err := l.find(ctx, id)
	if err != nil || r == nil {
		return nil, err
	}
	loaded := driver.LoadedRollout{Rollout: r.cur}
	if a := r.latest; a != nil {
		loaded.Latest = a.cur.AttemptID
		if err := l.one(ctx, a.cur, workers); err != nil {
			return nil, err
		}
	}
	l.got.Rollouts = append(l.got.Rollouts, loaded)
	return r, nil
}

// attempt adds an attempt with its worker and its rollout.
func (l *loader) attempt(ctx context.Context, key driver.AttemptKey, workers bool) error {
	r, err := l.rollout(ctx, key.RolloutID, workers)
	if err != nil || r == nil {
		return err
	}
	a, err := l.findAttempt(ctx, r, key.AttemptID)
	if err != nil || a == nil || a == r.latest {
		return err
	}
	return l.one(ctx, a.cur, workers)
}

// findAttempt returns an attempt of a rollout, nil when it does not exist.
func (l *loader) findAttempt(ctx context.Context, r *rolloutRow, id string) (*attemptRow, error) {
	if a := r.attempt(id); a != nil || r.latest == nil || r.latest.cur.SequenceID <= 1 && len(r.older) == 0 {
		return a, nil
	}
	c, err := l.conn(ctx)
	if err != nil {
		return nil, err
	}
	a, err := readAttempt(ctx, c, r, id)
	if err != nil || a == nil {
		return nil, err
	}
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if r.older == nil {
		r.older = map[string]*attemptRow{}
	}
	r.older[id] = a
	return a, nil
}

func (l *loader) one(ctx context.Context, a *agl.Attempt, workers bool) error {
	l.got.Attempts = append(l.got.Attempts, a)
	if !workers || a.WorkerID.V == "" {
		return nil
	}
	_, err := l.worker(ctx, a.WorkerID.V)
	return err
}

// worker adds a worker, even one that exists only in the attempts that name it. It returns
// nil if the worker has no row.
func (l *loader) worker(ctx context.Context, id string) (*agl.Worker, error) {
	w, err := l.d.findWorker(ctx, l, id)
	if err != nil {
		return nil, err
	}
	out := driver.LoadedWorker{WorkerID: id, LiveAttempts: l.d.live[id]}
	if w != nil {
		out.Worker = w.cur
	}
	if w != nil || out.LiveAttempts > 0 {
		l.got.Workers = append(l.got.Workers, out)
	}
	return out.Worker, nil
}

// findWorker returns a worker, nil if it does not exist.
func (d *Driver) findWorker(ctx context.Context, l *loader, id string) (*workerRow, error) {
	return recall(ctx, l, d.workers, d.state.workers, id, readWorker)
}

// findResources returns a bundle, nil if it does not exist.
func (d *Driver) findResources(ctx context.Context, l *loader, id string) (*resourcesRow, error) {
	return recall(ctx, l, d.resources, d.state.resources, id, d.readResources)
}

// sequence adds the last sequence id of a rollout, whether the rollout exists or not.
func (l *loader) sequence(ctx context.Context, id string) error {
	r, err := l.find(ctx, id)
	if err != nil {
		return err
	}
	var last agl.Null[int64]
	if r != nil {
		last = l.d.lastSequence(r)
	} else if last, err = l.ghost(ctx, id); err != nil {
		return err
	}
	if last.Valid {
		l.got.Sequences = append(l.got.Sequences, driver.Sequence{RolloutID: id, Last: last.V})
	}
	return nil
}

// ghost returns the last sequence id of a rollout that does not exist, null if it has
// none.
func (l *loader) ghost(ctx context.Context, id string) (last agl.Null[int64], err error) {
	if l.d.state.ghosts == 0 {
		return last, nil
	}
	c, err := l.conn(ctx)
	if err != nil {
		return last, err
	}
	return one(ctx, c, "SELECT sequence FROM ghosts WHERE rollout_id = ?", []any{id}, func(r row) (agl.Null[int64], error) { return r.nullInt(0), nil })
}

// lastSequence returns the last sequence id that a rollout has given out, null if
// none.
func (d *Driver) lastSequence(r *rolloutRow) agl.Null[int64] {
	if last, there := d.ahead[r.cur.RolloutID]; there {
		return agl.Some(last)
	}
	return afterCrash(r.sequence, d.crashes[r.boot])
}

// afterCrash returns the highest sequence id that may have been given out. written is
// the one on disk; after a crash ids of its block may have been given out, too.
func afterCrash(written agl.Null[int64], crashed bool) agl.Null[int64] {
	if crashed {
		return agl.Some(min(written.V, math.MaxInt64-sequenceBlock) + sequenceBlock)
	}
	return written
}

// span adds the key of a span if the span exists.
func (l *loader) span(ctx context.Context, key driver.SpanKey) error {
	r, err := l.find(ctx, key.RolloutID)
	if err != nil || r == nil {
		return err
	}
	a, err := l.findAttempt(ctx, r, key.AttemptID)
	if err != nil || a == nil || a.spans == 0 {
		return err
	}
	_, there := a.ids[key.SpanID]
	if a.ids == nil {
		c, err := l.conn(ctx)
		if err != nil {
			return err
		}
		n, err := c.number(ctx, "SELECT 1 FROM spans WHERE stream = ? AND span_id = ?", a.stream, key.SpanID)
		if err != nil {
			return err
		}
		there = n > 0
	}
	if there {
		l.got.Spans = append(l.got.Spans, key)
	}
	return nil
}

// key adds an idempotency record unless it has expired.
func (l *loader) key(ctx context.Context, scope string, now agl.Timestamp) error {
	c, err := l.conn(ctx)
	if err != nil {
		return err
	}
	record, err := readKey(ctx, c, scope)
	if err == nil && record != nil && now.Sub(record.CreateTime) <= l.d.config.IdempotencyTTL {
		l.got.Keys = append(l.got.Keys, *record)
	}
	return err
}

// Claim implements driver.Tx.
func (b *batch) Claim(ctx context.Context, limit int, got *driver.Loaded) ([]string, error) {
	d := b.driver
	d.writing.Lock()
	defer d.writing.Unlock()
	l := loader{d: d, got: got}
	claimed, err := b.claim(ctx, &l, limit)
	return claimed, fault(d.path, err)
}

func (b *batch) claim(ctx context.Context, l *loader, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	c, err := l.conn(ctx)
	if err != nil {
		return nil, err
	}
	before := b.claims.Or(l.d.state.firstPlace - 1)
	after := before
	var claimed []string
	err = c.query(ctx, "SELECT rollout_id, place FROM rollouts WHERE place > ? ORDER BY place LIMIT ? + 0", []any{before, limit}, func(r row) error {
		claimed = append(claimed, r.text(0))
		after = r.int(1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.recallQueued(ctx, claimed, before, after); err != nil {
		return nil, err
	}
	for _, id := range claimed {
		if _, err := l.rollout(ctx, id, withWorkers); err != nil {
			return nil, err
		}
	}
	b.claims = agl.Some(after)
	return claimed, nil
}

// recallQueued reads the queued rollouts with places in (behind, last] that are not in
// the cache, in one query. Of a long queue most are not.
func (l *loader) recallQueued(ctx context.Context, ids []string, behind, last int64) error {
	if !slices.ContainsFunc(ids, func(id string) bool { return !l.d.rollouts.has(id) }) {
		return nil
	}
	return l.c.query(ctx, selectRollouts+" WHERE r.place > ? AND r.place <= ?", []any{behind, last}, func(r row) error {
		if l.d.rollouts.has(r.text(1)) {
			return nil
		}
		out, err := l.d.scanRollout(r)
		if err == nil {
			l.d.keep(out)
		}
		return err
	})
}
