package store

import (
	"container/list"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
)

// Config says what a Store is made of.
type Config struct {
	// Driver keeps the data; required. Store.Close closes it.
	Driver Driver
	// Clock is the time; nil is the system's.
	Clock Clock
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
	// Observer is told about every operation; nil is none.
	Observer Observer
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.Driver == nil {
		return agl.Errorf(agl.CodeInvalid, "store.Config.Driver is required")
	}
	return nil
}

// Observer is told what a Store does. Its methods are called often and must
// return at once.
type Observer interface {
	// ObserveStore reports one call of a Store method, by its name.
	ObserveStore(method string, err error, d time.Duration)
	// ObserveDriver reports one call of a Driver or Batch method, by its name.
	ObserveDriver(method string, err error, d time.Duration)
	// ObserveRollout reports that a rollout has finished, d after its start.
	ObserveRollout(status agl.RolloutStatus, mode agl.Mode, d time.Duration)
}

// Store is the engine: an [agl.Store] over a [Driver]. Create it with [New].
type Store struct {
	driver   Driver
	clock    Clock
	log      *slog.Logger
	observer Observer
	started  time.Time

	mu      sync.Mutex
	pending []command // not yet in a batch
	leading bool      // a caller works on a batch
	closed  bool
	idle    chan struct{} // closed when the last batch is done, once closed is set

	// The leader's own; handed on with the leadership under mu.
	work    *work
	batch   []command
	waiters list.List // of *waiter: blocked dequeues, the longest waiting first
	recheck bool      // the queue may hold something that the waiters do not know of

	deadlines deadlines
	waits     waits
	signal    signal
	flights   flights
	buffers   buffers
	eventful  atomic.Int64 // readers of the event log

	closing chan struct{} // closed when no batch can follow
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// The engine is a store that hands out spans as documents and takes claims back.
var (
	_ agl.Store           = (*Store)(nil)
	_ agl.SpanJSONQuerier = (*Store)(nil)
	_ agl.ClaimReturner   = (*Store)(nil)
)

// New starts a Store. ctx bounds the start only; its values go on to the
// background work. Close it after use.
func New(ctx context.Context, config Config) (*Store, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Store{
		driver:   config.Driver,
		clock:    config.Clock,
		log:      config.Logger,
		observer: config.Observer,
		started:  config.Clock.Now(),
		idle:     make(chan struct{}),
		work:     newWork(),
		closing:  make(chan struct{}),
	}
	s.deadlines.init()
	s.waits.init()
	s.signal.init()
	s.flights.init()
	live, err := s.driver.Live(ctx)
	if err != nil {
		return nil, err
	}
	for i := range live {
		s.deadlines.set(&live[i].Rollout, live[i].Attempt)
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.done.Go(func() { s.watch(background) })
	return s, nil
}

// Close ends the store and its driver. Calls under way are finished; blocked
// ones return ErrUnavailable, as do all later ones.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.closing
		s.done.Wait()
		return nil
	}
	s.closed = true
	if !s.leading {
		close(s.idle)
	}
	s.mu.Unlock()
	s.stop()
	<-s.idle
	close(s.closing)
	s.done.Wait()
	return s.driver.Close(ctx)
}

func errClosed() error { return agl.Errorf(agl.CodeUnavailable, "the store is closed") }

// now is the moment for what is written.
func (s *Store) now() time.Time { return s.clock.Now() }

// begin is called first by every operation: what has run out of time by now is
// ended before anything else is looked at. The function it returns reports the
// operation to the observer.
func (s *Store) begin(ctx context.Context, method string) (end func(error), err error) {
	end = func(error) {}
	if s.observer != nil {
		start := time.Now()
		end = func(err error) { s.observer.ObserveStore(method, err, time.Since(start)) }
	}
	if err := ctx.Err(); err != nil {
		return end, err
	}
	if at, there := s.deadlines.next(); there && s.now().After(at) {
		// A failure is the watch's to report and to repeat: it must not keep
		// others from reading.
		_ = s.expire(ctx)
	}
	return end, nil
}

// command is one write. Its type holds the arguments and takes the answer.
type command interface {
	head() *header
	// load names what run needs.
	load(want *LoadParams)
	// run applies the command to the state, or returns an error and leaves the
	// state as it is.
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

// runBatch takes the commands from load to commit and sets their errors.
func (s *Store) runBatch(ctx context.Context, commands []command) (committed bool) {
	err := s.tryBatch(ctx, commands)
	if err == nil {
		return true
	}
	for _, c := range commands {
		if h := c.head(); h.err == nil {
			h.err = err
		}
	}
	// What the batch would have served waits on: the next one looks again.
	s.recheck = s.waiters.Len() > 0
	return false
}

func (s *Store) tryBatch(ctx context.Context, commands []command) (err error) {
	defer s.recovered(ctx, &err)
	w := s.work
	w.reset(s.now())
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
			return err
		}
	}
	s.publish(w)
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

// publish tells everybody who waits what has been committed.
func (s *Store) publish(w *work) {
	for _, e := range w.changedRollouts {
		switch {
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

// Statistics implements agl.Store.
func (s *Store) Statistics(ctx context.Context) (_ agl.Statistics, err error) {
	end, err := s.begin(ctx, "Statistics")
	defer func() { end(err) }()
	if err != nil {
		return agl.Statistics{}, err
	}
	stats, err := s.driver.Statistics(ctx)
	stats.Uptime = s.now().Sub(s.started)
	return stats, err
}

// buffers keeps the memory in which documents are written before their size is
// known.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	return new([]byte)
}

// maxBuffer is what a kept buffer may hold on to.
const maxBuffer = 1 << 16

func (b *buffers) put(p *[]byte) {
	if cap(*p) <= maxBuffer {
		b.pool.Put(p)
	}
}
