package upstream

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// PauseMode says what happens to calls while the proxy is paused.
type PauseMode string

// The modes of a pause.
const (
	// PauseHold makes new calls wait until the proxy is resumed: Config.PauseQueue of
	// them, for Config.PauseTimeout each. Running calls continue.
	PauseHold PauseMode = "hold"
	// PauseReject refuses new calls with 429 and Retry-After.
	PauseReject PauseMode = "reject"
	// PauseDrain holds new calls and waits until none runs.
	PauseDrain PauseMode = "drain"
	// PauseAbort holds new calls and cancels the running ones, also at the backend:
	// an agent that has seen nothing of its reply gets 503, others a broken
	// connection.
	PauseAbort PauseMode = "abort"
)

// gate holds calls back while the proxy is paused, and counts those at a backend.
type gate struct {
	queue   int           // number of calls that may wait
	timeout time.Duration // for each

	mu      sync.Mutex
	mode    PauseMode             // empty while open
	resumed chan struct{}         // closed when the gate opens or changes its mode; nil while open
	inside  map[*passage]struct{} // calls that are at a backend
	empty   []chan struct{}       // closed when inside is empty, or the gate opens
	held    int                   // calls that wait
}

// wait returns once calls may pass. Its error is an *openai.Error when they may not,
// or the cause of ctx.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed == nil {
		return nil
	}
	if g.mode != PauseReject && g.held >= g.queue {
		return refusal(http.StatusServiceUnavailable, "pause_queue_full", 0,
			fmt.Sprintf("the proxy is paused while the model is being updated, and %d calls are waiting already", g.held))
	}
	g.held++
	defer func() { g.held-- }()
	timer := time.NewTimer(g.timeout)
	defer timer.Stop()
	for g.resumed != nil {
		if g.mode == PauseReject {
			return refusal(http.StatusTooManyRequests, "paused", 0, "the proxy is paused while the model is being updated")
		}
		if !g.await(ctx, timer) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return refusal(http.StatusServiceUnavailable, "pause_timeout", 0,
				fmt.Sprintf("the proxy has been paused for longer than the %v that a call may wait", g.timeout))
		}
	}
	return nil
}

// await releases the lock until the gate opens or changes its mode. It reports false if
// the timer or ctx ended the wait.
func (g *gate) await(ctx context.Context, timer *time.Timer) bool {
	resumed := g.resumed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-resumed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// passage is a call that is at a backend; cancel ends it.
type passage struct{ cancel context.CancelCauseFunc }

// enter counts a call that goes to a backend; leave ends it. It returns nil while the
// proxy is paused.
func (g *gate) enter(cancel context.CancelCauseFunc) *passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		return nil
	}
	in := &passage{cancel}
	g.inside[in] = struct{}{}
	return in
}

// leave ends a call that enter has counted; nil does nothing.
func (g *gate) leave(in *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, in)
	if len(g.inside) == 0 {
		g.endWaits()
	}
}

// endWaits ends the waits of those who have closed the gate.
func (g *gate) endWaits() {
	for _, e := range g.empty {
		close(e)
	}
	g.empty = nil
}

// close closes the gate. If the mode waits for running calls, the channel is closed
// once none is left or the gate opens, otherwise at once.
func (g *gate) close(mode PauseMode) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		close(g.resumed) // waiting calls see the new mode
	}
	g.mode, g.resumed = mode, make(chan struct{})
	if mode == PauseAbort {
		for in := range g.inside {
			in.cancel(errAborted)
		}
	}
	empty := make(chan struct{})
	if mode == PauseHold || mode == PauseReject || len(g.inside) == 0 {
		close(empty)
	} else {
		g.empty = append(g.empty, empty)
	}
	return empty
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		close(g.resumed)
		g.mode, g.resumed = "", nil
		g.endWaits()
	}
}

// PauseState says whether the proxy is paused.
type PauseState struct {
	Mode    PauseMode // empty while it is not
	Held    int       // calls that wait
	Running int       // calls that are at a backend
}

func (g *gate) state() PauseState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return PauseState{Mode: g.mode, Held: g.held, Running: len(g.inside)}
}
