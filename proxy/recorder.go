package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/spool"
)

const (
	// sequencers fetch sequence ids, each for one attempt at a time, or one for at
	// most sequenceBatch where a request can ask for several.
	sequencers    = 8
	sequenceBatch = 256
	// sequenceDelay is how long a request for sequence ids may wait: while the
	// first bytes of a call are on their way it would only compete with them.
	sequenceDelay = 2 * time.Millisecond
	// sequenceGrace bounds how long the end of a reply waits for its sequence id.
	sequenceGrace = 500 * time.Millisecond
	// batchCalls and batchBytes bound what is written at once, the latter by what
	// the calls hold. Larger batches save no time and leave the processor's caches.
	batchCalls = 256
	batchBytes = 1 << 20
	// keptBatch is the largest memory of a batch that is worth keeping.
	keptBatch = 8 << 20
	// The pause before a failed write is repeated doubles between these.
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// errLeftOnDisk is what flushes get that still wait when the proxy has closed.
var errLeftOnDisk = errors.New("the proxy was closed before the store took the records; they are in the spool, flush the proxy that follows")

var errRecorderClosed = errors.New("the proxy was closed before the record was stored")

// recorder orders calls and writes their records. Its goroutines begin with the
// first call and end with close.
//
// A call becomes ready to be written when it has ended and has its sequence id.
// While the store is away and there is a spool, its end is enough: the record
// goes to disk, its sequence id is put in when it is replayed.
type recorder struct {
	cfg    *Config
	ledger *ledger
	budget *budget
	log    *slog.Logger
	spool  *spool.Log   // nil without a directory
	marks  *spool.Marks // of the calls that are neither stored nor spooled
	uids   atomic.Uint64

	once    sync.Once
	ids     sync.WaitGroup     // the sequencers
	writer  sync.WaitGroup     // write
	replays sync.WaitGroup     // replay
	cancel  context.CancelFunc // of all store requests; nil before the first call
	closing chan struct{}      // closed when close begins
	ended   chan struct{}      // closed when it is over
	urgent  chan struct{}      // capacity 1: the end of a reply waits for its sequence id

	losses atomic.Int64
	away   atomic.Bool // the last request to the store failed; changed under mu

	mu      sync.Mutex
	waiting map[*call]struct{} // ended, without a sequence id so far
	queue   []*call            // for the writer
	queued  int64              // bytes
	keeping int                // batches that are being stored
	hurry   int                // flushes that wait
	closed  bool
	wake    chan struct{} // capacity 1

	spooled  []*call // on disk, the oldest in front
	drained  bool    // nothing is spooled any more
	wakeDisk chan struct{}
}

// newRecorder returns a recorder, with the records and losses that an earlier
// process left in the spool.
func newRecorder(cfg *Config, b *budget) (*recorder, error) {
	r := &recorder{
		cfg: cfg, ledger: newLedger(), budget: b, log: cfg.Logger, closing: make(chan struct{}), ended: make(chan struct{}), waiting: make(map[*call]struct{}),
		wake: make(chan struct{}, 1), wakeDisk: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
	}
	if cfg.SpoolDir == "" {
		return r, nil
	}
	return r, r.openSpool()
}

// start begins the goroutines. They outlive the request whose context this is,
// and keep its values.
func (r *recorder) start(ctx context.Context) {
	r.once.Do(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r.mu.Lock()
		r.cancel = cancel
		r.mu.Unlock()
		if r.cfg.Spans.Capabilities().ReserveSequenceIDsOf {
			r.ids.Go(func() { r.sequence(ctx, sequenceBatch) })
		} else {
			for range sequencers {
				r.ids.Go(func() { r.sequence(ctx, 1) })
			}
		}
		r.writer.Go(func() { r.write(ctx) })
		if r.spool != nil {
			r.replays.Go(func() { r.replay(ctx) })
		}
	})
}

// begin enters a call.
func (r *recorder) begin(ctx context.Context, c *call) {
	r.start(ctx)
	r.mark(c)
	r.ledger.begin(c, true)
}

// finish takes a call that has ended.
func (r *recorder) finish(c *call) {
	r.mu.Lock()
	c.ended = true
	r.offer(c)
	closed := r.closed
	r.mu.Unlock()
	if closed {
		r.lose(c, errRecorderClosed)
	}
}

// offer queues a call for the writer if it can be written, or notes that it
// waits for its sequence id. The caller holds mu.
func (r *recorder) offer(c *call) {
	switch {
	case !c.ended || c.queued || r.closed:
	case c.numbered != unnumbered, r.spool != nil && r.away.Load():
		delete(r.waiting, c)
		c.queued = true
		r.queue = append(r.queue, c)
		r.queued += c.charge
		if len(r.queue) == 1 || r.due() {
			r.signal()
		}
	default:
		r.waiting[c] = struct{}{}
	}
}

// due reports whether the queue is not to wait for more. The caller holds mu.
func (r *recorder) due() bool {
	return r.hurry > 0 || r.closed || len(r.queue) >= batchCalls || r.queued >= batchBytes
}

func (r *recorder) signal() { wakeUp(r.wake) }

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// gone notes that the store did not answer. What has ended goes to disk then.
func (r *recorder) gone(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away.Swap(true) {
		return
	}
	r.log.Warn("the store does not take call records", "error", err)
	if r.spool == nil {
		return
	}
	for c := range r.waiting {
		r.offer(c)
	}
}

// back notes that the store answers.
func (r *recorder) back() {
	if !r.away.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away.Store(false)
	r.log.Info("the store takes call records again")
}

// done gives back what a call holds.
func (r *recorder) done(c *call, lost error) {
	r.budget.grow(-c.charge)
	if lost == nil {
		r.unmark(c)
	}
	r.ledger.done(c, lost)
}

func (r *recorder) lose(c *call, err error) {
	r.losses.Add(1)
	r.log.Error("call record lost", "rollout", c.attempt.rollout.id, "attempt", c.attempt.id, "model", c.model, "error", err)
	r.done(c, err)
}

// flush waits until every call that has begun within the scope is stored.
func (r *recorder) flush(ctx context.Context, s scope) error {
	if r.spool != nil {
		r.start(ctx) // what an earlier process left may wait
	}
	if s.attemptID != "" {
		r.ledger.arrive(s.rolloutIDs[0], s.attemptID)
	}
	b := r.ledger.barrier(s)
	r.hasten(1)
	defer r.hasten(-1)
	r.signal()
	select {
	case <-b.open:
		return r.lost(s)
	case <-r.ended:
		if isClosed(b.open) {
			return r.lost(s)
		}
		return agl.Errorf(agl.CodeUnavailable, "flush: %w", errLeftOnDisk)
	case <-ctx.Done():
		return agl.Errorf(agl.CodeUnavailable, "flush: calls are still running or not stored: %w", context.Cause(ctx))
	}
}

func (r *recorder) hasten(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hurry += by
}

// settle is the flush before the end. With a spool close sees to it that
// everything is stored or on disk, whether the store answers or not.
func (r *recorder) settle(ctx context.Context) error {
	if r.spool != nil {
		return nil
	}
	return r.flush(ctx, scope{})
}

// lost reports the losses within a scope; those that were marked on disk need
// not be remembered there any longer.
func (r *recorder) lost(s scope) error {
	marks, err := r.ledger.lost(s)
	for _, slot := range marks {
		if err := r.marks.Clear(slot); err != nil {
			r.log.Error("a mark could not be cleared", "error", err)
		}
	}
	if r.cfg.Capture == CaptureBestEffort {
		return nil
	}
	return err
}

// close ends the goroutines: once everything is written, or at once when ctx
// ends, and the rest is lost. With a spool no store is waited for: what it does
// not take stays on disk.
func (r *recorder) close(ctx context.Context) error {
	r.once.Do(func() {}) // no call may start them any more
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		stop := context.AfterFunc(ctx, cancel)
		defer cancel()
		defer stop()
	}
	close(r.closing)
	// Records whose ids are still being fetched are queued before the queue closes.
	r.ledger.close()
	r.ids.Wait()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
	r.writer.Wait()
	r.mu.Lock()
	r.drained = true
	r.mu.Unlock()
	wakeUp(r.wakeDisk)
	r.replays.Wait()
	defer close(r.ended)
	if r.spool == nil {
		return nil
	}
	return errors.Join(r.lost(scope{}), r.closeSpool())
}
