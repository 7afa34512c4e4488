package capture

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/background"
)

const (
	// batchCalls and batchBytes bound one batch, the latter by the memory that its calls
	// hold. Larger batches save no time and no longer fit into the CPU's caches.
	batchCalls = 256
	batchBytes = 1 << 20
)

// backlog holds the calls that have ended until they are written. A call is ready
// to be written when it has ended and has its sequence id. While the store is
// unavailable and there is a spool, it is ready as soon as it has ended: the sequence
// id is filled in when the record is replayed from the spool.
type backlog struct {
	delay    time.Duration // how long a batch collects records, at most
	hasSpool bool          // records can go to disk
	away     func() bool   // the store is unavailable

	mu      sync.Mutex
	waiting map[*entry]struct{} // ended, without a sequence id so far
	ready   []*entry
	bytes   int64 // held by those that are ready
	storing int   // batches that are being stored
	flushes int   // waiting flushes; while there are any, nothing is delayed
	closed  bool
	wake    chan struct{} // capacity 1
}

func newBacklog(delay time.Duration, hasSpool bool, away func() bool) *backlog {
	return &backlog{delay: delay, hasSpool: hasSpool, away: away, waiting: make(map[*entry]struct{}), wake: make(chan struct{}, 1)}
}

// end adds a call that has ended. It reports false when the backlog is closed.
func (b *backlog) end(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.ended = true
	b.queueIfReady(e)
	return !b.closed
}

// hasEnded reports whether a call has ended.
func (b *backlog) hasEnded(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return e.ended
}

// assign gives a call its sequence id, or the reason why it cannot get one.
func (b *backlog) assign(e *entry, sequenceID int64, refused error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.sequenceState, e.sequenceID = sequenceGiven, sequenceID; refused != nil {
		e.sequenceState, e.refused = sequenceRefused, refused
	}
	close(e.sequenced)
	b.queueIfReady(e)
}

// storeChanged is called when the store has become unavailable or available.
func (b *backlog) storeChanged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e := range b.waiting {
		b.queueIfReady(e)
	}
}

// queueIfReady moves a call to ready, or to waiting if it has no sequence id yet.
func (b *backlog) queueIfReady(e *entry) {
	switch {
	case !e.ended || e.queued || b.closed:
	case e.sequenceState != sequencePending, b.hasSpool && b.away():
		delete(b.waiting, e)
		e.queued = true
		b.ready = append(b.ready, e)
		b.bytes += e.memory.bytes
		if len(b.ready) == 1 || b.due() {
			background.Wake(b.wake)
		}
	default:
		b.waiting[e] = struct{}{}
	}
}

// due reports whether the ready calls are written without further delay.
func (b *backlog) due() bool {
	return b.flushes > 0 || b.closed || len(b.ready) >= batchCalls || b.bytes >= batchBytes
}

// next waits for ready calls and returns the next batch; the caller calls done when it
// is stored. A batch that is not full keeps growing until the previous one is stored.
// ok is false when the backlog is closed and empty.
func (b *backlog) next(ctx context.Context) (batch []*entry, ok bool) {
	delay := time.NewTimer(b.randomDelay())
	defer delay.Stop()
	waited := false
	for {
		b.mu.Lock()
		n := len(b.ready)
		switch {
		case n == 0 && b.closed:
			b.mu.Unlock()
			return nil, false
		case n > 0 && (waited && b.storing == 0 || b.due()):
			b.storing++
			batch = b.takeBatch()
			b.mu.Unlock()
			return batch, true
		}
		b.mu.Unlock()
		if n == 0 {
			<-b.wake
			delay.Reset(b.randomDelay())
			continue
		}
		select {
		case <-b.wake:
		case <-delay.C:
			waited = true
		case <-ctx.Done():
			waited = true
		}
	}
}

// randomDelay returns how long a batch collects records. It is random so that an
// agent that calls at an even pace does not always meet the previous call's write.
func (b *backlog) randomDelay() time.Duration {
	half := b.delay / 2
	return half + rand.N(half+1)
}

// takeBatch removes a batch from the front of ready. Records are built with the sequence
// ids that the calls have now.
func (b *backlog) takeBatch() []*entry {
	n, bytes := 0, int64(0)
	for n < len(b.ready) && n < batchCalls && (n == 0 || bytes < batchBytes) {
		e := b.ready[n]
		bytes += e.memory.bytes
		if e.sequenceState == sequenceGiven {
			e.recordedID = e.sequenceID
		}
		n++
	}
	batch := b.ready[:n:n]
	b.ready = b.ready[n:]
	b.bytes -= bytes
	if len(b.ready) == 0 {
		b.ready = nil
	}
	return batch
}

// done ends a batch that next has returned.
func (b *backlog) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.storing--
	if len(b.ready) > 0 {
		background.Wake(b.wake)
	}
}

// flushing makes records ready without delay until the returned function is called.
func (b *backlog) flushing() (done func()) {
	b.addFlushes(1)
	background.Wake(b.wake)
	return func() { b.addFlushes(-1) }
}

func (b *backlog) addFlushes(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushes += n
}

// close makes next return ok false once the backlog is empty.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	background.Wake(b.wake)
}
