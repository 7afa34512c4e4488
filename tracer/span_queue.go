package tracer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
)

// storeBackoff returns the schedule of retries while the store is unavailable.
func storeBackoff() backoff.Exponential {
	return backoff.Exponential{First: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}
}

// orderWait bounds how long an annotation waits for its sequence id while the store
// does not answer: a store under load answers well within it, and only the first
// annotation waits for one that hangs.
const orderWait = 5 * time.Second

var errTraceEnded = errors.New("the trace has ended")

// spanQueue is the bounded queue of the spans of one trace, with the goroutine that
// sends them to the store in batches.
type spanQueue struct {
	cfg       Config
	attempt   string
	rollout   string
	cancelled func()        // called at most once
	wake      chan struct{} // capacity 1: the goroutine has something to do
	done      chan struct{} // closed when the goroutine has ended
	order     chan struct{} // capacity 1: held while the store issues sequence ids, so that they follow the queue

	mu       sync.Mutex
	progress chan struct{} // closed and replaced when spans are settled: stored or lost
	pending  []agl.Span
	oldest   time.Time // when pending became non-empty
	size     int       // bytes of pending
	heldSize int       // bytes of spans pending or being sent
	queued   int       // spans so far
	numbered int       // spans so far that have a sequence id, or were lost without
	settled  int       // spans so far that are stored or lost
	flushing int
	closed   bool
	stored   []agl.Span
	unsure   map[string]struct{} // ids of spans that were written, but the answer was lost
	lost     int
	lostErr  error // the first reason
	gaveUp   bool  // the last batch was lost while the store was unavailable
	away     bool  // the store did not answer the last request
}

func newSpanQueue(cfg Config, rollout, attempt string, cancelled func()) *spanQueue {
	return &spanQueue{
		cfg: cfg, rollout: rollout, attempt: attempt, cancelled: cancelled,
		wake: make(chan struct{}, 1), done: make(chan struct{}), order: make(chan struct{}, 1), progress: make(chan struct{}),
	}
}

// spanSize estimates the JSON size of a span.
func spanSize(s *agl.Span) int {
	n := 512 + len(s.Name) + len(s.Attributes) + len(s.Extra)
	for i := range s.Events {
		n += 64 + len(s.Events[i].Attributes)
	}
	for i := range s.Links {
		n += 128 + len(s.Links[i].Attributes)
	}
	return n
}

// add queues a span and returns the number of spans queued so far. It blocks while the queue is full, until cancel is
// closed; a nil cancel never is.
func (q *spanQueue) add(cancel <-chan struct{}, span agl.Span) (place int, err error) {
	size := spanSize(&span)
	q.mu.Lock()
	for {
		if q.closed {
			q.mu.Unlock()
			return 0, errTraceEnded
		}
		// A span that is larger than the queue is queued alone.
		if q.held() == 0 || (q.held() < q.cfg.MaxQueueSpans && q.heldSize+size <= q.cfg.MaxQueueBytes) {
			break
		}
		progress := q.progress
		q.mu.Unlock()
		select {
		case <-progress:
		case <-cancel:
			return 0, context.Canceled
		}
		q.mu.Lock()
	}
	if len(q.pending) == 0 {
		q.oldest = time.Now()
	}
	q.pending = append(q.pending, span)
	q.size += size
	q.heldSize += size
	q.queued++
	place = q.queued
	wake := len(q.pending) == 1 || q.urgent()
	q.mu.Unlock()
	if wake {
		background.Wake(q.wake)
	}
	return place, nil
}

// number fetches the sequence ids of the spans up to a place in the queue, so that whatever the agent does next gets
// a larger one. If the store does not answer, number returns without them, and the spans get their ids when they are
// stored. The end of ctx does not matter: the wait is short, and a span without its id would come after the agent's
// next call.
func (q *spanQueue) number(ctx context.Context, place int) {
	if _, missing := q.unnumbered(place); missing == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(untraced(ctx), orderWait)
	defer cancel()
	select {
	case q.order <- struct{}{}:
	case <-ctx.Done():
		q.setAway()
		return
	}
	defer func() { <-q.order }()
	// Spans that were queued while another call held order share one request.
	before, want := q.unnumbered(place)
	if want == 0 {
		return
	}
	first, err := q.cfg.Store.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{
		RolloutID: q.rollout, AttemptID: q.attempt, Count: want,
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		// A store that rejects the spans does so again when they are stored.
		q.away = ctx.Err() != nil || agl.Transient(err)
		return
	}
	if q.numbered != before {
		return // the spans were lost
	}
	start := len(q.pending) - (q.queued - before)
	for i := range want {
		if span := &q.pending[start+i]; span.SequenceID <= 0 {
			span.SequenceID = first + int64(i)
		}
	}
	q.numbered += want
}

// untraced returns ctx's values without its trace and its end: what an instrumented client of the store records about
// the queue's own requests must not enter the queue, which would wait for itself when it is full.
func untraced(ctx context.Context) context.Context {
	ctx = context.WithValue(context.WithoutCancel(ctx), traceKey{}, nil)
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// unnumbered returns how many spans are numbered and how many are not; none if those up to the place are, or if the
// store is away.
func (q *spanQueue) unnumbered(place int) (numbered, missing int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.numbered >= place || q.away {
		return q.numbered, 0
	}
	return q.numbered, q.queued - q.numbered
}

// held returns how many spans are pending or being sent.
func (q *spanQueue) held() int { return q.queued - q.settled }

// urgent reports whether pending spans must be sent without a delay.
func (q *spanQueue) urgent() bool {
	return q.closed || q.flushing > 0 || len(q.pending) >= q.cfg.MaxBatchSpans || q.size >= q.cfg.MaxBatchBytes ||
		q.held() >= q.cfg.MaxQueueSpans || q.heldSize >= q.cfg.MaxQueueBytes
}

// run empties the queue until it is closed and empty, or ctx ends.
func (q *spanQueue) run(ctx context.Context) {
	defer close(q.done)
	for {
		q.mu.Lock()
		n, closed := len(q.pending), q.closed
		delay := q.cfg.MaxBatchDelay - time.Since(q.oldest)
		if q.urgent() {
			delay = 0
		}
		q.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			q.loseAll(ctx.Err())
			return
		case n == 0 && closed:
			return
		case n == 0:
			select {
			case <-q.wake:
			case <-ctx.Done():
			}
		case delay > 0:
			select {
			case <-q.wake:
			case <-time.After(delay):
			case <-ctx.Done():
			}
		default:
			q.sendNext(ctx)
		}
	}
}

// sendNext sends the next batch. While the store issues sequence ids for it, no
// later span is numbered, and an annotation in it waits.
func (q *spanQueue) sendNext(ctx context.Context) {
	select {
	case q.order <- struct{}{}:
	case <-ctx.Done():
		return
	}
	batch, last := q.take()
	q.mu.Lock()
	issue := last > q.numbered
	q.mu.Unlock()
	if !issue {
		<-q.order
		q.send(ctx, batch)
		return
	}
	q.send(ctx, batch)
	q.mu.Lock()
	q.numbered = last
	q.mu.Unlock()
	<-q.order
}

// take removes the next batch from the queue, and returns the place of its last span.
func (q *spanQueue) take() (batch []agl.Span, last int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.pending) && n < q.cfg.MaxBatchSpans {
		next := spanSize(&q.pending[n])
		if n > 0 && size+next > q.cfg.MaxBatchBytes {
			break
		}
		n++
		size += next
	}
	batch = q.pending[:n:n]
	if q.pending = q.pending[n:]; len(q.pending) == 0 {
		q.pending = nil // so that the memory of the batch is freed once it is sent
	}
	q.size -= size
	q.oldest = time.Now()
	return batch, q.queued - len(q.pending)
}

// send writes a batch, and retries while the store is unavailable. A batch that the store rejects is written span by
// span, so that one bad span does not cost others.
func (q *spanQueue) send(ctx context.Context, batch []agl.Span) {
	begin := time.Now()
	for try := 0; ; try++ {
		delay := storeBackoff().Delay(try)
		res, err := q.cfg.Store.AddSpans(ctx, agl.AddSpansParams{Spans: batch, IssueSequenceIDs: true})
		switch {
		case err == nil:
			q.settle(batch, res, try > 0)
			return
		case ctx.Err() != nil:
			q.lose(batch, err, false)
			return
		case errors.Is(err, agl.ErrNotFound):
			// The rollout was deleted, which ends the attempt.
			q.lose(batch, err, false)
			q.cancelled()
			return
		case !agl.Transient(err):
			if len(batch) == 1 {
				q.lose(batch, err, false)
				return
			}
			for i := range batch {
				q.send(ctx, batch[i:i+1])
			}
			return
		case q.gaveUp || time.Since(begin)+delay > q.cfg.RetryTimeout:
			q.lose(batch, err, true)
			return
		}
		q.setAway()
		if backoff.Sleep(ctx, delay) != nil {
			q.lose(batch, err, false)
			return
		}
	}
}

// setAway notes that the store does not answer.
func (q *spanQueue) setAway() {
	q.mu.Lock()
	q.away = true
	q.mu.Unlock()
}

// settle notes that a batch is stored. If it was sent repeatedly, an earlier sending may have stored some of its spans.
func (q *spanQueue) settle(batch []agl.Span, res agl.AddSpansResult, repeated bool) {
	q.mu.Lock()
	if q.stored == nil {
		q.stored = slices.Clip(res.Stored)
	} else {
		q.stored = append(q.stored, res.Stored...)
	}
	if repeated && len(res.Stored) < len(batch) {
		if q.unsure == nil {
			q.unsure = map[string]struct{}{}
		}
		for i := range batch {
			q.unsure[batch[i].SpanID] = struct{}{}
		}
		for i := range res.Stored {
			delete(q.unsure, res.Stored[i].SpanID)
		}
	}
	q.gaveUp, q.away = false, false
	q.release(batch)
	q.mu.Unlock()
	if slices.Contains(res.Cancelled, q.attempt) {
		q.cancelled()
	}
}

// lose gives up a batch.
func (q *spanQueue) lose(batch []agl.Span, err error, unavailable bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += len(batch)
	if q.lostErr == nil {
		q.lostErr = err
	}
	q.gaveUp = unavailable
	q.release(batch)
}

// loseAll gives up all pending spans. The queue accepts no more.
func (q *spanQueue) loseAll(err error) {
	q.mu.Lock()
	q.closed = true
	batch := q.pending
	q.pending, q.size, q.numbered = nil, 0, q.queued
	q.mu.Unlock()
	q.lose(batch, err, false)
}

// release frees the room of the batch's spans and wakes those who wait for it.
func (q *spanQueue) release(batch []agl.Span) {
	for i := range batch {
		q.heldSize -= spanSize(&batch[i])
	}
	q.settled += len(batch)
	q.wakeAll()
}

// wakeAll wakes those who wait for progress.
func (q *spanQueue) wakeAll() {
	close(q.progress)
	q.progress = make(chan struct{})
}

// flush returns when every span queued so far is settled.
func (q *spanQueue) flush(ctx context.Context) error {
	q.mu.Lock()
	target := q.queued
	q.flushing++
	q.mu.Unlock()
	background.Wake(q.wake)
	defer func() {
		q.mu.Lock()
		q.flushing--
		q.mu.Unlock()
	}()
	for {
		q.mu.Lock()
		settled, progress, err := q.settled >= target, q.progress, q.lossError()
		q.mu.Unlock()
		if settled {
			return err
		}
		select {
		case <-progress: // the goroutine settles all spans before it ends
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *spanQueue) lossError() error {
	if q.lost == 0 {
		return nil
	}
	return agl.Errorf(agl.ErrorCode(q.lostErr), "%d of %d spans of attempt %q were not stored: %w", q.lost, q.queued, q.attempt, q.lostErr)
}

// close lets the goroutine end when all spans are settled. The queue accepts no more spans.
func (q *spanQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.wakeAll()
	q.mu.Unlock()
	background.Wake(q.wake)
}

// empty reports whether nothing was ever queued.
func (q *spanQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued == 0
}
