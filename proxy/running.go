package proxy

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agl-go/agl/proxy/openai"
)

// attemptKey names an attempt; it is zero for calls that belong to none.
type attemptKey struct{ rolloutID, attemptID string }

// maxCancelled is the number of cancelled attempts that are remembered.
const maxCancelled = 1 << 18

// running holds the running calls, recorded or not, and the attempts that were cancelled.
// Both share one lock, so that no call can start while its attempt is being cancelled.
type running struct {
	mu        sync.Mutex
	calls     map[*runningCall]struct{}
	cancelled map[attemptKey]struct{} // tombstones
	order     list.List               // of attemptKey in cancelled, the oldest in front
	started   bool
	closing   bool
	idle      chan struct{} // closed once closing and nothing is running
}

// runningCall is a call; cancel ends it with the answer to its agent.
type runningCall struct {
	running *running
	attempt attemptKey
	emitted chan struct{} // closed at the end of an emission; nil for a call of a model
	cancel  context.CancelCauseFunc
}

func newRunning() *running {
	return &running{calls: make(map[*runningCall]struct{}), cancelled: make(map[attemptKey]struct{}), idle: make(chan struct{})}
}

func errShuttingDown() *openai.Error {
	return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "shutting_down", "the proxy is shutting down").After(time.Second)
}

func errAttemptCancelled() *openai.Error {
	return openai.NewError(http.StatusGone, openai.InvalidRequestError, "attempt_cancelled", "the attempt was cancelled")
}

// start admits calls from now on. It reports false if it was called before.
func (r *running) start() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.started && !r.closing
	r.started = true
	return first
}

// enter adds a call or, if emitted is not nil, an emission. It must leave at its end. The error is that for its agent.
func (r *running) enter(attempt attemptKey, emitted chan struct{}, cancel context.CancelCauseFunc) (_ *runningCall, refused *openai.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, gone := r.cancelled[attempt]
	switch {
	case r.closing:
		return nil, errShuttingDown()
	case !r.started:
		return nil, openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "not_started", "the proxy has not been started: call Start before it serves")
	case gone:
		return nil, errAttemptCancelled()
	}
	call := &runningCall{running: r, attempt: attempt, emitted: emitted, cancel: cancel}
	r.calls[call] = struct{}{}
	return call, nil
}

// leave says that the call has ended.
func (c *runningCall) leave() {
	r := c.running
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.calls, c); len(r.calls) == 0 && r.closing {
		close(r.idle)
	}
	if c.emitted != nil {
		close(c.emitted)
	}
}

// emissions returns the running emissions of an attempt, as channels that are closed at their ends.
func (r *running) emissions(attempt attemptKey) (running []<-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for call := range r.calls {
		if call.attempt == attempt && call.emitted != nil {
			running = append(running, call.emitted)
		}
	}
	return running
}

// cancel cancels the calls of an attempt and refuses further ones. It returns how many
// were running, and whether the attempt was not cancelled before.
func (r *running) cancel(attempt attemptKey) (calls int, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.cancelled[attempt]; !again {
		first = true
		r.cancelled[attempt] = struct{}{}
		if r.order.PushBack(attempt); r.order.Len() > maxCancelled {
			oldest, _ := r.order.Remove(r.order.Front()).(attemptKey)
			delete(r.cancelled, oldest)
		}
	}
	return r.interruptLocked(attempt), first
}

// interrupt cancels the calls of an attempt. Further ones may enter.
func (r *running) interrupt(attempt attemptKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interruptLocked(attempt)
}

func (r *running) interruptLocked(attempt attemptKey) (calls int) {
	for call := range r.calls {
		if call.attempt == attempt {
			call.cancel(errAttemptCancelled())
			calls++
		}
	}
	return calls
}

// close refuses further calls. The channel is closed once none is running. first is
// false if close was called before.
func (r *running) close() (idle <-chan struct{}, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return r.idle, false
	}
	r.closing = true
	if len(r.calls) == 0 {
		close(r.idle)
	}
	return r.idle, true
}

// abort cancels the calls that are still running and returns their number.
func (r *running) abort() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for call := range r.calls {
		call.cancel(errShuttingDown())
	}
	return len(r.calls)
}
