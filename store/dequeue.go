package store

import (
	"container/list"
	"context"

	"github.com/agl-go/agl"
)

// waiter is a blocked dequeue, in the engine's list from the batch that found
// nothing for it until the one that serves it.
type waiter struct {
	params agl.DequeueRolloutsParams
	key    *keyed
	place  *list.Element
	result agl.DequeueResult  // or what a batch that failed had for it
	replay *IdempotencyRecord // instead of result: the key was used before
	failed error              // instead of result: the key was used for something else meanwhile
	ready  chan struct{}      // capacity 1: the answer is there
}

// answer sets what the waiter gets.
func (c *waiter) answer(result agl.DequeueResult) {
	c.result, c.replay, c.failed = result, nil, nil
}

// finisher is a command that has more to do when no claim is made any more in
// its batch.
type finisher interface {
	finish(w *work)
}

// dequeueCommand claims what there is or becomes a waiter.
type dequeueCommand struct {
	header
	waiter

	parked bool
}

func (c *dequeueCommand) load(want *LoadParams) {
	c.key.load(want)
	if c.params.WorkerID.V != "" {
		want.Workers = append(want.Workers, c.params.WorkerID.V)
	}
}

// run only forgets: claims are made when all other commands have run.
func (c *dequeueCommand) run(*work) error {
	c.answer(agl.DequeueResult{})
	c.parked = false
	return nil
}

// DequeueRollouts implements agl.Store. A call whose ctx ends while it is being
// served gives its claim back and returns the error of ctx.
func (s *Store) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (_ agl.DequeueResult, err error) {
	end, err := s.begin(ctx, "DequeueRollouts")
	defer func() { end(err) }()
	if err != nil {
		return agl.DequeueResult{}, err
	}
	if err := checkIDs(givenID{"worker_id", p.WorkerID.V}, givenID{"idempotency_key", p.IdempotencyKey}); err != nil {
		return agl.DequeueResult{}, err
	}
	key := dequeueKey(p)
	land, err := s.flights.enter(ctx, s.closing, key)
	if err != nil {
		return agl.DequeueResult{}, err
	}
	defer land()
	c := &dequeueCommand{waiter: waiter{params: p, key: key}}
	if p.Wait > 0 {
		c.ready = make(chan struct{}, 1)
	}
	if err := s.submit(ctx, c); err != nil {
		return agl.DequeueResult{}, err
	}
	if !c.parked {
		return s.claimed(ctx, c)
	}
	return s.awaitClaim(ctx, c)
}

func (s *Store) awaitClaim(ctx context.Context, c *dequeueCommand) (agl.DequeueResult, error) {
	timeout, stop := s.clock.NewTimer(c.params.Wait)
	defer stop()
	select {
	case <-c.ready:
		return s.claimed(ctx, c)
	case <-ctx.Done():
		if err := s.leaveQueue(context.WithoutCancel(ctx), c); err != nil {
			return agl.DequeueResult{}, err
		}
		return agl.DequeueResult{}, ctx.Err()
	case <-timeout:
		leave := &leaveCommand{store: s, waiter: &c.waiter}
		if err := s.submit(ctx, leave); err != nil {
			return agl.DequeueResult{}, err
		}
		if leave.unserved {
			c.result, c.replay, c.failed = agl.DequeueResult{}, leave.replay, leave.failed
		}
		return s.claimed(ctx, c)
	case <-s.closing:
		select {
		case <-c.ready:
			return s.claimed(ctx, c)
		default:
			return agl.DequeueResult{}, errClosed()
		}
	}
}

// leaveQueue ends a blocked dequeue whose caller is gone. Claims that were made
// for it meanwhile, or by a commit that only seemed to fail, are returned.
func (s *Store) leaveQueue(ctx context.Context, c *dequeueCommand) error {
	leave := &leaveCommand{store: s, waiter: &c.waiter}
	if err := s.submit(ctx, leave); err != nil {
		return err
	}
	claims := attemptKeys(agl.ClaimsOf(c.result.Rollouts...))
	if leave.replay != nil {
		claims = append(claims, leave.replay.Made...)
	}
	if len(claims) == 0 {
		return nil
	}
	return s.submit(ctx, &returnCommand{store: s, claims: claims, key: c.key})
}

// claimed is the answer of a dequeue that was served.
func (s *Store) claimed(ctx context.Context, c *dequeueCommand) (agl.DequeueResult, error) {
	if c.replay != nil {
		return s.replayDequeue(ctx, c.replay)
	}
	return c.result, c.failed
}

// runDequeues serves blocked dequeues first, in the order in which they came,
// then those of this batch.
func (s *Store) runDequeues(ctx context.Context, tx Batch, commands []command) error {
	w := s.work
	q := claimer{store: s, tx: tx, w: w}
	switch {
	case s.waiters.Len() == 0:
		s.recheck = false
	case w.queueClosed:
		w.released, s.recheck = true, false
	case len(w.queued) > 0 || s.recheck:
		if err := s.serveWaiters(ctx, &q); err != nil {
			return err
		}
	}
	for _, cmd := range commands {
		if c, ok := cmd.(*dequeueCommand); ok {
			if err := s.dequeue(ctx, &q, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// repeated looks for an earlier use of the command's key and reports whether
// there is no more to do.
func (c *dequeueCommand) repeated(w *work) bool {
	c.replay, c.err = c.key.replay(w)
	return c.replay != nil || c.err != nil
}

// dequeue answers a dequeue of this batch or lets it wait. Its error is the
// batch's; that of the command alone is in its header.
func (s *Store) dequeue(ctx context.Context, q *claimer, c *dequeueCommand) error {
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
			c.parked = true
			w.parked = append(w.parked, &c.waiter)
		}
	}
	return nil
}

func (s *Store) serveWaiters(ctx context.Context, q *claimer) error {
	w := s.work
	w.want.reset()
	most := len(w.queued)
	if s.recheck {
		most = maxBatch
	}
	n := 0
	for e := s.waiters.Front(); e != nil && n < most; e = e.Next() {
		waiting := waiterOf(e)
		if id := waiting.params.WorkerID.V; id != "" && w.workers[id] == nil {
			w.want.Workers = append(w.want.Workers, id)
		}
		waiting.key.load(&w.want)
		n++
	}
	if len(w.want.Workers)+len(w.want.Keys) > 0 {
		w.loaded.reset()
		if err := q.tx.Load(ctx, &w.want, &w.loaded); err != nil {
			return err
		}
		w.index()
	}
	replayed := false
	e := s.waiters.Front()
	for ; e != nil && n > 0; e = e.Next() {
		n--
		waiting := waiterOf(e)
		// A commit that seemed to fail may have served it before, and its caller may
		// have asked again elsewhere.
		if waiting.replay, waiting.failed = waiting.key.replay(w); waiting.replay != nil || waiting.failed != nil {
			w.served = append(w.served, waiting)
			replayed = true
			continue
		}
		if err := q.claim(ctx, waiting); err != nil {
			return err
		}
		if len(waiting.result.Rollouts) == 0 {
			s.recheck = false
			return nil
		}
		w.served = append(w.served, waiting)
	}
	// More may be there for those behind the ones that were looked at.
	s.recheck = (s.recheck || replayed) && e != nil
	return nil
}

func waiterOf(e *list.Element) *waiter {
	return e.Value.(*waiter) //nolint:forcetypeassert // the list holds nothing else
}

// claimer takes rollouts off the queue during one batch: first those that the
// driver knows, then those that the batch itself has queued.
type claimer struct {
	store  *Store
	tx     Batch
	w      *work
	known  []string // claimed from the driver, not yet used
	empty  bool     // the driver has no more
	queued int      // index into w.queued
}

// minClaim is how many rollouts are asked for at once at least, so that several
// dequeues of a batch share a read.
const minClaim = 16

// next returns the head of the queue, nil when it is empty.
func (q *claimer) next(ctx context.Context, want int) (*rolloutEntry, error) {
	for {
		if len(q.known) == 0 && !q.empty {
			w := q.w
			w.loaded.reset()
			limit := max(want, minClaim)
			var claimed []string
			err := q.store.observe("Claim", func() (err error) {
				claimed, err = q.tx.Claim(ctx, limit, &w.loaded)
				return err
			})
			if err != nil {
				return nil, err
			}
			w.index()
			q.known, q.empty = claimed, len(claimed) < limit
		}
		var e *rolloutEntry
		switch {
		case len(q.known) > 0:
			e = q.w.rollouts[q.known[0]]
			q.known = q.known[1:]
		case q.queued < len(q.w.queued):
			e = q.w.queued[q.queued]
			q.queued++
		default:
			return nil, nil //nolint:nilnil // an empty queue is no error
		}
		// It may have been claimed, cancelled or deleted earlier in this batch.
		if e != nil && e.cur != nil && e.cur.Status.Queued() {
			return e, nil
		}
	}
}

// claim fills a dequeue's result.
func (q *claimer) claim(ctx context.Context, waiting *waiter) error {
	w, p := q.w, &waiting.params
	waiting.result = agl.DequeueResult{}
	for len(waiting.result.Rollouts) < p.Limit {
		e, err := q.next(ctx, p.Limit-len(waiting.result.Rollouts))
		if err != nil {
			waiting.result = agl.DequeueResult{}
			return err
		}
		if e == nil {
			break
		}
		w.startAttempt(e, p.WorkerID)
		waiting.result.Rollouts = append(waiting.result.Rollouts, e.attempted())
	}
	claims := waiting.result.Rollouts
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
	return nil
}

// polled notes a dequeue that found nothing.
func (q *claimer) polled(workerID string) {
	if workerID == "" {
		return
	}
	e := q.w.worker(workerID)
	q.w.setWorker(e, workerPolled(*e.cur, q.w.now))
}

// startAttempt gives a rollout its next attempt.
func (w *work) startAttempt(e *rolloutEntry, worker agl.Null[string]) *agl.Attempt {
	prior := 0
	if e.latest != nil {
		prior = e.latest.cur.SequenceID
	}
	r, a := begin(*e.cur, prior, newID("at-", attemptIDBytes), worker, w.now)
	w.setRollout(e, &r)
	return w.addAttempt(e, &a).cur
}

// tellWaiters wakes the dequeues that were served by the batch just committed
// and takes its own into the list.
func (s *Store) tellWaiters(w *work) {
	for _, waiting := range w.served {
		s.wake(waiting)
	}
	if w.released {
		for e := s.waiters.Front(); e != nil; e = s.waiters.Front() {
			waiterOf(e).answer(agl.DequeueResult{Closed: true})
			s.wake(waiterOf(e))
		}
	}
	for _, waiting := range w.parked {
		waiting.place = s.waiters.PushBack(waiting)
	}
}

func (s *Store) wake(waiting *waiter) {
	s.waiters.Remove(waiting.place)
	waiting.place = nil
	waiting.ready <- struct{}{}
}

// leaveCommand takes a blocked dequeue off the list of those that wait.
type leaveCommand struct {
	header

	store    *Store
	waiter   *waiter
	unserved bool // it was still on the list
	// When it was: what its key says all the same. A commit that seemed to fail may
	// have served it.
	replay *IdempotencyRecord
	failed error
}

func (c *leaveCommand) load(want *LoadParams) { c.waiter.key.load(want) }

// leave is done whatever becomes of the batch: the list is in memory, and nobody
// waits for an answer any more.
func (c *leaveCommand) leave() {
	if c.waiter.place != nil {
		c.store.waiters.Remove(c.waiter.place)
		c.waiter.place = nil
		c.unserved = true
	}
}

func (c *leaveCommand) run(w *work) error {
	c.leave()
	if c.unserved {
		c.replay, c.failed = c.waiter.key.replay(w)
	}
	return nil
}

// replayDequeue answers a repeated dequeue with the claims that the first made.
func (s *Store) replayDequeue(ctx context.Context, record *IdempotencyRecord) (agl.DequeueResult, error) {
	claims, err := s.replayAttempts(ctx, record)
	return agl.DequeueResult{Rollouts: claims}, err
}
