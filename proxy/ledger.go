package proxy

import (
	"container/list"
	"sync"
	"unsafe"

	"github.com/agl-go/agl"
)

// How much the ledger remembers of rollouts that have no call running: what
// drift detection compares with, and which records were lost.
const (
	maxIdleRollouts   = 1 << 16
	maxIdleTokenBytes = 64 << 20
)

// ledger knows every call that has begun and is not yet stored, by rollout, and
// in which order the calls of each attempt began.
type ledger struct {
	mu         sync.Mutex
	wake       sync.Cond // an attempt wants sequence ids, or closed
	closed     bool
	rollouts   map[string]*rollout
	idle       list.List  // of *rollout without calls, the longest idle in front
	tokenBytes int64      // held by all attempts
	wanting    []*attempt // attempts with calls that want sequence ids
}

type rollout struct {
	id       string
	attempts map[string]*attempt
	calls    call // ring of the calls that are not stored
	place    *list.Element
	newest   *attempt // the one that began last
}

type attempt struct {
	id      string
	rollout *rollout
	began   int64   // calls so far
	want    []*call // calls that want a sequence id, in the order of their starts
	wanted  bool    // the attempt is in the hands of a sequencer or waits for one
	lost    int     // records that could not be stored
	told    int     // of these, how many a flush of everything has reported
	lostErr error   // why the first one could not
	marks   []int64 // of lost records that no flush has reported, by their slots

	cancelled bool // its rollout was

	spooled int // records on disk; the recorder's lock guards it

	// The writer's alone.
	seen map[string]struct{} // response ids
	last *tokens             // of the call that began last among those recorded
}

// tokens are the ids of one call.
type tokens struct {
	order   int64
	prompt  []int32
	replies [][]int32 // by choice
}

func (t *tokens) bytes() int64 {
	if t == nil {
		return 0
	}
	n := len(t.prompt)
	for _, r := range t.replies {
		n += len(r)
	}
	return int64(n) * int64(unsafe.Sizeof(int32(0)))
}

func newLedger() *ledger {
	l := &ledger{rollouts: make(map[string]*rollout)}
	l.wake.L = &l.mu
	return l
}

// attempt returns an attempt, which is known from then on.
func (l *ledger) attempt(rolloutID, attemptID string) *attempt {
	r := l.rollouts[rolloutID]
	if r == nil {
		r = &rollout{id: rolloutID, attempts: make(map[string]*attempt, 1)}
		r.calls.next, r.calls.prev = &r.calls, &r.calls
		l.rollouts[rolloutID] = r
		r.place = l.idle.PushBack(r)
	}
	a := r.attempts[attemptID]
	if a == nil {
		a = &attempt{id: attemptID, rollout: r, seen: make(map[string]struct{})}
		r.attempts[attemptID] = a
		r.newest = a
	}
	return a
}

// arrive makes an attempt known that may make no call, so that the losses of an
// earlier one are not taken for its own. Rollouts without calls stay unknown.
func (l *ledger) arrive(rolloutID, attemptID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rollouts[rolloutID] != nil {
		l.attempt(rolloutID, attemptID)
	}
}

// begin enters a call and asks for its sequence id, if it wants one.
func (l *ledger) begin(c *call, want bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.attempt(c.rolloutID, c.attemptID)
	r := a.rollout
	if r.place != nil {
		l.idle.Remove(r.place)
		r.place = nil
	}
	a.began++
	c.attempt, c.order, c.sequenced = a, a.began, make(chan struct{})
	c.prev, c.next = r.calls.prev, &r.calls
	c.prev.next, c.next.prev = c, c
	if !want {
		close(c.sequenced)
		return
	}
	a.want = append(a.want, c)
	if !a.wanted {
		a.wanted = true
		l.wanting = append(l.wanting, a)
		l.wake.Signal()
	}
}

// done takes a call out: its record is stored, or lost for the reason given.
func (l *ledger) done(c *call, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := c.attempt.rollout
	c.prev.next, c.next.prev = c.next, c.prev
	if a := c.attempt; lost != nil {
		if a.lose(lost); c.marked {
			a.marks = append(a.marks, c.slot)
		}
	}
	for _, b := range c.barriers {
		b.pass()
	}
	if r.calls.next == &r.calls {
		r.place = l.idle.PushBack(r)
		l.evict()
	}
}

func (a *attempt) lose(why error) {
	if a.lost++; a.lostErr == nil {
		a.lostErr = why
	}
}

// lose counts a call that is known by its mark only.
func (l *ledger) lose(rolloutID, attemptID string, why error, slot int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.attempt(rolloutID, attemptID)
	a.lose(why)
	a.marks = append(a.marks, slot)
}

// remember replaces the ids that the attempt's next call is compared with.
func (l *ledger) remember(a *attempt, t *tokens) {
	grown := t.bytes() - a.last.bytes()
	a.last = t
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokenBytes += grown
}

// evict forgets rollouts that have been idle longest.
func (l *ledger) evict() {
	for l.idle.Len() > maxIdleRollouts || l.tokenBytes > maxIdleTokenBytes {
		front := l.idle.Front()
		if front == nil {
			return
		}
		r, _ := l.idle.Remove(front).(*rollout)
		for _, a := range r.attempts {
			l.tokenBytes -= a.last.bytes()
		}
		delete(l.rollouts, r.id)
	}
}

// barrier waits for the calls that had begun when it was put up.
type barrier struct {
	left int // calls that are not stored; the ledger's lock guards it
	open chan struct{}
}

func (b *barrier) pass() {
	if b.left--; b.left == 0 {
		close(b.open)
	}
}

// scope says whose calls a flush is about: those of one attempt, those of
// rollouts, or, when it is zero, all.
type scope struct {
	rolloutIDs []string
	attemptID  string // of the one rollout given
}

func (s scope) all() bool { return len(s.rolloutIDs) == 0 }

func (s scope) covers(a *attempt) bool { return s.attemptID == "" || s.attemptID == a.id }

// barrier puts up a barrier behind the calls of a scope.
func (l *ledger) barrier(s scope) *barrier {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &barrier{open: make(chan struct{})}
	l.each(s, func(r *rollout) {
		for c := r.calls.next; c != &r.calls; c = c.next {
			if s.covers(c.attempt) {
				c.barriers = append(c.barriers, b)
				b.left++
			}
		}
	})
	if b.left == 0 {
		close(b.open)
	}
	return b
}

// lost reports the records that could not be stored: those of the attempt given;
// those of the newest attempt of each rollout given, since what an earlier
// attempt lost is no fault of a later one; or those of all attempts, each once,
// so that one loss does not fail all that follows. The marks are those that have
// now done their work.
func (l *ledger) lost(s scope) (marks []int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count, cause, where := 0, error(nil), ""
	add := func(a *attempt, n int) {
		if count += n; cause == nil && n > 0 {
			cause, where = a.lostErr, a.rollout.id
		}
		marks = append(marks, a.marks...)
		a.marks = nil
	}
	l.each(s, func(r *rollout) {
		if !s.all() && s.attemptID == "" {
			add(r.newest, r.newest.lost)
			return
		}
		for _, a := range r.attempts {
			switch {
			case s.all():
				add(a, a.lost-a.told)
				a.told = a.lost
			case s.covers(a):
				add(a, a.lost)
			}
		}
	})
	if count == 0 {
		return marks, nil
	}
	return marks, agl.Errorf(agl.ErrorCode(cause), "%d call records could not be stored, the first of rollout %s: %w", count, where, cause)
}

// each visits the known rollouts of a scope, each once.
func (l *ledger) each(s scope, visit func(r *rollout)) {
	if s.all() {
		for _, r := range l.rollouts {
			visit(r)
		}
		return
	}
	visited := make(map[*rollout]struct{}, len(s.rolloutIDs))
	for _, id := range s.rolloutIDs {
		r := l.rollouts[id]
		if _, again := visited[r]; r != nil && !again {
			visited[r] = struct{}{}
			visit(r)
		}
	}
}

// wanted is an attempt in the hands of a sequencer, with its calls that want
// sequence ids.
type wanted struct {
	attempt *attempt
	calls   []*call
}

// take hands the calls of at most so many attempts that want sequence ids to a
// sequencer, which gives the attempts back with release. It blocks until there
// is one; ok is false when the ledger is closed and nothing is left.
func (l *ledger) take(most int) (taken []wanted, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.untilWanted(); len(l.wanting) == 0 {
		return nil, false
	}
	n := min(len(l.wanting), most)
	taken = make([]wanted, n)
	for i, a := range l.wanting[:n] {
		taken[i] = wanted{a, a.want}
		a.want = nil
	}
	l.wanting = l.wanting[n:]
	return taken, true
}

// await blocks until sequence ids are wanted, or the ledger is closed.
func (l *ledger) await() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untilWanted()
}

func (l *ledger) untilWanted() {
	for len(l.wanting) == 0 && !l.closed {
		l.wake.Wait()
	}
}

// release ends a sequencer's hold on attempts.
func (l *ledger) release(taken []wanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range taken {
		if a := w.attempt; len(a.want) == 0 {
			a.wanted = false
		} else {
			l.wanting = append(l.wanting, a)
			l.wake.Signal()
		}
	}
}

// close lets take end once nothing is wanted any more.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Broadcast()
}
