package tracer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// storeBackoff is the schedule of tries while the store is unavailable.
func storeBackoff() backoff.Exponential {
	return backoff.Exponential{First: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}
}

var errStreamClosed = errors.New("the trace has ended")

// stream is the bounded queue between the spans of one trace and the store,
// with the goroutine that empties it.
type stream struct {
	cfg       Config
	attempt   string
	rollout   string
	cancelled *onceFunc
	wake      chan struct{} // capacity 1: there is something to look at
	done      chan struct{} // closed when the goroutine is gone

	mu       sync.Mutex
	progress chan struct{} // closed and replaced when spans have been settled
	pending  []agl.Span
	oldest   time.Time // when pending became non-empty
	held     int       // spans and bytes that are pending or on their way
	heldSize int
	size     int // bytes of pending
	queued   int64
	settled  int64 // stored, or lost
	flushing int
	closed   bool
	stored   []agl.Span
	unsure   map[string]agl.Span // by span id: stored by a write whose answer was lost
	lost     int
	lostErr  error // the first reason
	gaveUp   bool  // the last batch was lost while the store was away
}

func newStream(cfg Config, rollout, attempt string, cancelled *onceFunc) *stream {
	return &stream{
		cfg: cfg, rollout: rollout, attempt: attempt, cancelled: cancelled,
		wake: make(chan struct{}, 1), done: make(chan struct{}), progress: make(chan struct{}),
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

// add queues a span. It waits while the queue is full, for as long as cancel (nil
// is never) lets it.
func (s *stream) add(cancel <-chan struct{}, span agl.Span) error {
	size := spanSize(&span)
	s.mu.Lock()
	for {
		if s.closed {
			s.mu.Unlock()
			return errStreamClosed
		}
		// An oversized span passes alone.
		if s.held == 0 || (s.held < s.cfg.MaxQueueSpans && s.heldSize+size <= s.cfg.MaxQueueBytes) {
			break
		}
		progress := s.progress
		s.mu.Unlock()
		select {
		case <-progress:
		case <-cancel:
			return context.Canceled
		}
		s.mu.Lock()
	}
	if len(s.pending) == 0 {
		s.oldest = time.Now()
	}
	s.pending = append(s.pending, span)
	s.size += size
	s.held++
	s.heldSize += size
	s.queued++
	wake := len(s.pending) == 1 || s.urgent()
	s.mu.Unlock()
	if wake {
		s.kick()
	}
	return nil
}

// urgent reports whether pending spans must not wait for company.
func (s *stream) urgent() bool {
	return s.closed || s.flushing > 0 || len(s.pending) >= s.cfg.MaxBatchSpans || s.size >= s.cfg.MaxBatchBytes ||
		s.held >= s.cfg.MaxQueueSpans || s.heldSize >= s.cfg.MaxQueueBytes
}

func (s *stream) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run empties the queue until it is closed and empty, or ctx ends.
func (s *stream) run(ctx context.Context) {
	defer close(s.done)
	for {
		s.mu.Lock()
		n, closed := len(s.pending), s.closed
		delay := s.cfg.MaxBatchDelay - time.Since(s.oldest)
		if s.urgent() {
			delay = 0
		}
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			s.loseAll(ctx.Err())
			return
		case n == 0 && closed:
			return
		case n == 0:
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
		case delay > 0:
			timer := time.NewTimer(delay)
			select {
			case <-s.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		default:
			s.send(ctx, s.take())
		}
	}
}

// take removes the next batch from the queue.
func (s *stream) take() []agl.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < len(s.pending) && n < s.cfg.MaxBatchSpans {
		next := spanSize(&s.pending[n])
		if n > 0 && size+next > s.cfg.MaxBatchBytes {
			break
		}
		n++
		size += next
	}
	batch := s.pending[:n:n]
	if s.pending = s.pending[n:]; len(s.pending) == 0 {
		s.pending = nil // lets go of the batch once it is sent
	}
	s.size -= size
	s.oldest = time.Now()
	return batch
}

// send writes a batch, with retries while the store is away. A batch that the
// store rejects is written span by span, so that one bad span costs no other.
func (s *stream) send(ctx context.Context, batch []agl.Span) {
	begin := time.Now()
	for try := 0; ; try++ {
		delay := storeBackoff().Delay(try)
		res, err := s.cfg.Store.AddSpans(ctx, agl.AddSpansParams{Spans: batch, IssueSequenceIDs: true})
		switch {
		case err == nil:
			s.settle(batch, res, try > 0)
			return
		case ctx.Err() != nil:
			s.lose(batch, err, false)
			return
		case errors.Is(err, agl.ErrNotFound):
			// The rollout is gone, so nobody wants the attempt.
			s.lose(batch, err, false)
			s.cancelled.call()
			return
		case !agl.Transient(err):
			if len(batch) == 1 {
				s.lose(batch, err, false)
				return
			}
			for i := range batch {
				s.send(ctx, batch[i:i+1])
			}
			return
		case s.gaveUp || time.Since(begin)+delay > s.cfg.RetryBudget:
			s.lose(batch, err, true)
			return
		}
		if backoff.Sleep(ctx, delay) != nil {
			s.lose(batch, err, false)
			return
		}
	}
}

func (s *stream) settle(batch []agl.Span, res agl.AddSpansResult, repeated bool) {
	s.mu.Lock()
	if s.stored == nil {
		s.stored = slices.Clip(res.Stored)
	} else {
		s.stored = append(s.stored, res.Stored...)
	}
	if repeated && len(res.Stored) < len(batch) {
		if s.unsure == nil {
			s.unsure = map[string]agl.Span{}
		}
		for i := range batch {
			s.unsure[batch[i].SpanID] = batch[i]
		}
		for i := range res.Stored {
			delete(s.unsure, res.Stored[i].SpanID)
		}
	}
	s.gaveUp = false
	s.release(batch)
	s.mu.Unlock()
	if slices.Contains(res.Cancelled, s.attempt) {
		s.cancelled.call()
	}
}

func (s *stream) lose(batch []agl.Span, err error, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost += len(batch)
	if s.lostErr == nil {
		s.lostErr = err
	}
	s.gaveUp = away
	s.release(batch)
}

func (s *stream) loseAll(err error) {
	s.mu.Lock()
	batch := s.pending
	s.pending, s.size = nil, 0
	s.mu.Unlock()
	if len(batch) > 0 {
		s.lose(batch, err, false)
	}
}

// release makes room for as many spans as the batch had and tells who waits.
func (s *stream) release(batch []agl.Span) {
	s.held -= len(batch)
	for i := range batch {
		s.heldSize -= spanSize(&batch[i])
	}
	s.settled += int64(len(batch))
	close(s.progress)
	s.progress = make(chan struct{})
}

// flush returns when every span queued so far is settled.
func (s *stream) flush(ctx context.Context) error {
	s.mu.Lock()
	target := s.queued
	s.flushing++
	s.mu.Unlock()
	s.kick()
	defer func() {
		s.mu.Lock()
		s.flushing--
		s.mu.Unlock()
	}()
	for {
		s.mu.Lock()
		settled, progress, err := s.settled >= target, s.progress, s.lossError()
		s.mu.Unlock()
		if settled {
			return err
		}
		select {
		case <-progress: // the goroutine settles everything before it goes
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *stream) lossError() error {
	if s.lost == 0 {
		return nil
	}
	return agl.Errorf(agl.ErrorCode(s.lostErr), "%d of %d spans of attempt %s were not stored: %w", s.lost, s.queued, s.attempt, s.lostErr)
}

// close lets the goroutine finish what is queued; more is refused.
func (s *stream) close() {
	s.mu.Lock()
	s.closed = true
	close(s.progress)
	s.progress = make(chan struct{})
	s.mu.Unlock()
	s.kick()
}

// empty reports whether nothing was ever queued.
func (s *stream) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued == 0
}
