package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/internal/wire"
)

// queue serves the queue of rollouts, and waits for them to finish.
type queue struct {
	store   agl.Store
	returns bool // the store can return claims
}

func (q *queue) enqueue(x *exchange) error {
	p := agl.EnqueueRolloutsParams{IdempotencyKey: x.idempotencyKey()}
	if err := x.decode(wire.EnqueueRollouts(&p), bodyRequired); err != nil {
		return err
	}
	if len(p.Rollouts) == 0 {
		return x.answerText(http.StatusCreated, "[]")
	}
	if err := x.reserve(access.Amounts{Rollouts: int64(len(p.Rollouts))}); err != nil {
		return err
	}
	rollouts, err := q.store.EnqueueRollouts(x.context(), p)
	if err != nil {
		return err
	}
	return x.send(http.StatusCreated, rawjson.AppendList(x.out, rollouts))
}

// dequeue answers with claimed rollouts. If the answer cannot be written, it
// returns the claims.
func (q *queue) dequeue(x *exchange) error {
	p := agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: x.idempotencyKey()}
	if err := x.decode(wire.DequeueRollouts(&p), bodyOptional); err != nil {
		return err
	}
	if p.Limit <= 0 {
		return x.answerText(http.StatusOK, "[]")
	}
	result, err := q.claim(x, p)
	if err != nil {
		q.takeBack(x, result.Rollouts) // claims of a caller whose key has just been revoked
		return err
	}
	if result.Closed {
		x.Header()[wire.Queue] = []string{wire.QueueClosed}
	}
	if err := sendClaims(x, result.Rollouts); err != nil {
		q.takeBack(x, result.Rollouts)
		return err
	}
	return nil
}

func (q *queue) claim(x *exchange, p agl.DequeueRolloutsParams) (result agl.DequeueResult, err error) {
	released, err := x.block(p.Wait > 0, func(ctx context.Context) (err error) {
		result, err = q.store.DequeueRollouts(ctx, p)
		return err
	})
	if err == nil && p.Wait > 0 {
		x.Header()[wire.Wait] = []string{waitState(released)}
	}
	return result, err
}

func waitState(incomplete bool) string {
	if incomplete {
		return wire.WaitIncomplete
	}
	return wire.WaitComplete
}

func sendClaims(x *exchange, claimed []agl.AttemptedRollout) error {
	if err := x.context().Err(); err != nil {
		return err
	}
	if len(claimed) == 0 {
		return x.answerText(http.StatusOK, "[]")
	}
	answer := rawjson.AppendList(x.out, claimed)
	x.Header()["Content-Length"] = []string{strconv.Itoa(len(answer))} // otherwise the flush makes it chunked
	if err := x.send(http.StatusOK, answer); err != nil {
		return err
	}
	return x.sendNow(nil) // otherwise a failed write would show only after the handler
}

// takeBackTimeout bounds takeBack.
const takeBackTimeout = 10 * time.Second

// takeBack returns claims that could not be sent to the queue, so that another runner gets them, unless a repeat of the request
// has got them meanwhile.
func (q *queue) takeBack(x *exchange, claimed []agl.AttemptedRollout) {
	if len(claimed) == 0 || !q.returns {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.context()), takeBackTimeout)
	defer cancel()
	p := agl.ReturnClaimsParams{Claims: agl.ClaimsOf(claimed...), IdempotencyKey: x.idempotencyKey()}
	if err := q.store.ReturnClaims(ctx, p); err != nil {
		x.log.Error("claims could neither be sent nor returned, and wait for their deadline", "rollout_id", claimed[0].RolloutID, "error", err)
	}
}

func (q *queue) returnClaims(x *exchange) error {
	var p agl.ReturnClaimsParams
	if err := x.decode(wire.ReturnClaims(&p), bodyRequired); err != nil {
		return err
	}
	if err := q.store.ReturnClaims(x.context(), p); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

func (q *queue) close(x *exchange) error {
	if err := q.store.CloseQueue(x.context()); err != nil {
		return err
	}
	return x.answerText(http.StatusOK, `{"closed":true}`)
}

func (q *queue) open(x *exchange) error {
	if err := q.store.OpenQueue(x.context()); err != nil {
		return err
	}
	return x.answerText(http.StatusOK, `{"closed":false}`)
}

func (q *queue) wait(x *exchange) error {
	var p agl.WaitForRolloutsParams
	if err := x.decode(wire.WaitForRollouts(&p), bodyRequired); err != nil {
		return err
	}
	start := time.Now()
	var finished []agl.Rollout
	wait := func(ctx context.Context) (err error) {
		finished, err = q.store.WaitForRollouts(ctx, p)
		return err
	}
	released, err := x.block(!p.Timeout.Valid || p.Timeout.V > 0, wait)
	if released { // answer with the rollouts that are finished
		p.Timeout = agl.Some[time.Duration](0)
		err = wait(x.context())
	}
	if err != nil {
		return err
	}
	timedOut := p.Timeout.Valid && time.Since(start) >= p.Timeout.V // also when released
	x.Header()[wire.Wait] = []string{waitState(timedOut && len(finished) < len(p.RolloutIDs))}
	return x.send(http.StatusOK, rawjson.AppendList(x.out, finished))
}
