package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl/proxy/openai"
)

// dispatcher gets a call its reply: it waits while the proxy is paused, chooses
// the backend, waits for its limits and sends the request, again if need be.
type dispatcher struct {
	p *Proxy
	c *call
	// build makes the request for a backend.
	build func(b *backend) (*http.Request, *failure)
	// session routes calls that belong to no rollout.
	session string

	backend *backend   // that the call holds a place of
	trial   bool       // its breaker waits for a verdict
	verdict verdict    // so far
	tried   []*backend // that have failed
	silence *silence   // cancels the call when the backend is silent for too long
	tokens  tokenCount // of the reply that is being relayed
}

// send returns the backend's reply, whose body the caller closes, or what the
// agent is to be told instead, or why there is neither.
func (d *dispatcher) send(ctx context.Context) (*http.Response, *failure, error) {
	var key cacheKey
	keep := false
	if d.p.cache != nil {
		if key, keep = d.cacheKey(); keep {
			if res := d.hit(key); res != nil {
				return res, nil, nil
			}
		}
	}
	for {
		res, err := d.try(ctx)
		if f, ok := errors.AsType[*failure](err); ok {
			return nil, f, nil
		}
		pause, again := d.repeat(ctx, res, err)
		if !again {
			if keep && err == nil {
				d.keep(key, res)
			}
			return res, nil, err
		}
		d.p.cfg.Logger.DebugContext(ctx, "trying again", "model", d.c.model, "backend", d.backend.base.Redacted(), "tries", d.c.tries, "pause", pause, "error", err)
		if res != nil {
			discard(res.Body)
		}
		d.leave()
		if err := sleep(ctx, pause); err != nil {
			return nil, nil, err
		}
	}
}

// try sends the request to one backend. Its error is a *failure when none was
// reached for a reason of the proxy's own.
func (d *dispatcher) try(ctx context.Context) (*http.Response, error) {
	p, c := d.p, d.c
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	c.backend = d.backend
	req, f := d.build(d.backend)
	if f != nil {
		return nil, f
	}
	if d.silence == nil {
		d.silence = newSilence(p.cfg.IdleTimeout, func() { c.cancel(errBackendSilent) })
	} else {
		d.silence.alive()
	}
	res, err := d.roundTrip(req)
	if err == nil && d.refusesIDs(res) {
		res, err = d.askWhole(res)
	}
	d.judge(ctx, res, err)
	if err == nil {
		if isStream(res.Header) {
			res.Body = d.meter(res.Body)
		}
		res.Body = &tap{ReadCloser: res.Body, tokens: &d.tokens, ended: func(err error) { d.verdict = max(d.verdict, verdictOf(ctx, err)) }}
		d.tokens.reset(res.StatusCode, isStream(res.Header))
	}
	return res, err
}

func (d *dispatcher) roundTrip(req *http.Request) (*http.Response, error) {
	d.c.sent = time.Now()
	d.c.tries++
	d.backend.state.tries.Add(1)
	return d.p.transport.RoundTrip(req)
}

// enter takes a place of a backend while the proxy is not paused. A call that
// has waited goes by the models of now: those of its arrival may have been
// replaced, and their weights with them.
func (d *dispatcher) enter(ctx context.Context) error {
	p, c := d.p, d.c
	for {
		if err := p.gate.wait(ctx, p.cfg.PauseTimeout); err != nil {
			return err
		}
		t := p.models.Load()
		if c.group = t.groups[c.model]; c.group == nil {
			return t.missing(c.model)
		}
		if err := d.choose(ctx); err != nil {
			return err
		}
		if p.gate.enter(c) && p.models.Load() == t {
			return nil
		}
		d.leave() // it was paused, or the models replaced, while the call waited in line
	}
}

// choose takes a place of a backend.
func (d *dispatcher) choose(ctx context.Context) error {
	key := d.c.rolloutID
	if key == "" {
		key = d.session
	}
	for {
		now := time.Now()
		b := d.c.group.pick(key, d.tried, now)
		if b == nil && len(d.tried) > 0 {
			b = d.c.group.pick(key, nil, now)
		}
		if b == nil {
			return d.noneUp(now)
		}
		b.state.load.Add(1)
		if err := b.state.limits.acquire(ctx, d.p.cfg.QueueTimeout); err != nil {
			b.state.load.Add(-1)
			return err
		}
		d.backend = b
		if b.state.breaker.admit(time.Now()) {
			d.trial, d.verdict = true, neutral
			return nil
		}
		d.leave() // it went down while the call waited in line
	}
}

// noneUp is what a call gets when every replica is down.
func (d *dispatcher) noneUp(now time.Time) *failure {
	rest := never
	var each []string
	for _, b := range d.c.group.replicas {
		rest = min(rest, b.state.wait(now))
		why := "its calls fail"
		if b.state.missed.Load() >= missedProbes {
			why = "its health probe fails"
		}
		each = append(each, b.base.Redacted()+" ("+why+")")
	}
	f := fail(http.StatusServiceUnavailable, openai.OverloadedError, "no_backend_up",
		fmt.Sprintf("every backend of model %q is down: %s", d.c.model, strings.Join(each, ", ")))
	f.retryAfter = seconds(rest)
	return f
}

// verdictOf is what the end of a request or of its reply says of the backend.
func verdictOf(ctx context.Context, err error) verdict {
	switch {
	case errors.Is(context.Cause(ctx), errBackendSilent):
		return failed
	case ctx.Err() != nil:
		return neutral
	case err != nil:
		return failed
	default:
		return worked
	}
}

// judge tells the breaker what the beginning of a reply says of the backend. The
// rest is known when the call leaves it.
func (d *dispatcher) judge(ctx context.Context, res *http.Response, err error) {
	switch v := verdictOf(ctx, err); {
	case v != worked:
		d.report(v)
	case res.StatusCode >= 500:
		d.report(failed)
	default:
		d.verdict = answered
		d.backend.state.breaker.report(answered, time.Now(), &d.p.cfg.Health)
	}
}

// report ends the breaker's wait for a verdict.
func (d *dispatcher) report(v verdict) {
	if d.trial {
		d.trial = false
		d.backend.state.breaker.report(v, time.Now(), &d.p.cfg.Health)
	}
}

// repeat decides whether a try is to be repeated, and after which pause.
func (d *dispatcher) repeat(ctx context.Context, res *http.Response, err error) (time.Duration, bool) {
	retry := &d.p.cfg.Retry
	if d.backend == nil || d.c.tries == 0 || d.c.tries >= retry.Attempts || ctx.Err() != nil {
		return 0, false
	}
	if err == nil && !repeatable(res) {
		return 0, false
	}
	now := time.Now()
	if !slices.Contains(d.tried, d.backend) {
		d.tried = append(d.tried, d.backend)
	}
	pause := retry.pause(d.c.tries)
	if err != nil || d.c.group.pick(d.c.rolloutID, d.tried, now) != nil {
		return pause, true
	}
	asked := retryAfter(res.Header, now)
	return max(pause, asked), asked <= retry.MaxDelay
}

// brokenOff is called when a reply broke off before the agent had seen any of
// it. It reports whether the call is to be sent again, once it has waited for it.
func (d *dispatcher) brokenOff(ctx context.Context, err error) bool {
	pause, again := d.repeat(ctx, nil, err)
	if !again {
		return false
	}
	d.leave()
	if sleep(ctx, pause) != nil {
		return false
	}
	c := d.c
	d.p.hold(c, -int64(len(c.reply)))
	c.release()
	c.reply, c.firstByte, c.lastByte = nil, time.Time{}, time.Time{}
	c.fault, c.source = "", ""
	return true
}

// leave gives the place at the backend back.
func (d *dispatcher) leave() {
	if d.silence != nil {
		d.silence.ignore()
	}
	if d.backend == nil {
		return
	}
	d.report(d.verdict)
	// Behind the gate the weights may change, which is no more of this call's concern.
	d.c.versioned = d.p.models.Load().versionNow(d.backend)
	d.p.gate.leave(d.c)
	d.backend.state.limits.charge(d.tokens.total(len(d.c.request)))
	d.backend.state.limits.release()
	d.backend.state.load.Add(-1)
	d.backend = nil
}

// done is called when the call has ended.
func (d *dispatcher) done() {
	d.leave()
	if d.silence != nil {
		d.silence.stop()
	}
	d.c.usage = d.tokens
}

// tell says in a reply's header how often the request was sent.
func (c *call) tell(h http.Header) {
	if c.tries > 0 {
		h[HeaderTries] = []string{strconv.Itoa(c.tries)}
	}
}

// discard reads what is left of a short body, so that its connection can serve
// another request.
func discard(body io.ReadCloser) {
	const most = 64 << 10
	defer body.Close()
	// The reply was an error that nobody gets to see; reading it in vain is no loss.
	_, _ = io.CopyN(io.Discard, body, most)
}

// sleep waits, or returns why the context ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
