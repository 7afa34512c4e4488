package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/agl-go/agl"
)

// command is one write. Its type holds the arguments and takes the answer.
type command interface {
	head() *header
	// load names what run needs.
	load(want *LoadParams)
	// run applies the command to the state, or returns an error and leaves the
	// state as it is. A batch that another process was in the way of is run again,
	// so run begins by forgetting what it has answered before, and what the
	// command was given stays as it was.
	run(w *work) error
}

// header is the part of a command that the engine uses.
type header struct {
	err  error
	done chan struct{} // capacity 1; nil when the caller leads
	lead bool          // done means: lead the next batch, which holds this command
}

func (h *header) head() *header { return h }

// maxBatch bounds how many commands share one commit.
const maxBatch = 256

// leadFor is how long a caller works for others after its own command is done,
// before it hands the leadership on.
const leadFor = 100 * time.Microsecond

// submit runs a command. The caller that finds nobody leading runs it itself,
// at once; commands that arrive meanwhile become the next batch.
func (s *Store) submit(ctx context.Context, c command) error {
	h := c.head()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed()
	}
	s.pending = append(s.pending, c)
	if !s.leading {
		s.leading = true
		s.lead(ctx)
		return h.err
	}
	h.done = make(chan struct{}, 1)
	s.mu.Unlock()
	<-h.done
	if h.lead {
		s.mu.Lock()
		s.lead(ctx)
	}
	return h.err
}

// lead works on batches until none is left or others should take over. It is
// called with mu held and returns without. A batch that has begun is finished
// whatever happens to the leader's ctx: it is not only the leader's.
func (s *Store) lead(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	start := time.Now()
	failed := false
	for first := true; ; first = false {
		n := min(len(s.pending), maxBatch)
		if n == 0 && (!s.recheck || failed) {
			s.leading = false
			if s.closed {
				close(s.idle)
			}
			s.mu.Unlock()
			return
		}
		if n > 0 && !first && time.Since(start) > leadFor {
			next := s.pending[0].head()
			next.lead = true
			s.mu.Unlock()
			next.done <- struct{}{}
			return
		}
		s.batch = append(s.batch[:0], s.pending[:n]...)
		left := copy(s.pending, s.pending[n:])
		clear(s.pending[left:])
		s.pending = s.pending[:left]
		s.mu.Unlock()
		failed = !s.runBatch(ctx, s.batch)
		for _, c := range s.batch {
			if h := c.head(); h.done != nil && !h.lead {
				h.done <- struct{}{}
			}
		}
		clear(s.batch)
		s.mu.Lock()
	}
}

const (
	// maxReruns is how often a batch that another process was in the way of is run
	// again before its callers are told.
	maxReruns = 12
	// rerunBase and rerunMost bound the pause before a rerun: a random part of
	// what doubles from the one to the other.
	rerunBase = time.Millisecond
	rerunMost = 100 * time.Millisecond
)

// runBatch takes the commands from load to commit and sets their errors.
func (s *Store) runBatch(ctx context.Context, commands []command) (committed bool) {
	recheck := s.recheck
	err := s.tryBatch(ctx, commands)
	for n := 0; errors.Is(err, ErrRetry); n++ {
		if n == maxReruns {
			err = agl.Errorf(agl.CodeUnavailable, "%d times another process was in the way: %w", n+1, err)
			break
		}
		pause(n)
		s.recheck = recheck
		err = s.tryBatch(ctx, commands)
	}
	if err == nil {
		s.away = false
		s.publish(ctx, s.work)
		return true
	}
	for _, c := range commands {
		if h := c.head(); h.err == nil {
			h.err = err
		}
		if l, ok := c.(*leaveCommand); ok {
			l.leave()
		}
	}
	s.away = true
	// What the batch would have served waits on: the next one looks again.
	s.recheck = s.waiters.Len() > 0
	return false
}

// pause waits before rerun n, counted from 0. The randomness keeps two servers
// that met once from meeting again. It is real time: a clock that is moved by
// hand would never end it.
func pause(n int) {
	time.Sleep(rand.N(min(rerunBase<<n, rerunMost)))
}

func (s *Store) tryBatch(ctx context.Context, commands []command) (err error) {
	defer s.recovered(ctx, &err)
	for _, c := range commands {
		c.head().err = nil
	}
	w := s.work
	w.reset(s.now())
	if s.away {
		// What should have been a sign of life meanwhile could not be stored.
		s.deadlines.forgive(w.now)
	}
	w.patience = s.deadlines.patience()
	tx, err := s.driver.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Discard()
	for _, c := range commands {
		c.load(&w.want)
	}
	if err := s.observe("Load", func() error { return w.load(ctx, tx) }); err != nil {
		return err
	}
	for _, c := range commands {
		c.head().err = c.run(w)
	}
	if err := s.runDequeues(ctx, tx, commands); err != nil {
		return err
	}
	for _, c := range commands {
		if f, ok := c.(finisher); ok {
			f.finish(w)
		}
	}
	changes := w.collect()
	if w.dirty() {
		if err := s.observe("Apply", func() error { return tx.Apply(ctx, changes) }); err != nil {
			if !errors.Is(err, ErrRetry) {
				// The connection may have been lost behind the commit.
				s.suspect()
			}
			return err
		}
	}
	return nil
}

// recovered makes a panic the error of its batch: the callers of the others must
// not wait for ever, nor later writes for a leader that is gone.
func (s *Store) recovered(ctx context.Context, err *error) {
	if v := recover(); v != nil {
		s.log.ErrorContext(ctx, "a write panicked; its batch is undone", "panic", v, "stack", string(debug.Stack()))
		*err = agl.Errorf(agl.CodeInternal, "store: a write panicked: %v", v)
	}
}

func (s *Store) observe(method string, call func() error) error {
	if s.observer == nil {
		return call()
	}
	start := time.Now()
	err := call()
	s.observer.ObserveDriver(method, err, time.Since(start))
	return err
}

// publish tells everybody who waits what has been committed. It cannot fail
// the batch any more.
func (s *Store) publish(ctx context.Context, w *work) {
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(ctx, "a panic after a commit; the commit stands", "panic", v, "stack", string(debug.Stack()))
			s.suspect()
		}
	}()
	for _, e := range w.changedRollouts {
		switch {
		case e.cur == nil && e.was == nil: // made and deleted in one batch
			continue
		case e.cur == nil:
			s.deadlines.remove(e.was.RolloutID)
			s.waits.finished(e.was.RolloutID)
			continue
		case e.cur.Status.Finished() && (e.was == nil || !e.was.Status.Finished()):
			s.waits.finished(e.cur.RolloutID)
			if s.observer != nil {
				s.observer.ObserveRollout(e.cur.Status, e.cur.Mode, e.cur.EndTime.V.Sub(e.cur.StartTime))
			}
		}
		s.resetDeadline(e)
	}
	for _, e := range w.changedAttempts {
		if r := w.rollout(e.cur.RolloutID); r != nil && r.latest == e && !r.changed {
			s.resetDeadline(r)
		}
	}
	if len(w.changes.Events) > 0 && s.eventful.Load() > 0 {
		s.signal.broadcast()
	}
	s.tellWaiters(w)
}

func (s *Store) resetDeadline(e *rolloutEntry) {
	if e.latest != nil && !e.latest.returned {
		s.deadlines.set(e.cur, e.latest.cur)
	} else {
		s.deadlines.remove(e.cur.RolloutID)
	}
}
