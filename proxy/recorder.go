package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

const (
	// sequencers fetch sequence ids, each for one attempt at a time.
	sequencers = 8
	// sequenceGrace bounds how long the end of a reply waits for its sequence id.
	sequenceGrace = 50 * time.Millisecond
	// batchCalls and batchBytes bound what is written at once.
	batchCalls = 256
	batchBytes = 8 << 20
	// The pause before a failed write is repeated doubles between these.
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

var errRecorderClosed = errors.New("the proxy was closed before the record was stored")

// recorder orders calls and writes their records. Its goroutines begin with the
// first call and end with close.
type recorder struct {
	cfg    *Config
	ledger *ledger
	budget *budget
	log    *slog.Logger

	once   sync.Once
	ids    sync.WaitGroup     // the sequencers
	writer sync.WaitGroup     // write
	cancel context.CancelFunc // of all store requests; nil before the first call

	mu     sync.Mutex
	queue  []*call
	queued int64 // bytes
	hurry  int   // flushes that wait
	closed bool
	wake   chan struct{} // capacity 1
}

func newRecorder(cfg *Config, b *budget) *recorder {
	return &recorder{cfg: cfg, ledger: newLedger(), budget: b, log: cfg.Logger, wake: make(chan struct{}, 1)}
}

// start begins the goroutines. They outlive the request whose context this is,
// and keep its values.
func (r *recorder) start(ctx context.Context) {
	r.once.Do(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r.mu.Lock()
		r.cancel = cancel
		r.mu.Unlock()
		for range sequencers {
			r.ids.Go(func() { r.sequence(ctx) })
		}
		r.writer.Go(func() { r.write(ctx) })
	})
}

// begin enters a call.
func (r *recorder) begin(ctx context.Context, c *call) {
	r.start(ctx)
	r.ledger.begin(c)
}

// finish takes a call that has ended.
func (r *recorder) finish(c *call) {
	if c.arrived() {
		r.ready(c)
	}
}

// ready queues a call whose record can be written.
func (r *recorder) ready(c *call) {
	if c.failed != nil {
		r.lose(c, c.failed)
		return
	}
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.queue = append(r.queue, c)
		r.queued += c.charge
	}
	r.mu.Unlock()
	if closed {
		r.lose(c, errRecorderClosed)
		return
	}
	r.signal()
}

func (r *recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// done gives back what a call holds.
func (r *recorder) done(c *call, lost error) {
	r.budget.grow(-c.charge)
	r.ledger.done(c, lost)
}

func (r *recorder) lose(c *call, err error) {
	r.log.Error("call record lost", "rollout", c.rolloutID, "attempt", c.attemptID, "model", c.model, "error", err)
	r.done(c, err)
}

// sequence fetches the sequence ids of calls in the order of their starts.
func (r *recorder) sequence(ctx context.Context) {
	for {
		a, calls, ok := r.ledger.take()
		if !ok {
			return
		}
		var first int64
		err := r.persist(ctx, func(ctx context.Context) (err error) {
			first, err = r.cfg.Spans.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{
				RolloutID: a.rollout.id, AttemptID: a.id, Count: len(calls),
			})
			return err
		})
		for i, c := range calls {
			c.sequence, c.failed = first+int64(i), err
			close(c.sequenced)
			if c.arrived() {
				r.ready(c)
			}
		}
		r.ledger.release(a)
	}
}

// awaitSequence is called before the last byte of a reply. Whatever the agent
// emits after it, a reward above all, must get a later sequence id than the
// call; the id is nearly always there by now. A store that does not answer is
// waited for no longer than it takes to see that.
func (r *recorder) awaitSequence(c *call) {
	select {
	case <-c.sequenced:
		return
	default:
	}
	timer := time.NewTimer(sequenceGrace)
	defer timer.Stop()
	select {
	case <-c.sequenced:
	case <-timer.C:
	}
}

// persist makes a request to the store until it succeeds, cannot succeed, or
// has failed for too long.
func (r *recorder) persist(ctx context.Context, request func(ctx context.Context) error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		try, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
		err := request(try)
		cancel()
		if err == nil || final(err) || ctx.Err() != nil || time.Since(began)+pause > r.cfg.StoreRetry {
			return err
		}
		r.log.Warn("store does not take call records, trying again", "pause", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// final says that repeating a request cannot help.
func final(err error) bool {
	var e *agl.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case agl.CodeUnavailable, agl.CodeInternal, agl.CodeExhausted:
		return false
	default:
		return true
	}
}

// write builds and stores records until close.
func (r *recorder) write(ctx context.Context) {
	builder := newBuilder(r.ledger)
	for {
		batch, ok := r.collect(ctx)
		if !ok {
			return
		}
		spans := make([]agl.Span, 0, len(batch)*spansPerCall)
		for _, c := range batch {
			spans = append(spans, builder.build(c)...)
			c.release()
		}
		r.store(ctx, batch, spans)
	}
}

// collect waits for records and takes as many as go into one write.
func (r *recorder) collect(ctx context.Context) (batch []*call, ok bool) {
	delay := time.NewTimer(r.cfg.WriteDelay)
	defer delay.Stop()
	waited := false
	for {
		r.mu.Lock()
		n := len(r.queue)
		switch {
		case n == 0 && r.closed:
			r.mu.Unlock()
			return nil, false
		case n > 0 && (waited || r.hurry > 0 || r.closed || n >= batchCalls || r.queued >= batchBytes):
			batch = r.cut()
			r.mu.Unlock()
			return batch, true
		}
		r.mu.Unlock()
		if n == 0 {
			<-r.wake
			delay.Reset(r.cfg.WriteDelay)
			continue
		}
		select {
		case <-r.wake:
		case <-delay.C:
			waited = true
		case <-ctx.Done():
			waited = true
		}
	}
}

// cut takes the front of the queue.
func (r *recorder) cut() []*call {
	n, bytes := 0, int64(0)
	for n < len(r.queue) && n < batchCalls && (n == 0 || bytes < batchBytes) {
		bytes += r.queue[n].charge
		n++
	}
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	r.queued -= bytes
	if len(r.queue) == 0 {
		r.queue = nil
	}
	return batch
}

// store writes the records of a batch. When the store refuses the batch for
// what is in it, each call is written alone, so that one cannot take others
// down with it.
func (r *recorder) store(ctx context.Context, batch []*call, spans []agl.Span) {
	add := func(spans []agl.Span) error {
		return r.persist(ctx, func(ctx context.Context) error {
			_, err := r.cfg.Spans.AddSpans(ctx, agl.AddSpansParams{Spans: spans})
			return err
		})
	}
	err := add(spans)
	if err == nil {
		for _, c := range batch {
			r.done(c, nil)
		}
		return
	}
	for i, c := range batch {
		if len(batch) > 1 && final(err) {
			if one := add(spans[i*spansPerCall : (i+1)*spansPerCall]); one != nil {
				r.lose(c, one)
			} else {
				r.done(c, nil)
			}
			continue
		}
		r.lose(c, err)
	}
}

// flush waits until every call that has begun for the rollouts (all, if none is
// given) is stored.
func (r *recorder) flush(ctx context.Context, rolloutIDs []string) error {
	b := r.ledger.barrier(rolloutIDs)
	r.hasten(1)
	defer r.hasten(-1)
	r.signal()
	select {
	case <-b.open:
		return r.ledger.lost(rolloutIDs)
	case <-ctx.Done():
		return agl.Errorf(agl.CodeUnavailable, "flush: calls are still running or not stored: %w", context.Cause(ctx))
	}
}

func (r *recorder) hasten(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hurry += by
}

// close ends the goroutines: once everything is written, or at once when ctx
// ends, and the rest is lost.
func (r *recorder) close(ctx context.Context) {
	r.once.Do(func() {}) // no call may start them any more
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		stop := context.AfterFunc(ctx, cancel)
		defer cancel()
		defer stop()
	}
	// Records whose ids are still being fetched are queued before the queue closes.
	r.ledger.close()
	r.ids.Wait()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.signal()
	r.writer.Wait()
}
