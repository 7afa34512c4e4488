package postgres

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// batch implements driver.Tx as one transaction. The engine has one open at a time, so
// the driver reuses one.
type batch struct {
	driver  *Driver
	session session
	params  params

	ctx    context.Context //nolint:containedctx // Discard has no context
	open   bool            // from Begin to Apply or Discard
	begun  bool            // the server has begun the transaction
	loaded bool            // the first Load or Claim is done; later ones must not wait for locks
	cursor int64           // the place in the queue of the last rollout that was claimed

	// The rows that the batch has looked for, and whether they exist. Existing rows are locked.
	rollouts  map[string]*agl.Rollout // nil if it does not exist
	attempts  map[driver.AttemptKey]*agl.Attempt
	workers   map[string]bool
	resources map[string]bool
	sequences map[string]bool
	keys      map[string]bool
	documents map[string]bool
	expired   []driver.IdempotencyRecord // keys to delete before they can be inserted again
}

const (
	begin    = `BEGIN ISOLATION LEVEL READ COMMITTED` // read-only where the database says so
	commit   = `COMMIT`
	rollback = `ROLLBACK`
)

// Begin implements driver.Driver. It waits for the end of the previous batch. The batch
// connects with its first read or write.
func (d *Driver) Begin(ctx context.Context) (driver.Tx, error) {
	bounded, cancel := d.config.bound(ctx)
	defer cancel()
	select {
	case d.turn <- struct{}{}:
	case <-bounded.Done():
		return nil, failed(ctx, "begin", bounded.Err())
	}
	b := &d.batch
	b.ctx, b.open, b.begun, b.loaded, b.cursor = context.WithoutCancel(ctx), true, false, false, math.MinInt64
	b.params.reset()
	b.rollouts = emptied(b.rollouts)
	b.attempts = emptied(b.attempts)
	b.workers = emptied(b.workers)
	b.resources = emptied(b.resources)
	b.sequences = emptied(b.sequences)
	b.keys = emptied(b.keys)
	b.documents = emptied(b.documents)
	b.expired = b.expired[:0]
	return b, nil
}

// maxKept bounds the maps that are reused by the next batch. Clearing a map takes time
// proportional to the largest size that it has had.
const maxKept = 64

func emptied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil || len(m) > maxKept {
		return map[K]V{}
	}
	clear(m)
	return m
}

// Discard implements driver.Tx.
func (b *batch) Discard() {
	if !b.open {
		return
	}
	if b.begun && b.session.open() {
		ctx, cancel := b.driver.config.bound(b.ctx)
		defer cancel()
		if err := b.session.run(ctx, []call{{sql: rollback}}); err != nil {
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

// run sends calls; the first ones go together with BEGIN. It replaces a connection
// that has died since the last batch, which loses nothing.
func (b *batch) run(ctx context.Context, calls []call) error {
	if b.begun {
		return b.session.run(ctx, calls)
	}
	calls = slices.Insert(calls, 0, call{sql: begin})
	for fresh := false; ; {
		if !b.session.open() {
			if err := b.session.connect(ctx, &b.driver.writer.Config); err != nil {
				return err
			}
			if err := b.driver.serve(ctx, b.session.conn); err != nil {
				return errors.Join(err, b.session.close(ctx))
			}
			fresh = true
		}
		err := b.session.run(ctx, calls)
		if _, answered := errors.AsType[*pgconn.PgError](err); err == nil || answered && b.session.open() {
			b.begun = true
			return err
		}
		if fresh || ctx.Err() != nil || len(calls) > 1 && calls[len(calls)-1].sql == commit {
			return err
		}
		if b.session.answered > 0 { // it has died now: what was read is no longer locked, so the batch begins anew
			return retry("begin", err)
		}
	}
}
