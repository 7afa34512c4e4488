package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Config configures a Store.
type Config struct {
	// Driver keeps the data; required. Store.Close closes it.
	Driver driver.Driver
	// Clock is the source of time. Nil is the system's time when the store is opened, plus the time that has passed
	// since.
	Clock Clock
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
	// Observer is called for every operation, and a [CallObserver] for every new span of a model call; may be nil.
	Observer Observer
	// DefaultUnresponsive is the time without a heartbeat after which an attempt is ended if its rollout has no
	// unresponsive_seconds. It also ends attempts whose claim never reached the runner. 0 means never. It does not
	// appear in any rollout's config.
	DefaultUnresponsive time.Duration
	// Retention bounds what is kept. Its zero value bounds workers and the sequences of unknown rollouts.
	Retention Retention

	notesClock bool // the database outlives the process; Open sets it
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = newSteadyClock()
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Observer != nil {
		c.Observer = panicObserver{c.Observer, c.Logger}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Driver == nil:
		return agl.Errorf(agl.CodeInvalid, "store.Config.Driver: got nil, must be a driver")
	case c.DefaultUnresponsive < 0:
		return agl.Errorf(agl.CodeInvalid, "store.Config.DefaultUnresponsive: got %v, must not be negative", c.DefaultUnresponsive)
	}
	return nil
}

// Store is the engine: an [agl.Store] over a [driver.Driver]. Create one with [New] or [Open].
type Store struct {
	agl.UnimplementedStore // the optional methods for stores behind a network
	*committer

	started    time.Time
	notesClock bool

	inFlight inFlight
	keyLocks keyLocks
	buffers  sync.Pool // of *[]byte, in which spans are encoded

	closing    chan struct{} // closed when Close begins
	closed     chan struct{} // closed when Close has finished
	stop       context.CancelFunc
	background sync.WaitGroup
}

var _ agl.Store = (*Store)(nil)

// Capabilities implements agl.Store.
func (s *Store) Capabilities() agl.Capabilities {
	return agl.Capabilities{ReturnClaims: true, QuerySpansJSON: true, QueryShortSpans: true, CreateRollouts: true, ReviseRollout: true, CloseQueue: true}
}

// Close ends the store and its driver. Blocked calls return ErrUnavailable at once, as do all later calls. It waits for
// the other calls in flight, and for a write that may claim rollouts for a blocked dequeue.
func (s *Store) Close(ctx context.Context) error {
	if !s.inFlight.close() {
		<-s.closed
		return nil
	}
	defer close(s.closed)
	close(s.closing)
	<-s.inFlight.drained
	s.stop()
	s.background.Wait()
	return s.driver.Close(ctx)
}

// call is one call of a Store method.
type call struct {
	store  *Store
	method string
	start  time.Time // zero without an observer
}

// begin is the first call of every operation. It ends attempts whose deadline has passed, so that nobody sees them as
// live. If it succeeds, the caller defers end.
func (s *Store) begin(ctx context.Context, method string) (call, error) {
	c := call{store: s, method: method}
	if s.observer != nil {
		c.start = time.Now()
	}
	if !s.inFlight.enter() {
		err := errClosed()
		c.observe(err)
		return c, err
	}
	if err := ctx.Err(); err != nil {
		c.end(&err)
		return c, err
	}
	if at, found := s.deadlines.next(); found && s.clock.Now().After(at) {
		// The background goroutine reports a failure and tries again. The failure must
		// not keep callers from reading.
		_ = s.expire(ctx)
	}
	return c, nil
}

// end ends the call with its error.
func (c call) end(err *error) {
	c.store.inFlight.leave()
	c.observe(*err)
}

// do runs an operation between begin and end, unless its arguments are invalid. With an error, its result is the zero value.
func do[T any](ctx context.Context, s *Store, method string, invalid error, operation func() (T, error)) (_ T, err error) {
	var none T
	call, err := s.begin(ctx, method)
	if err != nil {
		return none, err
	}
	defer call.end(&err)
	if invalid != nil {
		return none, invalid
	}
	out, err := operation()
	if err != nil {
		return none, err
	}
	return out, nil
}

// doWrite is do for an operation that is one write.
func doWrite[T any](ctx context.Context, s *Store, method string, invalid error, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error)) (T, error) {
	return do(ctx, s, method, invalid, func() (T, error) { return submitWrite(ctx, s.committer, wants, apply) })
}

func wantRollout(id string) func(*driver.LoadParams) {
	return func(want *driver.LoadParams) { want.Rollouts = append(want.Rollouts, id) }
}

// run is do for an operation without a result.
func (s *Store) run(ctx context.Context, method string, invalid error, operation func() error) error {
	_, err := do(ctx, s, method, invalid, func() (struct{}, error) { return struct{}{}, operation() })
	return err
}

func (c call) observe(err error) {
	if o := c.store.observer; o != nil {
		o.ObserveStore(c.method, err, time.Since(c.start))
	}
}

// Ready implements agl.Store.
func (s *Store) Ready(ctx context.Context) error {
	if !s.inFlight.enter() {
		return errClosed()
	}
	defer s.inFlight.leave()
	if s.observer == nil {
		return s.driver.Ping(ctx)
	}
	return observed(s.observer, "Ping", func() error { return s.driver.Ping(ctx) })
}

const (
	// maxQueued bounds the work of counting the queue.
	maxQueued = 100_000
	// heardWithin is longer than the pause between heartbeats (10 s), and than a long poll (25 s by default) of a runner that sends none.
	heardWithin = time.Minute
)

// QueueStatistics says how much work waits and how many workers there are. All servers on one database say the same.
func (s *Store) QueueStatistics(ctx context.Context) (agl.QueueStatistics, error) {
	return do(ctx, s, "QueueStatistics", nil, func() (agl.QueueStatistics, error) {
		now := s.clock.Now()
		counts, err := s.driver.Queue(ctx, maxQueued, agl.TimestampOf(now.Add(-heardWithin)))
		if errors.Is(err, context.DeadlineExceeded) { // the server's own limit, not a caller who has left
			err = agl.Errorf(agl.CodeUnavailable, "count the queue: %s", err.Error())
		}
		out := agl.QueueStatistics{Queued: counts.Queued, Idle: counts.Idle, Busy: counts.Busy}
		if counts.Since.Valid {
			out.Oldest = max(0, now.Sub(counts.Since.V.Time()))
		}
		return out, err
	})
}

// Statistics implements agl.Store.
func (s *Store) Statistics(ctx context.Context) (agl.Statistics, error) {
	return do(ctx, s, "Statistics", nil, func() (agl.Statistics, error) {
		stats, err := s.driver.Statistics(ctx)
		stats.Uptime = time.Since(s.started)
		return stats, err
	})
}
