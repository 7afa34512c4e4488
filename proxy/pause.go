package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// PauseMode says what becomes of calls while the proxy is paused.
type PauseMode string

// The modes of a pause.
const (
	// PauseHold lets new calls wait until the proxy is resumed, Config.PauseQueue
	// of them, for Config.PauseTimeout each. Those that run go on.
	PauseHold PauseMode = "hold"
	// PauseReject refuses new calls with 429 and Retry-After.
	PauseReject PauseMode = "reject"
	// PauseDrain holds new calls and waits until none runs.
	PauseDrain PauseMode = "drain"
	// PauseAbort holds new calls and cancels those that run, also at the backend:
	// an agent that has seen nothing of a reply gets 503, others a broken
	// connection.
	PauseAbort PauseMode = "abort"
)

// errAborted cancels the calls that run when the proxy is paused so.
var errAborted = errors.New("the call was aborted: the model is being updated")

// gate lets calls to the backends unless the proxy is paused.
type gate struct {
	queue int // calls that may wait

	mu      sync.Mutex
	mode    PauseMode          // empty while not paused
	resumed chan struct{}      // closed when it opens or changes its mode; nil while open
	inside  map[*call]struct{} // calls that are at a backend
	empty   []chan struct{}    // closed when inside is
	held    int
}

// wait returns when calls may pass. Its error is a *failure when they may not,
// or the context's.
func (g *gate) wait(ctx context.Context, timeout time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed == nil {
		return nil
	}
	if g.mode != PauseReject && g.held >= g.queue {
		return paused(http.StatusServiceUnavailable, openai.OverloadedError, "pause_queue_full",
			fmt.Sprintf("the proxy is paused while the model is being updated, and %d calls wait already", g.held))
	}
	g.held++
	defer func() { g.held-- }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for g.resumed != nil {
		if g.mode == PauseReject {
			return paused(http.StatusTooManyRequests, openai.RateLimitError, "paused", "the proxy is paused while the model is being updated")
		}
		if !g.await(ctx, timer) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return paused(http.StatusServiceUnavailable, openai.OverloadedError, "pause_timeout",
				fmt.Sprintf("the proxy has been paused for longer than the %v that a call may wait", timeout))
		}
	}
	return nil
}

// await gives the lock up until the gate opens or changes its mode; it reports
// whether it did.
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

func paused(status int, kind, code, message string) *failure {
	f := fail(status, kind, code, message)
	f.retryAfter = 1
	return f
}

// enter counts a call in unless the proxy is paused.
func (g *gate) enter(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		return false
	}
	g.inside[c] = struct{}{}
	return true
}

// leave counts a call out that may be in.
func (g *gate) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, c)
	if len(g.inside) == 0 {
		for _, e := range g.empty {
			close(e)
		}
		g.empty = nil
	}
}

// close pauses. When the mode asks for it the channel is closed once no call is
// at a backend.
func (g *gate) close(mode PauseMode) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		close(g.resumed) // those that wait look again
	}
	g.mode, g.resumed = mode, make(chan struct{})
	if mode == PauseAbort {
		for c := range g.inside {
			c.cancel(errAborted)
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
	}
}

// PauseState says whether the proxy is paused.
type PauseState struct {
	Mode    PauseMode // empty while it is not
	Held    int       // calls that wait
	Running int       // calls that are at a backend
}

// PauseState returns whether the proxy is paused, and what it holds.
func (p *Proxy) PauseState() PauseState {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return PauseState{Mode: p.gate.mode, Held: p.gate.held, Running: len(p.gate.inside)}
}

// EngineFailure is an engine that did not do as it was told.
type EngineFailure struct {
	URL string // without its password
	Err error
}

// EnginesError says which engines could not be paused or resumed. The proxy
// itself was, and so were the others.
type EnginesError struct {
	Failures []EngineFailure
}

func (e *EnginesError) Error() string {
	list := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		list[i] = f.URL + ": " + f.Err.Error()
	}
	return fmt.Sprintf("%d engines failed: %s", len(list), strings.Join(list, "; "))
}

// Unwrap returns the engines' errors.
func (e *EnginesError) Unwrap() []error {
	list := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		list[i] = f.Err
	}
	return list
}

// Pause keeps calls from the backends until [Proxy.Resume]; an empty mode is
// PauseHold. PauseDrain and PauseAbort return when no call is at a backend, or
// with CodeUnavailable when ctx ends first; the proxy stays paused then. Once the
// calls are dealt with every Model.PauseURL is asked; an *EnginesError tells
// which failed. A pause of a paused proxy changes the mode.
func (p *Proxy) Pause(ctx context.Context, mode PauseMode) error {
	switch mode {
	case "":
		mode = PauseHold
	case PauseHold, PauseReject, PauseDrain, PauseAbort:
	default:
		return agl.Errorf(agl.CodeInvalid, "mode: got %q, must be %q, %q, %q or %q", string(mode), PauseHold, PauseReject, PauseDrain, PauseAbort)
	}
	empty := p.gate.close(mode)
	p.cfg.Logger.InfoContext(ctx, "paused", "mode", string(mode))
	select {
	case <-empty:
	case <-ctx.Done():
		return agl.Errorf(agl.CodeUnavailable, "pause: %d calls are still running: %w", p.PauseState().Running, context.Cause(ctx))
	}
	return p.tellEngines(ctx, func(b *backend) *url.URL { return b.pause })
}

// Resume lets calls pass again, all that wait first of all. Every
// Model.ResumeURL is asked before; an *EnginesError tells which failed.
func (p *Proxy) Resume(ctx context.Context) error {
	err := p.tellEngines(ctx, func(b *backend) *url.URL { return b.resume })
	p.gate.open()
	p.cfg.Logger.InfoContext(ctx, "resumed")
	return err
}

// engineTimeout bounds how long an engine may take to stop or to go on.
const engineTimeout = 30 * time.Second

// tellEngines posts to a URL of each backend, all at once, each URL once.
func (p *Proxy) tellEngines(ctx context.Context, of func(b *backend) *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		failed []EngineFailure
		told   = make(map[string]struct{})
	)
	t := p.models.Load()
	for _, name := range t.names() {
		for _, b := range t.groups[name].replicas {
			at := of(b)
			if at == nil {
				continue
			}
			if _, again := told[at.String()]; again {
				continue
			}
			told[at.String()] = struct{}{}
			group.Go(func() {
				err := p.ask(ctx, http.MethodPost, at, b)
				if err == nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, EngineFailure{URL: at.Redacted(), Err: err})
			})
		}
	}
	group.Wait()
	if len(failed) == 0 {
		return nil
	}
	return &EnginesError{Failures: failed}
}
