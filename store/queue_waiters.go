package store

import (
	"container/list"
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/store/driver"
)

// waiter is a blocked dequeue, in the list from the batch that found nothing for it
// until the one that serves it.
type waiter struct {
	params agl.DequeueRolloutsParams
	key    *idempotencyKey
	place  *list.Element
	result agl.DequeueResult         // not valid if the batch failed
	tried  []agl.Claim               // claims of earlier batches, which have failed
	replay *driver.IdempotencyRecord // instead of result if the key was used before
	failed error                     // instead of result if the key was used with other arguments
	ready  chan struct{}             // capacity 1; signals the answer
}

// waiters is the list of blocked dequeues, the longest waiting first. Only the
// goroutine that runs a batch uses it.
type waiters struct {
	list list.List
	// recheck says that the queue may hold rollouts that were not offered to the waiters.
	recheck bool
}

func (ws *waiters) front() *list.Element { return ws.list.Front() }

func waiterOf(e *list.Element) *waiter {
	return e.Value.(*waiter) //nolint:forcetypeassert // the list holds nothing else
}

// runDequeues serves the blocked dequeues, then those of the batch.
func (ws *waiters) runDequeues(ctx context.Context, tx driver.Tx, w *unitOfWork, commands []command) error {
	q := claimer{tx: tx, w: w}
	switch {
	case ws.list.Len() == 0:
		ws.recheck = false
	case w.queueClosed:
		w.released, ws.recheck = true, false
	case len(w.queued) > 0 || ws.recheck:
		if err := ws.serve(ctx, &q); err != nil {
			return err
		}
	}
	for _, cmd := range commands {
		if c, ok := cmd.(*dequeueCommand); ok {
			if err := c.claim(ctx, &q); err != nil {
				return err
			}
		}
	}
	return nil
}

// serve claims rollouts for the blocked dequeues, in order.
func (ws *waiters) serve(ctx context.Context, q *claimer) error {
	w := q.w
	limit := len(w.queued)
	if ws.recheck {
		limit = maxBatch
	}
	n, err := ws.load(ctx, q, limit)
	if err != nil {
		return err
	}
	replayed := false
	e := ws.front()
	for ; e != nil && n > 0; e = e.Next() {
		n--
		waiting := waiterOf(e)
		// A commit that was reported to have failed may have served this waiter, and its caller may have asked again
		// elsewhere.
		if waiting.replay, waiting.failed = waiting.key.replay(w); waiting.replay != nil || waiting.failed != nil {
			if waiting.replay != nil {
				w.answerAgain(*waiting.replay)
			}
			w.served = append(w.served, waiting)
			replayed = true
			continue
		}
		if err := q.claim(ctx, waiting); err != nil {
			return err
		}
		if len(waiting.result.Rollouts) == 0 {
			ws.recheck = false
			return nil
		}
		w.served = append(w.served, waiting)
	}
	// The queue may hold more for the waiters after these.
	ws.recheck = (ws.recheck || replayed) && e != nil
	return nil
}

// load loads the workers and keys of the first waiters and returns their number.
func (ws *waiters) load(ctx context.Context, q *claimer, limit int) (n int, err error) {
	want := driver.LoadParams{Now: q.w.now}
	for e := ws.front(); e != nil && n < limit; e = e.Next() {
		waiting := waiterOf(e)
		if id := waiting.params.WorkerID.V; id != "" && q.w.workers[id] == nil {
			want.Workers = append(want.Workers, id)
		}
		waiting.key.load(&want)
		n++
	}
	if len(want.Workers)+len(want.Keys) == 0 {
		return n, nil
	}
	got := q.w.emptyLoaded()
	if err := q.tx.Load(ctx, &want, got); err != nil {
		return 0, err
	}
	q.w.add(got)
	return n, nil
}

// publish answers the dequeues that the committed batch served, and adds those that start to wait.
func (ws *waiters) publish(w *unitOfWork) {
	for _, waiting := range w.served {
		ws.wake(waiting)
	}
	if w.released {
		for e := ws.front(); e != nil; e = ws.front() {
			waiting := waiterOf(e)
			waiting.result, waiting.replay, waiting.failed = agl.DequeueResult{Closed: true}, nil, nil
			ws.wake(waiting)
		}
	}
	for _, waiting := range w.blocked {
		waiting.place = ws.list.PushBack(waiting)
	}
}

func (ws *waiters) wake(waiting *waiter) {
	ws.remove(waiting)
	waiting.ready <- struct{}{}
}

// remove reports whether the waiter was still in the list.
func (ws *waiters) remove(waiting *waiter) bool {
	if waiting.place == nil {
		return false
	}
	ws.list.Remove(waiting.place)
	waiting.place = nil
	return true
}

// claimer takes rollouts off the queue for the dequeues of one batch: first those that the driver has, then those
// that the batch itself has queued.
type claimer struct {
	tx      driver.Tx
	w       *unitOfWork
	claimed []string // from the driver, not used yet
	empty   bool     // the driver has no more
	queued  int      // index into w.queued
}

// minClaim is the least number of rollouts that one read asks for, so that several dequeues of a batch share a read.
const minClaim = 16

// next returns the head of the queue, nil when it is empty.
func (q *claimer) next(ctx context.Context, want int) (*rolloutEntry, error) {
	for {
		if len(q.claimed) == 0 && !q.empty {
			got, limit := q.w.emptyLoaded(), max(want, minClaim)
			claimed, err := q.tx.Claim(ctx, limit, got)
			if err != nil {
				return nil, err
			}
			q.w.add(got)
			q.claimed, q.empty = claimed, len(claimed) < limit
		}
		var e *rolloutEntry
		switch {
		case len(q.claimed) > 0:
			e = q.w.rollouts[q.claimed[0]]
			q.claimed = q.claimed[1:]
		case q.queued < len(q.w.queued):
			e = q.w.queued[q.queued]
			q.queued++
		default:
			return nil, nil //nolint:nilnil // an empty queue is no error
		}
		// The batch may have claimed, cancelled or deleted it already.
		if e != nil && e.cur != nil && e.cur.Status.Queued() {
			return e, nil
		}
	}
}

// claim fills a dequeue's result.
func (q *claimer) claim(ctx context.Context, waiting *waiter) error {
	w, p := q.w, &waiting.params
	waiting.tried = append(waiting.tried, agl.ClaimsOf(waiting.result.Rollouts...)...)
	waiting.result = agl.DequeueResult{}
	var claims []agl.AttemptedRollout
	for len(claims) < p.Limit {
		e, err := q.next(ctx, p.Limit-len(claims))
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		w.startAttempt(e, p.WorkerID)
		claims = append(claims, e.attempted())
	}
	if len(claims) == 0 {
		return nil
	}
	if id := p.WorkerID.V; id != "" {
		e := w.worker(id)
		worker := workerBusy(*e.cur, claims[len(claims)-1].Attempt, w.now)
		worker.LastDequeueTime = agl.Some(w.now)
		w.setWorker(e, worker)
	}
	waiting.key.recordAttempts(w, claims)
	waiting.result.Rollouts = claims
	return nil
}

// polled records a dequeue that found nothing.
func (q *claimer) polled(workerID string) {
	if workerID == "" {
		return
	}
	e := q.w.worker(workerID)
	q.w.setWorker(e, workerPolled(*e.cur, q.w.now))
}

// startAttempt gives a rollout its next attempt.
func (w *unitOfWork) startAttempt(e *rolloutEntry, worker agl.Null[string]) *agl.Attempt {
	prior := 0
	if e.latest != nil {
		prior = e.latest.cur.SequenceID
	}
	r, a := beginAttempt(*e.cur, prior, "at-"+randomid.Hex(attemptIDBytes), worker, w.now)
	w.setRollout(e, &r)
	return w.addAttempt(e, &a).cur
}

// dequeueCommand claims queued rollouts, or becomes a waiter.
type dequeueCommand struct {
	header
	waiter

	blocked bool
}

func (c *dequeueCommand) load(want *driver.LoadParams) {
	c.key.load(want)
	if c.params.WorkerID.V != "" {
		want.Workers = append(want.Workers, c.params.WorkerID.V)
	}
}

// run only resets: dequeues claim after all other commands have run.
func (c *dequeueCommand) run(*unitOfWork) error {
	c.result, c.replay, c.failed = agl.DequeueResult{}, nil, nil
	c.blocked = false
	return nil
}

// claim answers the dequeue, or lets it wait. The error it returns is the batch's; an
// error of the command alone is in its header.
func (c *dequeueCommand) claim(ctx context.Context, q *claimer) error {
	w := q.w
	if c.repeated(w) {
		return nil
	}
	if w.queueClosed {
		c.result.Closed = true
	} else if err := q.claim(ctx, &c.waiter); err != nil {
		return err
	}
	if len(c.result.Rollouts) == 0 {
		q.polled(c.params.WorkerID.V)
		if c.params.Wait > 0 && c.params.Limit > 0 && !c.result.Closed {
			c.blocked = true
			w.blocked = append(w.blocked, &c.waiter)
		}
	}
	return nil
}

// repeated looks up an earlier use of the key and reports whether there is one.
func (c *dequeueCommand) repeated(w *unitOfWork) bool {
	if c.replay, c.err = c.key.replay(w); c.replay != nil {
		w.answerAgain(*c.replay)
	}
	return c.replay != nil || c.err != nil
}

// leaveCommand takes a blocked dequeue off the list.
type leaveCommand struct {
	header

	waiters  *waiters
	waiter   *waiter
	answers  bool // its caller still wants the answer
	unserved bool // it was still in the list
	// For an unserved one: what was recorded for its key. A commit that was reported
	// to have failed may have served it.
	replay *driver.IdempotencyRecord
	failed error
}

func (c *leaveCommand) load(want *driver.LoadParams) { c.waiter.key.load(want) }

// leave runs even if the batch fails: the list is in memory, and nobody waits for the answer any more.
func (c *leaveCommand) leave() {
	c.unserved = c.waiters.remove(c.waiter) || c.unserved
}

func (c *leaveCommand) run(w *unitOfWork) error {
	c.leave()
	if !c.unserved {
		return nil
	}
	if c.replay, c.failed = c.waiter.key.replay(w); c.replay != nil && c.answers {
		w.answerAgain(*c.replay)
	}
	return nil
}
