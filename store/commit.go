package store

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

// committer runs commands in batches, by flat combining: a caller that finds no leader runs its own command at once,
// and commands that arrive meanwhile become the next batch (docs/adr/0003).
type committer struct {
	driver   driver.Driver
	clock    Clock
	log      *slog.Logger
	observer Observer // may be nil

	mu      sync.Mutex
	pending []command // not yet in a batch
	leading bool      // a caller is running a batch

	// Owned by the leading goroutine, and handed over under mu.
	batch   []command
	work    unitOfWork
	chains  *spanchain.Shortener
	waiters waiters
	outage  bool // the last batch failed, so heartbeats may be lost

	// To be notified after a commit.
	deadlines deadlines
	finishes  finishWaits
	signal    signal
	readers   atomic.Int64  // of the event log
	stale     chan struct{} // capacity 1: memory and database may differ

	clockMoved chan struct{} // capacity 1: see followSystem
}

func newCommitter(config *Config) *committer {
	c := &committer{
		driver: config.Driver, clock: config.Clock, log: config.Logger, observer: config.Observer,
		stale: make(chan struct{}, 1), clockMoved: make(chan struct{}, 1),
		chains: spanchain.New(spandelta.DefaultMemory),
	}
	c.work.issued = &issueTimes{}
	c.deadlines.init(limits{unresponsive: config.DefaultUnresponsive})
	c.finishes.init()
	c.signal.init()
	return c
}

const (
	// maxBatch bounds how many commands share one commit.
	maxBatch = 256
	// leadFor is how long a caller runs batches of other callers after its own, before it hands over.
	leadFor = 100 * time.Microsecond
)

// submit runs a command and returns its error.
func (c *committer) submit(ctx context.Context, cmd command) error {
	h := cmd.head()
	c.mu.Lock()
	c.pending = append(c.pending, cmd)
	if !c.leading {
		c.leading = true
		c.lead(ctx)
		return h.err
	}
	h.done = make(chan struct{}, 1)
	c.mu.Unlock()
	<-h.done
	if h.lead {
		c.mu.Lock()
		c.lead(ctx)
	}
	return h.err
}

// submitWrite runs a write: wants is the load of a command, apply its run. Both may be called again (see command.run), so what they set
// outside themselves, they set anew each time. The result is meaningless with an error.
func submitWrite[T any](ctx context.Context, c *committer, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error)) (T, error) {
	cmd := &write[T]{wants: wants, apply: apply}
	err := c.submit(ctx, cmd)
	return cmd.result, err
}

// submitLast is submitWrite for a write that acts after the dequeues of its batch.
func submitLast[T any](ctx context.Context, c *committer, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error)) (T, error) {
	cmd := &write[T]{wants: wants, apply: apply, last: true}
	err := c.submit(ctx, cmd)
	return cmd.result, err
}

// lead runs batches until none is left or another caller should take over. It is called with mu locked and returns
// with mu unlocked. A batch that has begun is completed even if the leader's ctx ends, because others wait for it.
func (c *committer) lead(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	start := time.Now()
	failed := false
	for first := true; ; first = false {
		n := min(len(c.pending), maxBatch)
		if n == 0 && (!c.waiters.recheck || failed) {
			c.leading = false
			c.mu.Unlock()
			return
		}
		if n > 0 && !first && time.Since(start) > leadFor {
			next := c.pending[0].head()
			next.lead = true
			c.mu.Unlock()
			next.done <- struct{}{}
			return
		}
		c.batch = append(c.batch, c.pending[:n]...)
		c.pending = slices.Delete(c.pending, 0, n)
		c.mu.Unlock()
		failed = !c.runBatch(ctx, c.batch)
		for _, cmd := range c.batch {
			if h := cmd.head(); h.done != nil && !h.lead {
				h.done <- struct{}{}
			}
		}
		c.batch = emptied(c.batch)
		c.mu.Lock()
	}
}

// runBatch runs the commands up to the commit and sets their errors.
func (c *committer) runBatch(ctx context.Context, batch []command) (committed bool) {
	recheck := c.waiters.recheck
	err := driver.Retry(func() error {
		c.waiters.recheck = recheck
		return c.tryBatch(ctx, batch)
	})
	if err == nil {
		c.outage = false
		c.publish(ctx, &c.work)
		return true
	}
	for _, cmd := range batch {
		if h := cmd.head(); h.err == nil {
			h.err = err
		}
		if l, ok := cmd.(*leaveCommand); ok {
			l.leave()
		}
	}
	c.outage = true
	// The next batch serves the waiters that this one would have served. If no other write comes, the background
	// goroutine causes one.
	if c.waiters.recheck = c.waiters.list.Len() > 0; c.waiters.recheck {
		c.markStale()
	}
	return false
}

func (c *committer) tryBatch(ctx context.Context, batch []command) (err error) {
	// A panic fails the batch. Otherwise its other callers would wait for ever, and so would later writes.
	defer func() {
		if v := recover(); v != nil {
			c.log.ErrorContext(ctx, "a write panicked; its batch is undone", "panic", v, "stack", string(debug.Stack()))
			err = agl.Errorf(agl.CodeInternal, "store: a write panicked: %v", v)
		}
	}()
	for _, cmd := range batch {
		cmd.head().err = nil
	}
	c.followSystem(ctx)
	now := agl.TimestampOf(c.clock.Now())
	if c.outage {
		c.deadlines.outageEnded(0, now)
	}
	w := &c.work
	w.reset(now, c.deadlines.limits())
	tx, err := c.beginTx(ctx)
	if err != nil {
		return err
	}
	defer tx.Discard()
	for _, cmd := range batch {
		cmd.load(&w.want)
	}
	if err := w.load(ctx, tx); err != nil {
		return err
	}
	for _, cmd := range batch {
		cmd.head().err = cmd.run(w)
	}
	if err := c.waiters.runDequeues(ctx, tx, w, batch); err != nil {
		return err
	}
	for _, cmd := range batch {
		cmd.finish(w)
	}
	changes := w.collect()
	if !w.dirty() {
		return nil
	}
	c.chains.Shorten(changes.Spans, w.spanLayouts)
	err = tx.Apply(ctx, changes)
	if err == nil {
		c.chains.Committed()
	}
	if err != nil && !errors.Is(err, driver.ErrRetry) {
		// The connection may have been lost after the commit.
		c.markStale()
	}
	return err
}

func (c *committer) beginTx(ctx context.Context) (driver.Tx, error) {
	tx, err := c.driver.Begin(ctx)
	if err == nil && c.observer != nil {
		tx = observedTx{tx, c.observer}
	}
	return tx, err
}

// markStale makes the background goroutine compare memory with the database: a write that was reported to have failed
// may have been committed.
func (c *committer) markStale() {
	background.Wake(c.stale)
}

// publish wakes everybody who waits for the committed changes. It cannot fail the batch.
func (c *committer) publish(ctx context.Context, w *unitOfWork) {
	defer func() {
		if v := recover(); v != nil {
			c.log.ErrorContext(ctx, "a panic after a commit; the commit stands", "panic", v, "stack", string(debug.Stack()))
			c.markStale()
		}
	}()
	for _, e := range w.changedRollouts {
		switch {
		case e.cur == nil && e.was == nil: // created and deleted in one batch
			continue
		case e.cur == nil:
			c.deadlines.remove(e.was.RolloutID)
			c.finishes.finished(e.was.RolloutID)
			continue
		case e.cur.Status.Finished() && (e.was == nil || !e.was.Status.Finished()):
			c.finishes.finished(e.cur.RolloutID)
			if c.observer != nil {
				c.observer.ObserveRollout(e.cur.Status, e.cur.Mode, e.cur.EndTime.V.Sub(e.cur.StartTime))
			}
		}
		c.resetDeadline(e)
	}
	for _, e := range w.changedAttempts {
		if r := w.rollout(e.cur.RolloutID); r != nil && r.latest == e && !r.changed {
			c.resetDeadline(r)
		}
	}
	if len(w.changes.Events) > 0 && c.readers.Load() > 0 {
		c.signal.broadcast()
	}
	c.waiters.publish(w)
}

func (c *committer) resetDeadline(e *rolloutEntry) {
	if e.latest != nil && !e.latest.returned {
		c.deadlines.set(e.cur, e.latest.cur)
	} else {
		c.deadlines.remove(e.cur.RolloutID)
	}
}

// signal wakes any number of goroutines.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

func (s *signal) init() { s.c = make(chan struct{}) }

// next returns a channel that the next broadcast closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.c)
	s.c = make(chan struct{})
}
