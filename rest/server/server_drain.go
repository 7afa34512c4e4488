package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/rest/internal/wire"
)

// drain ends the requests that block when the server is about to stop.
type drain struct {
	once    sync.Once
	started chan struct{} // closed by begin
}

func newDrain() *drain { return &drain{started: make(chan struct{})} }

func (d *drain) begin() { d.once.Do(func() { close(d.started) }) }

func (d *drain) begun() bool { return background.Closed(d.started) }

// block runs an operation of a request. If the operation may block, its context ends when draining begins, or when
// the caller's key is revoked or expires, which is then the error. released reports that draining ended the
// operation; err is then nil.
func (x *exchange) block(blocks bool, op func(ctx context.Context) error) (released bool, err error) {
	ctx := x.context()
	if !blocks {
		return false, op(ctx)
	}
	leave, err := x.stay()
	if err != nil {
		return false, err
	}
	defer leave()
	blocked, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		check := time.Tick(access.Recheck)
		for {
			select {
			case <-x.drain.started:
				cancel(nil)
				return
			case <-check:
				if err := x.auth.still(x); agl.ErrorCode(err) == agl.CodeUnauthorized { //nolint:contextcheck // the request has it
					cancel(err)
					return
				}
			case <-blocked.Done():
				return
			}
		}
	}()
	err = op(blocked)
	cause := context.Cause(blocked)
	cancel(nil)
	<-watching
	switch {
	case agl.ErrorCode(cause) == agl.CodeUnauthorized && cause != nil:
		return false, cause
	case agl.IsContextError(err) && x.drain.begun() && ctx.Err() == nil:
		return true, nil
	}
	return false, err
}

// stay counts a long request until leave is called.
func (x *exchange) stay() (leave func(), err error) {
	leave, err = x.open.Enter(x.caller.Who(x.request.RemoteAddr))
	return leave, tooManyOpen(x, err)
}

// tooManyOpen turns an error of access.Open into an answer.
func tooManyOpen(x *exchange, err error) error {
	if err == nil {
		return nil
	}
	backoff.SetRetryAfter(x.Header(), time.Second)
	return wire.ErrDetail(http.StatusTooManyRequests, err.Error())
}
