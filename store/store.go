package store

import (
	"container/list"
	"context"
	"log/slog"
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
	// DefaultUnresponsive ends an attempt that gave no sign of life for so long
	// when its rollout has no unresponsive_seconds of its own, so that a claim
	// whose answer was lost comes back some day; 0 is never. It changes no config
	// that clients see.
	DefaultUnresponsive time.Duration
	// Retain bounds what is kept of finished rollouts; the zero value keeps all.
	Retain Retain
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
	switch {
	case c.Driver == nil:
		return agl.Errorf(agl.CodeInvalid, "store.Config.Driver is required")
	case c.DefaultUnresponsive < 0:
		return agl.Errorf(agl.CodeInvalid, "store.Config.DefaultUnresponsive: got %v, must not be negative", c.DefaultUnresponsive)
	case c.Retain.Finished < 0 || c.Retain.Bytes < 0:
		return agl.Errorf(agl.CodeInvalid, "store.Config.Retain: got %v and %d bytes, must not be negative", c.Retain.Finished, c.Retain.Bytes)
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
	agl.UnimplementedStore // the optional methods for stores behind a network

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
	away    bool      // the last batch failed: signs of life were lost

	deadlines deadlines
	waits     waits
	signal    signal
	flights   flights
	buffers   buffers
	eventful  atomic.Int64  // readers of the event log
	doubt     chan struct{} // capacity 1: memory and database may differ

	closing chan struct{} // closed when no batch can follow
	stop    context.CancelFunc
	done    sync.WaitGroup
}

var _ agl.Store = (*Store)(nil)

// Capabilities implements agl.Store.
func (s *Store) Capabilities() agl.Capabilities {
	return agl.Capabilities{ReturnClaims: true, QuerySpansJSON: true}
}

// New starts a Store. ctx bounds the start only; its values go on to the
// background work. Close it after use.
func New(ctx context.Context, config Config) (*Store, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Store{
		driver:  config.Driver,
		clock:   config.Clock,
		log:     config.Logger,
		started: config.Clock.Now(),
		idle:    make(chan struct{}),
		work:    newWork(),
		doubt:   make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	if config.Observer != nil {
		s.observer = guarded{config.Observer, config.Logger}
	}
	s.deadlines.init(patience{silence: config.DefaultUnresponsive, since: agl.TimestampOf(s.started)})
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
	if config.Retain != (Retain{}) {
		s.done.Go(func() { s.janitor(background, config.Retain) })
	}
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

// Ready implements agl.Store.
func (s *Store) Ready(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errClosed()
	}
	return s.observe("Ping", func() error { return s.driver.Ping(ctx) })
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
const maxBuffer = 1 << 20

func (b *buffers) put(p *[]byte) {
	if cap(*p) <= maxBuffer {
		b.pool.Put(p)
	}
}
