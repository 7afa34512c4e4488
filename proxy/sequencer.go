package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/agl-go/agl"
)

// numbering is where a call is on the way to its sequence id.
type numbering int

const (
	unnumbered numbering = iota
	numberGiven
	numberRefused // none can be had, call.failed says why
)

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
		r.mu.Lock()
		for i, c := range calls {
			if c.numbered = numberGiven; err != nil {
				c.numbered, c.failed = numberRefused, err
			}
			c.number = first + int64(i)
			close(c.sequenced)
			r.offer(c)
		}
		r.mu.Unlock()
		r.signal()
		r.ledger.release(a)
	}
}

// awaitSequence is called before the last byte of a reply. Whatever the agent
// emits after it, a reward above all, must get a later sequence id than the
// call; the id is nearly always there by now. A store that does not answer is
// waited for no longer than it takes to see that, and one that is known to be
// away not at all.
func (r *recorder) awaitSequence(c *call) {
	select {
	case <-c.sequenced:
		return
	default:
	}
	if r.away.Load() {
		return
	}
	timer := time.NewTimer(sequenceGrace)
	defer timer.Stop()
	select {
	case <-c.sequenced:
	case <-timer.C:
	}
}

// persist makes a request to the store until it succeeds, cannot succeed, or
// has failed for too long: for StoreRetry, or, where the spool has the records
// anyway, until the recorder closes.
func (r *recorder) persist(ctx context.Context, request func(ctx context.Context) error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := r.try(ctx, request)
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		if r.spool == nil && time.Since(began)+pause > r.cfg.StoreRetry {
			return err
		}
		if r.spool != nil && r.isClosing() {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.patience():
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// patience is closed when a pause is to end early: with a spool, on closing.
func (r *recorder) patience() <-chan struct{} {
	if r.spool == nil {
		return nil
	}
	return r.closing
}

func (r *recorder) isClosing() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// try makes one request to the store and notes whether it answers.
func (r *recorder) try(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	err := request(ctx)
	if err == nil || final(err) {
		r.back()
	} else {
		r.gone(err)
	}
	return err
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
