package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/modelerror"
	"github.com/agl-go/agl/proxy/openai"
)

// callOverhead is what a call takes besides its bytes.
const callOverhead = 4 << 10

var (
	errBackendSilent = errors.New("the backend sent nothing for too long")
	errAgentGone     = errors.New("the agent left before it had the reply")
)

// serveCall forwards a request to the backend of its model, and records it if
// it has a model write for an attempt.
func (p *Proxy) serveCall(w http.ResponseWriter, r *http.Request, rt route, record bool) {
	c := &call{route: rt, form: formOf(rt.path), method: r.Method, start: time.Now()}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	c.cancel = cancel
	if !p.enter(c) {
		f := fail(http.StatusServiceUnavailable, openai.OverloadedError, "shutting_down", errClosing.Error())
		f.retryAfter = 1
		p.refuse(w, r, f)
		return
	}
	defer p.leave(c)
	record, f := p.screen(r, c, record)
	if f != nil {
		p.refuse(w, r, f)
		return
	}
	if f := p.admit(ctx, c, max(r.ContentLength, 0)); f != nil {
		p.refuse(w, r, f)
		return
	}
	if p.models.Load().probed {
		p.prober.start(ctx, p)
	}
	if record {
		p.recorder.begin(ctx, c)
	}
	err := p.serve(ctx, w, r, c)
	p.finish(ctx, c, err)
	if err != nil && c.status != 0 {
		// The agent has a part of the reply. Cutting the connection is the only way
		// left to say that it is not all.
		panic(http.ErrAbortHandler)
	}
}

// admit takes the memory of a call, waiting for it if need be.
func (p *Proxy) admit(ctx context.Context, c *call, body int64) *failure {
	n := callOverhead + body
	if p.cfg.Capture == CaptureBestEffort {
		c.charge = n
		p.budget.grow(n)
		return nil
	}
	if p.budget.full(n) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.cfg.QueueTimeout)
		defer cancel()
	}
	if err := p.budget.acquire(ctx, n); err != nil {
		f := fail(http.StatusServiceUnavailable, openai.OverloadedError, "capture_full",
			fmt.Sprintf("the memory for recording calls (%d bytes) has been full for %v: the store is slow or away, or too many calls run", p.cfg.CaptureBytes, p.cfg.QueueTimeout))
		f.retryAfter = 1
		return f
	}
	c.charge = n
	return nil
}

// hold counts bytes that a running call has come to hold.
func (p *Proxy) hold(c *call, n int64) {
	if n != 0 {
		c.charge += n
		p.budget.grow(n)
	}
}

// finish ends a call: its record is handed over, or its memory given back.
func (p *Proxy) finish(ctx context.Context, c *call, err error) {
	c.end = time.Now()
	if err != nil {
		cause := context.Cause(ctx)
		_, spent := errors.AsType[*spentError](cause)
		if spent {
			c.outcome = agl.OutcomeBudget
		}
		switch {
		case spent || errors.Is(cause, errCancelled):
			c.fail(SourceGateway, cause.Error())
		case errors.Is(cause, errClosing) || errors.Is(cause, errBackendSilent) || errors.Is(cause, errAborted):
			c.fail(SourceGateway, cause.Error())
			c.outcome = agl.OutcomeModelError
		case ctx.Err() != nil || errors.Is(err, errAgentGone):
			c.fail(SourceGateway, errAgentGone.Error())
		default:
			c.fail(SourceProvider, err.Error())
			c.outcome = agl.OutcomeModelError
		}
	} else if c.outcome == "" {
		c.outcome = modelerror.Outcome(c.status, c.reply).Kind
	}
	c.delivered = err == nil
	if c.control != nil {
		p.controls.end(c)
	}
	p.observe(ctx, c)
	if c.recorded() {
		p.recorder.finish(c)
		return
	}
	p.budget.grow(-c.charge)
}

// serve does the work of a call. Its error says that the reply did not reach
// the agent whole.
func (p *Proxy) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, c *call) error {
	request, f := p.readRequest(r, c)
	if f != nil {
		return p.answerFailure(w, c, f)
	}
	stop, over, err := p.spend(w, c)
	if over {
		return err
	}
	defer stop()
	var pl *plan
	d := dispatcher{p: p, c: c, session: r.Header.Get("X-Session-Id"), build: func(b *backend) (*http.Request, *failure) {
		var f *failure
		if pl, f = c.plan(&request, b); f != nil {
			return nil, f
		}
		p.hold(c, int64(len(pl.asked)-len(c.asked)))
		c.asked, c.form = pl.asked, pl.form
		key, err := p.cfg.secret(b.APIKey)
		if err != nil {
			return nil, fail(http.StatusInternalServerError, openai.APIError, "no_api_key", err.Error())
		}
		return backendRequest(ctx, r, b, pl, key), nil
	}}
	defer d.done()
	for {
		res, f, err := d.send(ctx) //nolint:bodyclose // the relay closes what it carries
		c.tell(w.Header())
		switch {
		case f != nil:
			return p.answerFailure(w, c, f)
		case err != nil:
			return p.answerUnreachable(ctx, w, c, err)
		}
		relay := relay{p: p, w: w, c: c, res: res, plan: pl, silence: d.silence, again: d.brokenOff}
		if err := relay.run(ctx); !errors.Is(err, errBrokenOff) {
			return err
		}
	}
}

// readRequest reads the body and finds the replicas of its model.
func (p *Proxy) readRequest(r *http.Request, c *call) (openai.Request, *failure) {
	invalid := func(status int, code, message string) (openai.Request, *failure) {
		return openai.Request{}, fail(status, openai.InvalidRequestError, code, message)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return invalid(http.StatusUnsupportedMediaType, "unsupported_encoding", "Content-Encoding: got "+encoding+", must be absent: send the JSON as it is")
	}
	body, err := readBody(r.Body, nil, r.ContentLength, p.cfg.MaxRequestBytes)
	if r.ContentLength < 0 {
		p.hold(c, int64(len(body)))
	}
	c.request = body
	switch {
	case errors.Is(err, errTooLong):
		return invalid(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("the body must not be longer than %d bytes", p.cfg.MaxRequestBytes))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return invalid(http.StatusRequestTimeout, "request_timeout", "the body did not arrive in time")
	case err != nil:
		return invalid(http.StatusBadRequest, "unreadable_body", "the body could not be read: "+err.Error())
	}
	body, f := p.control(c, body)
	if f != nil {
		return openai.Request{}, f
	}
	c.request = body
	request, err := openai.ParseRequest(body)
	if err != nil {
		_, f := invalid(http.StatusBadRequest, "invalid_body", err.Error())
		if errors.Is(err, openai.ErrNoModel) {
			f.body.Param = "model"
		}
		return openai.Request{}, f
	}
	models := p.models.Load()
	c.model, c.stream = request.Model, request.Stream
	c.group = models.groups[request.Model]
	if c.group == nil {
		return openai.Request{}, models.missing(request.Model)
	}
	return request, nil
}

// answerFailure answers with an error of the proxy's own.
func (p *Proxy) answerFailure(w http.ResponseWriter, c *call, f *failure) error {
	c.fail(SourceGateway, f.body.Message)
	c.status = f.status
	return f.write(w)
}

// answerUnreachable answers for a backend that gave no reply, or a part of one
// of which the agent has seen nothing.
func (p *Proxy) answerUnreachable(ctx context.Context, w http.ResponseWriter, c *call, err error) error {
	cause := context.Cause(ctx)
	if spent, ok := errors.AsType[*spentError](cause); ok {
		return p.answerSpent(w, c, spent)
	}
	if f := p.ended(c, cause); f != nil {
		return p.answerFailure(w, c, f)
	}
	if ctx.Err() != nil {
		return err
	}
	p.cfg.Logger.Warn("backend unreachable", "model", c.model, "backend", c.backend.base.Redacted(), "error", err)
	if c.firstByte.IsZero() && !errors.Is(err, io.EOF) {
		return p.answerFailure(w, c, fail(http.StatusBadGateway, openai.APIError, "backend_unreachable",
			fmt.Sprintf("the backend of model %q cannot be reached: %v", c.model, err)))
	}
	return p.answerFailure(w, c, fail(http.StatusBadGateway, openai.APIError, "backend_broken",
		fmt.Sprintf("the backend of model %q broke off before it had replied: %v", c.model, err)))
}

// ended is what an agent is told of a call that the proxy has cancelled; nil when
// it has not.
func (p *Proxy) ended(c *call, cause error) *failure {
	if spent, ok := errors.AsType[*spentError](cause); ok {
		return fail(http.StatusTooManyRequests, openai.RateLimitError, "budget_exceeded", spent.Error())
	}
	switch {
	case errors.Is(cause, errBackendSilent):
		return fail(http.StatusGatewayTimeout, openai.APIError, "backend_timeout",
			fmt.Sprintf("the backend of model %q sent nothing for %v", c.model, p.cfg.IdleTimeout))
	case errors.Is(cause, errAborted):
		return paused(http.StatusServiceUnavailable, openai.OverloadedError, "aborted", cause.Error())
	case errors.Is(cause, errCancelled):
		return fail(http.StatusGone, openai.InvalidRequestError, "attempt_cancelled", cause.Error())
	case errors.Is(cause, errClosing):
		return fail(http.StatusServiceUnavailable, openai.OverloadedError, "shutting_down", cause.Error())
	default:
		return nil
	}
}
