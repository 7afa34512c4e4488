package capture

import (
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/spool"
)

// entry is a call that has begun and whose record is not stored yet.
type entry struct {
	attempt  *attempt
	order    int64 // number of the call within its attempt, by start
	start    time.Time
	barriers []*barrier // the ledger's lock guards them

	// sequenced is closed once the call has its sequence id, or cannot get one. The
	// backlog's lock guards it and the fields below, up to queued.
	sequenced     chan struct{}
	sequenceState sequenceState
	sequenceID    int64 // set once sequenceState is sequenceGiven
	refused       error // why the call cannot get one
	ended         bool
	queued        bool

	// After the call has ended these belong to the goroutine that handles the entry.
	input      *record.Input
	memory     *Reservation
	free       func() // releases the memory of input; may be nil
	recordedID int64  // the sequence id in the built record; 0 if the call had none yet
	spans      []jsontext.Value

	mark mark      // set while the call is neither stored nor spooled
	ref  spool.Ref // of the record on disk
	// spanBytes is the size of the expanded spans of the record on disk.
	spanBytes int
}

// freeInput releases the memory of the reply, once the record is built.
func (e *entry) freeInput() {
	if e.free != nil {
		e.free()
		e.free = nil
	}
}

// mark tells the next process that a call was running when this one ended.
type mark struct {
	uid  uint64 // unique among the calls of all processes; 0 for a lost call of an earlier one
	slot int64  // in spool.Marks
	set  bool
}

// sequenceState says whether a call has its sequence id.
type sequenceState int

const (
	sequencePending sequenceState = iota
	sequenceGiven
	sequenceRefused
)

// ledger holds every call that has begun and is not stored yet, in the order in which
// the calls of each attempt began, and the losses of each attempt.
type ledger struct {
	mu          sync.Mutex
	wake        sync.Cond // an attempt needs sequence ids, or the ledger is closed
	closed      bool
	rollouts    map[string]*rollout
	unsequenced []*attempt // attempts with calls that need sequence ids and that no sequencer holds
	lossy       []*attempt // attempts with losses, the oldest loss in front
	caches      caches
}

// rollout holds the attempts of a rollout in the ledger, in the order in which they
// began.
type rollout struct {
	id       string
	attempts []*attempt
}

// attempt holds the calls of an attempt that are not stored, its losses, and a cache
// of the data with which its next record is compared. The ledger drops an attempt that
// has none of these.
type attempt struct {
	id          string
	rollout     *rollout
	entries     map[*entry]struct{}
	began       int64    // calls so far
	unsequenced []*entry // calls that need a sequence id, in the order of their starts
	sequencing  bool     // queued for a sequencer, or held by one

	losses
	cache *cache // nil when there is none

	spooled int // records on disk; the spool's lock guards it
}

// losses are the records of an attempt that could not be stored.
type losses struct {
	lost     int
	reported int    // how many of them a flush of all calls has reported
	cause    error  // of the first
	marks    []mark // of lost calls that no flush has reported
}

// maxLossy is the number of attempts whose losses are remembered.
const maxLossy = 1 << 16

func newLedger() *ledger {
	l := &ledger{rollouts: make(map[string]*rollout), caches: caches{limit: maxCacheBytes, seed: maphash.MakeSeed()}}
	l.wake.L = &l.mu
	return l
}

// attemptOf returns an attempt, and adds it if it is new.
func (l *ledger) attemptOf(rolloutID, attemptID string) *attempt {
	r := l.rollouts[rolloutID]
	if r == nil {
		r = &rollout{id: rolloutID}
		l.rollouts[rolloutID] = r
	}
	for _, a := range r.attempts {
		if a.id == attemptID {
			return a
		}
	}
	for _, before := range r.attempts { // a new attempt means that they have ended
		l.caches.drop(before)
	}
	a := &attempt{id: attemptID, rollout: r, entries: make(map[*entry]struct{}, 1)}
	r.attempts = append(r.attempts, a)
	return a
}

// arrive adds an attempt that may not have made a call, so that a flush of the rollout
// does not report the losses of an earlier attempt. It ignores rollouts without calls.
func (l *ledger) arrive(rolloutID, attemptID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rollouts[rolloutID] != nil {
		l.attemptOf(rolloutID, attemptID)
	}
}

// begin adds a call, and requests its sequence id if it has none.
func (l *ledger) begin(rolloutID, attemptID string, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.attemptOf(rolloutID, attemptID)
	a.began++
	a.entries[e] = struct{}{}
	e.attempt, e.order, e.sequenced = a, a.began, make(chan struct{})
	if e.sequenceState != sequencePending {
		close(e.sequenced)
		return
	}
	a.unsequenced = append(a.unsequenced, e)
	if !a.sequencing {
		a.sequencing = true
		l.unsequenced = append(l.unsequenced, a)
		l.wake.Signal()
	}
}

// unsequencedOf returns the calls of an attempt that have no sequence id yet and may get one.
func (l *ledger) unsequencedOf(rolloutID, attemptID string) (calls []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rollouts[rolloutID]
	if r == nil {
		return nil
	}
	for _, a := range r.attempts {
		if a.id != attemptID {
			continue
		}
		for e := range a.entries {
			if !background.Closed(e.sequenced) {
				calls = append(calls, e)
			}
		}
	}
	return calls
}

// done removes a call, once its record is stored, or lost with an error.
func (l *ledger) done(e *entry, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := e.attempt
	delete(a.entries, e)
	if lost != nil {
		l.addLoss(a, lost, e.mark)
	}
	for _, b := range e.barriers {
		b.pass()
	}
	l.forget(a.rollout)
}

// lose counts a lost call of which only the mark on disk is left.
func (l *ledger) lose(rolloutID, attemptID string, why error, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLoss(l.attemptOf(rolloutID, attemptID), why, m)
}

func (l *ledger) addLoss(a *attempt, why error, m mark) {
	if a.lost++; a.lost == 1 {
		a.cause = why
		l.lossy = append(l.lossy, a)
	}
	if m.set {
		a.marks = append(a.marks, m)
	}
	if len(l.lossy) > maxLossy {
		oldest := l.lossy[0]
		l.lossy = l.lossy[1:]
		oldest.losses = losses{}
		l.forget(oldest.rollout)
	}
}

// forget drops the attempts of a rollout that hold nothing. The newest attempt stays
// while an earlier one has losses: a flush of the rollout reports the newest attempt it
// finds, and must not report those.
func (l *ledger) forget(r *rollout) {
	newest, lossy := r.attempts[len(r.attempts)-1], false
	r.attempts = slices.DeleteFunc(r.attempts, func(a *attempt) bool {
		lossy = lossy || a.lost > 0
		return len(a.entries) == 0 && a.lost == 0 && a.cache == nil && (a != newest || !lossy)
	})
	if len(r.attempts) == 0 {
		delete(l.rollouts, r.id)
	}
}

// barrier opens when all calls that had begun before it are done.
type barrier struct {
	left int // calls that are not done; the ledger's lock guards it
	open chan struct{}
}

func (b *barrier) pass() {
	if b.left--; b.left == 0 {
		close(b.open)
	}
}

// Scope selects the calls of a flush: those of one attempt, those of some rollouts, or
// all (the zero value).
type Scope struct {
	RolloutIDs []string
	AttemptID  string // if set, RolloutIDs has its rollout only
}

func (s Scope) all() bool { return len(s.RolloutIDs) == 0 }

func (s Scope) covers(a *attempt) bool { return s.AttemptID == "" || s.AttemptID == a.id }

// barrier returns a barrier for the calls of a scope that have begun and that are counted.
func (l *ledger) barrier(s Scope, counts func(e *entry) bool) *barrier {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &barrier{open: make(chan struct{})}
	l.each(s, func(r *rollout) {
		for _, a := range r.attempts {
			if !s.covers(a) {
				continue
			}
			for e := range a.entries {
				if counts(e) {
					e.barriers = append(e.barriers, b)
					b.left++
				}
			}
		}
	})
	if b.left == 0 {
		close(b.open)
	}
	return b
}

// lost returns an error if records of a scope could not be stored, and the marks of their
// calls. For a rollout only the newest attempt counts, because a retry must not fail for the
// losses of an earlier one. For all calls each loss is reported once, so that one loss does
// not fail every later flush. The attempts of a flush have ended, so their caches are dropped.
func (l *ledger) lost(s Scope) (marks []mark, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count, cause, where := 0, error(nil), ""
	add := func(a *attempt, n int) {
		if count += n; cause == nil && n > 0 {
			cause, where = a.cause, a.rollout.id
		}
		marks = append(marks, a.marks...)
		a.marks = nil
	}
	l.each(s, func(r *rollout) {
		for i, a := range r.attempts {
			switch {
			case s.all():
				add(a, a.lost-a.reported)
				a.reported = a.lost
				continue
			case !s.covers(a):
				continue
			case s.AttemptID != "" || i == len(r.attempts)-1:
				add(a, a.lost)
			}
			l.caches.drop(a)
		}
		l.forget(r)
	})
	if count == 0 {
		return marks, nil
	}
	const lost = "%d call records could not be stored, one of them of rollout %q: "
	if agl.Transient(cause) { // the loss is not: nobody may wait for the records by flushing again
		return marks, agl.Errorf(agl.CodeIllegalState, lost+"%v", count, where, cause)
	}
	return marks, agl.Errorf(agl.ErrorCode(cause), lost+"%w", count, where, cause)
}

// each visits the rollouts of a scope that the ledger holds, each once.
func (l *ledger) each(s Scope, visit func(r *rollout)) {
	if s.all() {
		for _, r := range l.rollouts {
			visit(r)
		}
		return
	}
	visited := make(map[*rollout]struct{}, len(s.RolloutIDs))
	for _, id := range s.RolloutIDs {
		r := l.rollouts[id]
		if _, again := visited[r]; r != nil && !again {
			visited[r] = struct{}{}
			visit(r)
		}
	}
}

// maxCacheBytes bounds the memory of all caches. An attempt whose cache was dropped
// continues as if its next call were its first: that call has no drift index, and a
// repeated response id is not made unique.
const maxCacheBytes = 64 << 20

// cache holds the data with which the next record of an attempt is compared.
type cache struct {
	seen  map[uint64]struct{} // hashes of response ids
	last  *record.Tokens      // of the call that began last among those with token ids
	order int64               // entry.order of that call
	bytes int
	place *list.Element
}

const (
	cacheBytes = 256 // estimated size of an empty cache
	seenBytes  = 24  // estimated size of an element of seen
)

// caches tracks the caches of all attempts. The ledger's lock guards it.
type caches struct {
	limit int
	bytes int
	order list.List // of *attempt, the least recently used in front
	seed  maphash.Seed
}

// drop frees the cache of an attempt.
func (c *caches) drop(a *attempt) {
	if a.cache != nil {
		c.bytes -= a.cache.bytes
		c.order.Remove(a.cache.place)
		a.cache = nil
	}
}

func (c *caches) grow(of *cache, n int) {
	of.bytes += n
	c.bytes += n
}

// position returns the data with which the record of a call is compared: the token ids
// of the previous call, or nil if there are none or a later call was recorded first;
// and whether an earlier call of the attempt had a response id.
func (l *ledger) position(e *entry) (previous *record.Tokens, seen func(responseID string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := e.attempt.cache; c != nil && c.order < e.order {
		previous = c.last
	}
	return previous, func(responseID string) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.attempt.cache == nil {
			return false
		}
		_, is := e.attempt.cache.seen[maphash.String(l.caches.seed, responseID)]
		return is
	}
}

// remember caches the data with which later records of the attempt are compared,
// unless a later attempt of the rollout has begun.
func (l *ledger) remember(e *entry, made *record.Made) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, attempts := e.attempt, e.attempt.rollout.attempts
	if a != attempts[len(attempts)-1] {
		return
	}
	if a.cache == nil {
		a.cache = &cache{seen: make(map[uint64]struct{}), place: l.caches.order.PushBack(a)}
		l.caches.grow(a.cache, cacheBytes)
	}
	c := a.cache
	l.caches.order.MoveToBack(c.place)
	if hash := maphash.String(l.caches.seed, made.ResponseID); made.ResponseID != "" {
		if _, known := c.seen[hash]; !known {
			c.seen[hash] = struct{}{}
			l.caches.grow(c, seenBytes)
		}
	}
	if made.Tokens != nil && c.order < e.order {
		before := c.last.Bytes()
		c.last, c.order = c.last.Copy(made.Tokens), e.order
		l.caches.grow(c, c.last.Bytes()-before)
	}
	for l.caches.bytes > l.caches.limit {
		oldest, _ := l.caches.order.Front().Value.(*attempt)
		l.caches.drop(oldest)
		l.forget(oldest.rollout)
	}
}

// sequenceRequest is an attempt held by a sequencer, with its calls that need sequence ids.
type sequenceRequest struct {
	attempt *attempt
	entries []*entry
}

// take blocks until calls need sequence ids, and returns those of at most that many
// attempts to a sequencer, which must release them. ok is false when the ledger is closed
// and no call is left.
func (l *ledger) take(most int) (taken []sequenceRequest, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaitUnsequenced(); len(l.unsequenced) == 0 {
		return nil, false
	}
	n := min(len(l.unsequenced), most)
	taken = make([]sequenceRequest, n)
	for i, a := range l.unsequenced[:n] {
		taken[i] = sequenceRequest{a, a.unsequenced}
		a.unsequenced = nil
	}
	l.unsequenced = l.unsequenced[n:]
	return taken, true
}

// await blocks until a call needs a sequence id, or the ledger is closed.
func (l *ledger) await() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaitUnsequenced()
}

func (l *ledger) awaitUnsequenced() {
	for len(l.unsequenced) == 0 && !l.closed {
		l.wake.Wait()
	}
}

// release ends a sequencer's hold on attempts.
func (l *ledger) release(taken []sequenceRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range taken {
		if a := w.attempt; len(a.unsequenced) == 0 {
			a.sequencing = false
		} else {
			l.unsequenced = append(l.unsequenced, a)
			l.wake.Signal()
		}
	}
}

// close makes take return ok false once no call needs a sequence id.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake.Broadcast()
}
