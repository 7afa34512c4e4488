package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/wire"
)

// errGone says that a server has no result of a future, which may have run or not.
var errGone = errors.New("the result is gone")

// failure is a call that ran and failed: what is known for sure.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// await asks for the result of a future of a call until it is there. Errors are a [failure] when the call ran and
// failed, and errGone when the server does not know the future; with any other the outcome is unknown.
func (c *Client) await(ctx context.Context, call request, id string) (reply, error) {
	path := call.path
	r, err := post(wire.RetrieveFuture, wire.RetrieveFutureRequest{RequestID: id})
	if err != nil {
		return reply{}, err
	}
	r.accept, r.budget = call.accept, call.budget
	var t trouble
	pause := firstPause
	for {
		asked := time.Now()
		rep, err := c.once(ctx, r)
		switch {
		case err == nil && rep.status == http.StatusOK:
			done, err := rep.outcome(path)
			if done || err != nil {
				return rep, err
			}
			t = trouble{}
		case err == nil && (rep.status == http.StatusRequestTimeout || rep.status == http.StatusTooEarly):
			t = trouble{}
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			// The server holds the request for longer than we do: the result is not there yet.
			t = trouble{}
		case err == nil && (rep.status == http.StatusGone || rep.status == http.StatusNotFound):
			return reply{}, fmt.Errorf("%w: %w", errGone, rep.problem(path))
		case err == nil && rep.status/100 == 4 && rep.status != http.StatusTooManyRequests:
			return reply{}, failure{rep.problem(path)}
		default:
			if ctx.Err() != nil {
				return reply{}, fmt.Errorf("client: %s: %w", path, ctx.Err())
			}
			if err != nil {
				err = agl.Errorf(agl.CodeUnavailable, "client: %s: %w", path, err)
			} else {
				err = rep.problem(path)
			}
			if err := t.again(ctx, c, r, rep, err); err != nil {
				return reply{}, err
			}
			continue
		}
		// A server that answers at once, instead of holding the request, is asked less and less often.
		if rest := pause - time.Since(asked); rest > 0 {
			if err := sleep(ctx, rest); err != nil {
				return reply{}, fmt.Errorf("client: %s: %w", path, err)
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// outcome reports whether an answer is a result.
func (r reply) outcome(path string) (done bool, err error) {
	if r.media == wire.ProtobufType {
		return true, nil
	}
	var body struct {
		Type     string `json:"type"`
		Error    string `json:"error"`
		Category string `json:"category"`
		Code     string `json:"code"`
	}
	if err := json.Unmarshal(r.body, &body); err != nil {
		return false, failure{agl.Errorf(agl.CodeInternal, "client: %s: the result is not JSON: %w", path, err)}
	}
	switch {
	case body.Type == wire.TryAgainType:
		return false, nil
	case body.Error == "":
		return true, nil
	}
	code := agl.Code(body.Code)
	if !known(code) {
		code = agl.CodeInternal
		if body.Category == "user" {
			code = agl.CodeInvalid
		}
	}
	return false, failure{agl.Errorf(code, "client: %s: %s", path, short(body.Error))}
}

// result is the result of a call that was submitted, which may have come with the answer. Errors are those of await.
func (c *Client) result(ctx context.Context, call request, s wire.Submitted) (reply, error) {
	if len(s.Result) > 0 {
		rep := reply{status: http.StatusOK, media: wire.JSONType, body: s.Result}
		if done, err := rep.outcome(call.path); done || err != nil {
			return rep, err
		}
	}
	return c.await(ctx, call, s.RequestID)
}

// mostResubmits bounds how often a call whose result is gone is submitted again.
const mostResubmits = 3

// submit makes a request whose answer is a future, and waits for the result. inDoubt is true when the call may
// have run although there is an error; taken when the server took the submit, and its sequence id with it.
func (c *Client) submit(ctx context.Context, r request) (rep reply, taken, inDoubt bool, err error) {
	for try := 0; ; try++ {
		rep, doubt, err := c.exchange(ctx, r)
		inDoubt = inDoubt || doubt
		if err != nil {
			return reply{}, taken, inDoubt, err
		}
		taken = true
		var s wire.Submitted
		if err := json.Unmarshal(rep.body, &s); err != nil || s.RequestID == "" {
			return reply{}, true, true, agl.Errorf(agl.CodeInternal, "client: %s: the answer %.100q names no future", r.path, rep.body)
		}
		rep, err = c.result(ctx, r, s)
		if err == nil {
			return rep, true, false, nil
		}
		if f, ok := errors.AsType[failure](err); ok {
			return reply{}, true, false, f.error
		}
		inDoubt = true
		if !errors.Is(err, errGone) || !r.repeat || try >= mostResubmits {
			return reply{}, true, true, err
		}
	}
}
