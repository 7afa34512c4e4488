// Package capture brings the record of every model call into a store. Records get
// their sequence ids in the order in which the calls started. Until they are stored
// they are held within a memory limit, or on disk while the store is unavailable. A
// record that is lost is always reported.
//
//	r, err := capture.New(capture.Config{Spans: store})
//	r.Start(ctx)
//	defer r.Close(ctx)
//	memory, err := r.Reserve(ctx, bytes)
//	call := r.Begin(rolloutID, attemptID) // requests the call's sequence id
//	// … the call runs …
//	call.AwaitSequence()                   // before the last byte of the reply
//	call.End(&input, memory, nil)
//	err = r.Flush(ctx, capture.Scope{RolloutIDs: ids})
//
// Records are built and stored in the background. Only [Call.AwaitSequence] delays a
// reply, by at most five seconds.
//
// The package knows when a call began and whether its record was stored. It must not
// know how calls are made or what their records contain.
package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// Mode says what happens to a call of an attempt whose record might not be kept.
type Mode string

// The capture modes.
const (
	// Require, the default, refuses new calls while there is no room for their
	// records, with 503 after the queue timeout, and reports lost records in every
	// flush of their attempt. It is what training needs.
	Require Mode = "require"
	// BestEffort never refuses a call and never fails a flush because of recording. A
	// call for which there is no memory is logged and not recorded.
	BestEffort Mode = "best-effort"
	// Off records nothing.
	Off Mode = "off"
)

// Validate refuses an unknown mode with CodeInvalid.
func (m Mode) Validate() error {
	switch m {
	case "", Require, BestEffort, Off:
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "Capture: got %q, must be %s, %s or %s", m, Require, BestEffort, Off)
}

// Config configures a [Recorder]. All fields but Spans, SpoolDir, Cancelled and Unknown must
// be set.
type Config struct {
	Spans        Spans // nil records nothing
	Mode         Mode
	MemoryBytes  int64         // memory limit of calls that are running or not yet stored
	QueueTimeout time.Duration // how long a new call waits for memory
	SpoolDir     string        // for records while the store is unavailable; empty keeps them in memory
	SpoolBytes   int64         // limit of the records in SpoolDir
	StoreTimeout time.Duration // limit of one request to Spans
	StoreRetry   time.Duration // how long a failing request is repeated without a SpoolDir
	WriteDelay   time.Duration // how long a record may wait for others of its batch
	Logger       *slog.Logger
	// Cancelled is called when the store reports that an attempt was cancelled. It may
	// be called several times for one attempt.
	Cancelled func(rolloutID, attemptID string)
	// Unknown, unless it is nil, is called when a record is lost because the store does not know its rollout or
	// attempt, such as one that was deleted.
	Unknown func(rolloutID, attemptID string)
}

// Recorder orders calls and writes their records. Create it with [New], start it
// with [Recorder.Start] and stop it with [Recorder.Close].
type Recorder struct {
	cfg       Config
	memory    *memory
	ledger    *ledger
	backlog   *backlog
	store     *store
	spool     *callSpool // nil without Config.SpoolDir
	sequencer *sequencer
	writer    *writer

	closing    chan struct{} // closed when Close begins
	ended      chan struct{} // closed when Close has finished
	cancel     context.CancelFunc
	sequencing sync.WaitGroup // the sequencers
	writes     sync.WaitGroup
	replays    sync.WaitGroup
}

// ErrLeftOnDisk is the error of a flush that is still waiting when the recorder closes.
var ErrLeftOnDisk = errors.New("the proxy was closed before the store took the records; they are in the spool; restart the proxy and flush again")

// SpoolError says why the directory of a spool cannot be used.
type SpoolError struct {
	Dir string
	Err error
}

func (e *SpoolError) Error() string {
	return fmt.Sprintf("got %q, must be a directory that this proxy can write to and no other one uses: %v", e.Dir, e.Err)
}

func (e *SpoolError) Unwrap() error { return e.Err }

// Named returns the error with the name under which the directory was given; CodeInvalid.
func (e *SpoolError) Named(setting string) error {
	return agl.Errorf(agl.CodeInvalid, "%s: %w", setting, e)
}

// New returns a recorder. It adopts the records and losses that an earlier process left in
// the spool, and starts no goroutine.
func New(cfg Config) (*Recorder, error) {
	r := &Recorder{cfg: cfg, memory: &memory{limit: cfg.MemoryBytes}, ledger: newLedger(), closing: make(chan struct{}), ended: make(chan struct{})}
	lost := 0
	if cfg.SpoolDir != "" {
		var err error
		if r.spool, lost, err = openSpool(cfg.SpoolDir, cfg.SpoolBytes, r.ledger, r.memory, cfg.Logger); err != nil {
			return nil, (&SpoolError{cfg.SpoolDir, err}).Named("SpoolDir")
		}
	}
	r.store = &store{spans: cfg.Spans, timeout: cfg.StoreTimeout, retry: cfg.StoreRetry, hasSpool: r.spool != nil, closing: r.closing, log: cfg.Logger, gone: make(chan struct{})}
	if cfg.Spans != nil {
		r.store.can = cfg.Spans.Capabilities()
	}
	r.backlog = newBacklog(cfg.WriteDelay, r.spool != nil, r.store.away)
	r.store.changed = r.backlog.storeChanged
	r.sequencer = &sequencer{ledger: r.ledger, backlog: r.backlog, store: r.store, urgent: make(chan struct{}, 1)}
	r.writer = &writer{ledger: r.ledger, backlog: r.backlog, store: r.store, spool: r.spool, log: cfg.Logger, longest: longestRecord, cancelled: cfg.Cancelled, unknown: cfg.Unknown}
	r.writer.losses.Store(int64(lost))
	return r, nil
}

// Start starts writing records, until Close. When ctx ends, requests to the store end
// too, and records that are neither stored nor on disk are lost. Call it once.
func (r *Recorder) Start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	if r.store.can.ReserveSequenceIDsOf {
		r.sequencing.Go(func() { r.sequencer.run(ctx, sequenceBatch) })
	} else {
		for range sequencers {
			r.sequencing.Go(func() { r.sequencer.run(ctx, 1) })
		}
	}
	r.writes.Go(func() { r.writer.write(ctx) })
	if r.spool != nil {
		r.replays.Go(func() { r.writer.replay(ctx) })
	}
}

// callBytes is the estimated memory of a call, without its request and reply.
const callBytes = 4 << 10

// Reserve reserves memory for a new call and the first requestBytes of its request, and
// waits for it if necessary. The error is that of [Recorder.Extend].
func (r *Recorder) Reserve(ctx context.Context, requestBytes int64) (*Reservation, error) {
	reserved := &Reservation{memory: r.memory}
	return reserved, r.Extend(ctx, reserved, callBytes+requestBytes)
}

// growTimeout bounds the wait of a call that already holds memory. It is short, because such
// a call keeps its memory from others, and new calls queue behind it.
const growTimeout = 2 * time.Second

// Extend adds n bytes to the reservation of a call whose request is still arriving, and
// waits for them if necessary. The error is the cause of ctx, or an *openai.Error after
// Config.QueueTimeout, or after 2 s at most if the call already holds memory.
func (r *Recorder) Extend(ctx context.Context, reserved *Reservation, n int64) error {
	if r.cfg.Mode == BestEffort {
		reserved.Grow(int(n))
		return nil
	}
	if r.memory.full(reserved.bytes, n) {
		timeout := r.cfg.QueueTimeout
		if reserved.bytes > 0 {
			timeout = min(timeout, growTimeout)
		}
		full := openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "capture_full",
			fmt.Sprintf("the memory for recording calls (%d bytes) has been full for %v: the store is slow or unavailable, or too many calls are running", r.cfg.MemoryBytes, timeout)).After(time.Second)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, full)
		defer cancel()
	}
	return r.memory.acquire(ctx, reserved, n)
}

// Records reports whether a call of an attempt should be recorded.
func (r *Recorder) Records(rolloutID, attemptID string) bool {
	switch {
	case r.cfg.Spans == nil || r.cfg.Mode == Off:
		return false
	case r.cfg.Mode == BestEffort && r.memory.full(0, callBytes):
		r.cfg.Logger.Warn("call not recorded, the memory for records is full", "rollout", rolloutID, "attempt", attemptID)
		return false
	default:
		return true
	}
}

// Call is a call that is being recorded. The zero Call is not recorded.
type Call struct {
	recorder *Recorder
	entry    *entry
}

// Begin registers a call and requests its sequence id. The caller must call End.
func (r *Recorder) Begin(rolloutID, attemptID string) Call {
	e := &entry{start: time.Now(), mark: r.spool.mark(rolloutID, attemptID)}
	r.ledger.begin(rolloutID, attemptID, e)
	return Call{r, e}
}

// HasSequenceID reports whether the call has its sequence id, or needs none.
func (c Call) HasSequenceID() bool { return c.entry == nil || background.Closed(c.entry.sequenced) }

// AwaitSequence waits for the call's sequence id. Call it before the last byte of the
// reply is sent: what the agent emits after the reply, such as a reward, must get a
// later sequence id than the call. Usually the id has already arrived.
func (c Call) AwaitSequence() {
	if c.entry != nil {
		c.recorder.sequencer.await(c.entry)
	}
}

// AwaitSequences waits until every call that an attempt has begun has its sequence id, even if the
// store was unavailable when the call ended. What the agent emits now then gets a later one. The
// error is the cause of ctx.
func (r *Recorder) AwaitSequences(ctx context.Context, rolloutID, attemptID string) error {
	for _, e := range r.ledger.unsequencedOf(rolloutID, attemptID) {
		background.Wake(r.sequencer.urgent)
		select {
		case <-e.sequenced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// End passes the input of the record and the memory that the call holds to the recorder. free,
// unless it is nil, is called when the input is no longer needed. Call it once, and not on the
// zero Call.
func (c Call) End(in *record.Input, memory *Reservation, free func()) {
	e := c.entry
	e.input, e.memory, e.free = in, memory, free
	if !c.recorder.backlog.end(e) {
		c.recorder.writer.lose(e, errClosed)
	}
}

// Flush returns when the record of every call that has begun within the scope is
// stored. If records were lost, it fails with the code of the store's error, or with
// CodeIllegalState for one that says that a retry may help; and with CodeUnavailable if ctx ends first. It assumes that the named rollouts and attempts
// have ended: their later calls are recorded, but not compared with earlier ones.
func (r *Recorder) Flush(ctx context.Context, s Scope) error {
	if s.AttemptID != "" {
		r.ledger.arrive(s.RolloutIDs[0], s.AttemptID)
	}
	if err := r.await(ctx, r.ledger.barrier(s, func(*entry) bool { return true })); err != nil {
		return err
	}
	return r.lost(s)
}

// FlushEnded returns when the record of every call of an attempt that has ended is stored or lost. The attempt may go on. It fails
// with CodeUnavailable if ctx ends first.
func (r *Recorder) FlushEnded(ctx context.Context, rolloutID, attemptID string) error {
	return r.await(ctx, r.ledger.barrier(Scope{RolloutIDs: []string{rolloutID}, AttemptID: attemptID}, r.backlog.hasEnded))
}

func (r *Recorder) await(ctx context.Context, b *barrier) error {
	defer r.backlog.flushing()()
	select {
	case <-b.open:
		return nil
	case <-r.ended:
		if background.Closed(b.open) {
			return nil
		}
		return agl.Errorf(agl.CodeUnavailable, "flush: %w", ErrLeftOnDisk)
	case <-ctx.Done():
		return agl.Errorf(agl.CodeUnavailable, "flush: calls are still running or not stored: %w", context.Cause(ctx))
	}
}

// lost returns the losses within a scope as an error, and clears their marks on disk.
func (r *Recorder) lost(s Scope) error {
	marks, err := r.ledger.lost(s)
	r.spool.clear(marks...)
	if r.cfg.Mode == BestEffort {
		return nil
	}
	return err
}

// Close writes the remaining records and ends the recorder's goroutines. When ctx
// ends first, the rest is lost. With a spool it does not wait for an unavailable
// store: the records stay on disk. All calls must have ended. Call it once.
func (r *Recorder) Close(ctx context.Context) error {
	var lost error
	if r.spool == nil && ctx.Err() == nil {
		lost = r.Flush(ctx, Scope{})
	}
	if r.cancel != nil {
		stop := context.AfterFunc(ctx, r.cancel)
		defer r.cancel()
		defer stop()
	}
	close(r.closing)
	// Records whose ids are still being fetched are queued before the backlog closes.
	r.ledger.close()
	r.sequencing.Wait()
	r.backlog.close()
	r.writes.Wait()
	defer close(r.ended)
	if r.spool == nil {
		return lost
	}
	r.spool.finish()
	r.replays.Wait()
	// The marks of this process's calls stay: flushes of their attempts at the next process must fail, too.
	marks, lost := r.ledger.lost(Scope{})
	r.spool.clear(slices.DeleteFunc(marks, func(m mark) bool { return m.uid != 0 })...)
	if r.cfg.Mode == BestEffort {
		lost = nil
	}
	return errors.Join(lost, r.spool.close())
}

// Stats is the state of a recorder.
type Stats struct {
	Bytes   int64 // held by calls that are not stored yet
	Spooled int   // records on disk
	Lost    int64 // records that will never be stored
}

// Stats returns the state of the recorder.
func (r *Recorder) Stats() Stats {
	return Stats{Bytes: r.memory.bytes(), Spooled: r.spool.count(), Lost: r.writer.losses.Load()}
}
