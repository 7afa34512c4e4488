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

// sequence fetches the sequence ids of calls in the order of their starts, of at
// most so many attempts with one request.
func (r *recorder) sequence(ctx context.Context, most int) {
	for {
		if most > 1 {
			r.gather()
		}
		taken, ok := r.ledger.take(most)
		if !ok {
			return
		}
		first, err := r.reserve(ctx, taken)
		if len(taken) > 1 && final(err) {
			// Whatever is wrong with one of them is no matter of the others.
			for i := range taken {
				first, err := r.reserve(ctx, taken[i:i+1])
				r.number(taken[i:i+1], first, err)
			}
		} else {
			r.number(taken, first, err)
		}
		r.ledger.release(taken)
	}
}

// gather waits until calls want sequence ids, and then until one of them cannot
// do without any longer or some time has passed.
func (r *recorder) gather() {
	r.ledger.await()
	delay := time.NewTimer(sequenceDelay)
	defer delay.Stop()
	select {
	case <-r.urgent:
	case <-delay.C:
	case <-r.closing:
	}
}

// reserve returns the first sequence id of each attempt's calls. A store behind a
// network reserves for several attempts with one request: one for each would cost
// more than all else that recording takes.
func (r *recorder) reserve(ctx context.Context, taken []wanted) (first []int64, err error) {
	params := make([]agl.ReserveSequenceIDsParams, len(taken))
	for i, w := range taken {
		params[i] = agl.ReserveSequenceIDsParams{RolloutID: w.attempt.rollout.id, AttemptID: w.attempt.id, Count: len(w.calls)}
	}
	err = r.persist(ctx, func(ctx context.Context) (err error) {
		if len(params) > 1 {
			first, err = r.cfg.Spans.ReserveSequenceIDsOf(ctx, params)
			return err
		}
		first = make([]int64, 1)
		first[0], err = r.cfg.Spans.ReserveSequenceIDs(ctx, params[0])
		return err
	})
	return first, err
}

// number gives calls their sequence ids, or the reason why there are none.
func (r *recorder) number(taken []wanted, first []int64, err error) {
	r.mu.Lock()
	for i, w := range taken {
		for j, c := range w.calls {
			if err != nil {
				c.numbered, c.failed = numberRefused, err
			} else {
				c.numbered, c.number = numberGiven, first[i]+int64(j)
			}
			close(c.sequenced)
			r.offer(c)
		}
	}
	r.mu.Unlock()
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
	wakeUp(r.urgent)
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
