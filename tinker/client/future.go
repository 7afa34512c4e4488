package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/tinker/wire"
)

// outcome is what is known about a submitted call.
type outcome struct {
	reply
	taken   bool // the server accepted the submit, and its sequence id with it
	inDoubt bool // the call may have run although there is an error
}

// slowCall is the time after which a call without a result is a warning. Samples may take long.
const slowCall = time.Minute

// maxResubmits bounds how often a call whose result is gone is submitted again.
const maxResubmits = 3

// submitted is a call whose submit was made.
type submitted struct {
	request

	future wire.Submitted
	outcome
}

// submit makes a request that is answered with a future, and waits for the result.
func (t *transport) submit(ctx context.Context, r request) (outcome, error) {
	c, err := t.begin(ctx, r)
	return t.finish(ctx, c, err)
}

// begin makes a request that is answered with a future.
func (t *transport) begin(ctx context.Context, r request) (submitted, error) {
	c := submitted{request: r}
	err := t.again(ctx, &c)
	return c, err
}

// again submits a call, for the first time or after its result was lost.
func (t *transport) again(ctx context.Context, c *submitted) error {
	rep, inDoubt, err := t.exchange(ctx, c.request)
	c.inDoubt = c.inDoubt || inDoubt
	if err != nil {
		c.reply = rep
		return err
	}
	c.taken = true
	var s wire.Submitted
	if err := rep.read(c.path, &s); err != nil {
		c.inDoubt = true
		return err
	}
	if s.RequestID == "" {
		c.inDoubt = true
		return agl.Errorf(agl.CodeInternal, "client: %s: the response %.100q names no future", c.path, rep.body)
	}
	c.future = s
	return nil
}

// finish waits for the result of a call, unless its submit has failed with an error.
func (t *transport) finish(ctx context.Context, c submitted, err error) (outcome, error) {
	if err != nil {
		return c.outcome, err
	}
	for try := 0; ; try++ {
		if c.reply, err = t.result(ctx, c.request, c.future); err == nil {
			c.inDoubt = false
			return c.outcome, nil
		}
		if failed, ok := errors.AsType[callError](err); ok {
			c.inDoubt = false
			return c.outcome, failed.error
		}
		c.inDoubt = true
		if !errors.Is(err, errGone) || !c.repeatable || try >= maxResubmits {
			return c.outcome, err
		}
		before := c.future.RequestID
		if err := t.again(ctx, &c); err != nil {
			return c.outcome, err
		}
		if c.followed && c.future.RequestID != before {
			return c.outcome, agl.Errorf(agl.CodeUnavailable, "client: %s: its result is gone, and the server has run it again after the call that followed it", c.path)
		}
	}
}

// errGone says that the server has no result of a future. Its call may have run.
var errGone = errors.New("the result is gone")

// callError is the error of a call that ran to its end.
type callError struct{ error }

func (e callError) Unwrap() error { return e.error }

// result returns the result of a submitted call, which may have come with the answer to the submit. The error is a
// [callError] if the call failed, and errGone if the server does not know the future; after any other error the
// outcome is unknown.
func (t *transport) result(ctx context.Context, call request, s wire.Submitted) (reply, error) {
	if len(s.Result) > 0 {
		rep := reply{status: http.StatusOK, media: wire.JSONType, body: s.Result}
		if done, err := rep.isResult(call.path); done || err != nil {
			return rep, err
		}
	}
	r := request{
		path: wire.RetrieveFuture, message: wire.RetrieveFutureRequest{RequestID: s.RequestID}, accept: call.accept, retryFor: call.retryFor,
	}
	var f retries
	begun, slow := time.Now(), false
	for polls := 0; ; polls++ {
		asked := time.Now()
		rep, done, err := t.poll(ctx, r, call.path)
		switch {
		case done:
			t.answered(r.path)
			return rep, err
		case err != nil:
			if err := f.wait(ctx, t, r, rep, err); err != nil {
				return reply{}, err
			}
			continue
		}
		f = retries{}
		t.answered(r.path)
		if !slow && time.Since(begun) >= slowCall && call.path != wire.Sample {
			slow = true
			t.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "client: the engine has not finished a call, and is waited for", slog.Duration("timeout", t.cfg.CallTimeout),
				slog.Any("error", agl.Errorf(agl.CodeUnavailable, "%s has no result after %s", call.path, time.Since(begun).Round(time.Second))))
		}
		// A server that answers at once instead of holding the request is asked less and less often.
		pause := backoff.Exponential{First: minBackoff, Max: time.Second}.Delay(polls)
		if err := backoff.Sleep(ctx, pause-time.Since(asked)); err != nil {
			return reply{}, fmt.Errorf("client: %s: %w", call.path, err)
		}
	}
}

// poll asks once for the result of a call of path. It is done when it has the result, or an error that asking again
// does not change; an error before that may pass.
func (t *transport) poll(ctx context.Context, r request, path string) (rep reply, done bool, err error) {
	rep, err = t.send(ctx, r)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return rep, false, nil // the server holds requests for longer than RequestTimeout
	case err != nil && ctx.Err() != nil:
		return rep, true, fmt.Errorf("client: %s: %w", path, ctx.Err())
	case err != nil:
		return rep, false, agl.Errorf(agl.CodeUnavailable, "client: %s: %w", path, err)
	}
	switch rep.status {
	case http.StatusOK:
		done, err = rep.isResult(path)
		return rep, done || err != nil, err
	case http.StatusRequestTimeout, http.StatusTooEarly:
		return rep, false, nil
	case http.StatusGone, http.StatusNotFound:
		return rep, true, fmt.Errorf("%w: %w", errGone, rep.problem(path))
	case http.StatusTooManyRequests:
		return rep, false, rep.problem(path)
	}
	if rep.status/100 == 4 {
		return rep, true, callError{rep.problem(path)}
	}
	return rep, false, rep.problem(path)
}

// isResult reports whether the reply holds the result of a call, rather than asking the client to try again.
func (r reply) isResult(path string) (bool, error) {
	if r.media == wire.ProtobufType {
		return true, nil
	}
	var body struct {
		wire.RequestFailed

		Type string `json:"type"`
	}
	if err := json.Unmarshal(r.body, &body); err != nil {
		return false, callError{agl.Errorf(agl.CodeInternal, "client: %s: the result is not JSON: %w", path, err)}
	}
	switch {
	case body.Type == wire.TryAgainType:
		return false, nil
	case body.Error == "":
		return true, nil
	}
	status := http.StatusInternalServerError
	if body.Category == "user" {
		status = http.StatusBadRequest
	}
	return false, callError{agl.Errorf(wire.Code(status, body.Code), "client: %s: %s", path, shorten(body.Error))}
}
