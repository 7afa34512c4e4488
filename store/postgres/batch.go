package postgres

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/jackc/pgx/v5/pgconn"
)

// batch implements store.Batch: one transaction. The engine has one open at a
// time, so there is one, used again and again.
type batch struct {
	driver  *Driver
	session session

	ctx    context.Context //nolint:containedctx // Discard has none of its own
	open   bool            // between Begin and the end
	begun  bool            // the transaction, at the server
	loaded bool            // there was a Load or a Claim: from now on nothing waits for a lock
	cursor int64           // the place in the queue of the last rollout that was claimed

	// What was looked for, and what was found: the rows that are locked.
	rollouts  map[string]*agl.Rollout // nil for those that do not exist
	attempts  map[store.AttemptKey]*agl.Attempt
	workers   map[string]bool
	resources map[string]bool
	sequences map[string]bool
	keys      map[string]bool
	expired   []string // keys that are to be forgotten before they can be used anew
}

var (
	begin    = &statement{"begin", `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`}
	commit   = &statement{"commit", `COMMIT`}
	rollback = &statement{"rollback", `ROLLBACK`}
)

// Begin implements store.Driver. It waits for the batch before, and connects only
// when there is something to read or write.
func (d *Driver) Begin(ctx context.Context) (store.Batch, error) {
	bounded, cancel := d.bound(ctx)
	defer cancel()
	select {
	case d.turn <- struct{}{}:
	case <-bounded.Done():
		return nil, failed(ctx, "begin", bounded.Err())
	}
	b := &d.batch
	b.ctx, b.open, b.begun, b.loaded, b.cursor = context.WithoutCancel(ctx), true, false, false, math.MinInt64
	b.rollouts = emptied(b.rollouts)
	b.attempts = emptied(b.attempts)
	b.workers = emptied(b.workers)
	b.resources = emptied(b.resources)
	b.sequences = emptied(b.sequences)
	b.keys = emptied(b.keys)
	b.expired = b.expired[:0]
	return b, nil
}

// maxKept is up to how many entries a map is kept for the next batch: to clear
// one costs what it has ever held.
const maxKept = 64

func emptied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil || len(m) > maxKept {
		return map[K]V{}
	}
	clear(m)
	return m
}

// Discard implements store.Batch.
func (b *batch) Discard() {
	if !b.open {
		return
	}
	if b.begun && b.session.open() {
		ctx, cancel := b.driver.bound(b.ctx)
		defer cancel()
		if err := b.session.run(ctx, []call{{statement: rollback}}); err != nil {
			b.driver.log.WarnContext(b.ctx, "a batch could not be rolled back; its connection is closed",
				"error", errors.Join(err, b.session.close(ctx)))
		}
	}
	b.end()
}

func (b *batch) end() {
	b.open, b.begun, b.ctx = false, false, nil
	<-b.driver.turn
}

// run sends calls, the first ones together with the beginning of the transaction.
// A connection that has died since the last batch is replaced: nothing is lost
// with it.
func (b *batch) run(ctx context.Context, calls []call) error {
	if b.begun {
		return b.session.run(ctx, calls)
	}
	calls = slices.Insert(calls, 0, call{statement: begin})
	for fresh := false; ; {
		if !b.session.open() {
			if err := b.session.connect(ctx, b.driver.writer); err != nil {
				return err
			}
			fresh = true
		}
		err := b.session.run(ctx, calls)
		if _, answered := errors.AsType[*pgconn.PgError](err); err == nil || answered && b.session.open() {
			b.begun = true
			return err
		}
		if fresh || ctx.Err() != nil || len(calls) > 1 && calls[len(calls)-1].statement == commit {
			return err
		}
	}
}

// Apply implements store.Batch.
func (b *batch) Apply(ctx context.Context, c *store.Changes) error {
	bounded, cancel := b.driver.bound(ctx)
	defer cancel()
	calls, err := b.changes(c)
	if err != nil {
		return err
	}
	calls = append(calls, call{statement: commit})
	if err := b.run(bounded, calls); err != nil {
		return batchFailed(ctx, "commit", err)
	}
	b.driver.lastNow.Store(math.Float64bits(float64(c.Now)))
	b.end()
	return nil
}
