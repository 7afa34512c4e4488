package capture

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

const (
	// sequencers is the number of goroutines that fetch sequence ids, each for one
	// attempt at a time. If the store has ReserveSequenceIDsOf, one goroutine fetches
	// them for up to sequenceBatch attempts: over a network, a request for each call
	// would cost more than the rest of recording.
	sequencers    = 8
	sequenceBatch = 256
	// sequenceDelay is how long a request for sequence ids waits for more calls. An
	// immediate request would compete with the call's own request for the CPU.
	sequenceDelay = 2 * time.Millisecond
	// sequenceGrace bounds how long the end of a reply waits for its sequence id. A store
	// under load answers well within it, and a call pays it once while a store hangs.
	sequenceGrace = 5 * time.Second
	// awayGrace replaces it once the store is unavailable, which may be for a moment only.
	awayGrace = 500 * time.Millisecond
)

// sequencer fetches the sequence ids of calls in the order of their starts.
type sequencer struct {
	ledger  *ledger
	backlog *backlog
	store   *store
	urgent  chan struct{} // capacity 1; wakes gather because a reply waits for its sequence id
	hangs   atomic.Bool   // the store gave no sequence id for sequenceGrace, and none since
}

// run fetches sequence ids, for at most that many attempts per request, until the ledger is
// closed.
func (s *sequencer) run(ctx context.Context, most int) {
	for {
		if most > 1 {
			s.gather()
		}
		taken, ok := s.ledger.take(most)
		if !ok {
			return
		}
		first, err := s.reserve(ctx, taken)
		if len(taken) > 1 && final(err) {
			// Only one attempt may be at fault: request the ids of each separately.
			for i := range taken {
				first, err := s.reserve(ctx, taken[i:i+1])
				s.assign(taken[i:i+1], first, err)
			}
		} else {
			s.assign(taken, first, err)
		}
		s.ledger.release(taken)
	}
}

// gather waits until a call needs a sequence id, and then sequenceDelay for more
// calls, unless a reply is already waiting.
func (s *sequencer) gather() {
	s.ledger.await()
	select {
	case <-s.urgent:
	case <-time.After(sequenceDelay):
	case <-s.store.closing:
	}
}

// reserve returns the first sequence id of each attempt's calls.
func (s *sequencer) reserve(ctx context.Context, taken []sequenceRequest) (first []int64, err error) {
	attempts := make([]agl.ReserveSequenceIDsParams, len(taken))
	for i, w := range taken {
		attempts[i] = agl.ReserveSequenceIDsParams{RolloutID: w.attempt.rollout.id, AttemptID: w.attempt.id, Count: len(w.entries)}
	}
	return s.store.reserve(ctx, attempts)
}

// assign gives calls their sequence ids, or the reason why they cannot get them.
func (s *sequencer) assign(taken []sequenceRequest, first []int64, err error) {
	for i, w := range taken {
		for j, e := range w.entries {
			if err != nil {
				s.backlog.assign(e, 0, err)
			} else {
				s.hangs.Store(false)
				s.backlog.assign(e, first[i]+int64(j), nil)
			}
		}
	}
}

// await waits for a call's sequence id, for at most sequenceGrace. It does not wait while the
// store is known to be unavailable or to hang.
func (s *sequencer) await(e *entry) {
	if background.Closed(e.sequenced) || s.hangs.Load() || s.store.away() {
		return
	}
	background.Wake(s.urgent)
	timer := time.NewTimer(sequenceGrace)
	defer timer.Stop()
	select {
	case <-e.sequenced:
	case <-s.store.unavailable():
		timer.Reset(awayGrace)
		select {
		case <-e.sequenced:
		case <-timer.C:
		}
	case <-timer.C:
		s.hangs.Store(true)
	}
}
