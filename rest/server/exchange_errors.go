package server

import (
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/internal/wire"
)

// statusClientGone is the status, in metrics and logs, of a request whose client disconnected before the answer.
// Nobody receives it.
const statusClientGone = 499

// retryAfter is how long a client should wait after a temporary refusal.
const retryAfter = time.Second

// fail answers a request with an error.
func (x *exchange) fail(err error) {
	if isWriteError(err) || x.status != 0 {
		x.cutOff(err)
		return
	}
	if agl.ErrorCode(err) == agl.CodeUnauthorized && httpserver.ClientOutdated(x.request) {
		x.Header().Set("Connection", "close") // the client shows what its file has by now in the next one
		x.Header().Set(wire.Certificate, wire.CertificateOutdated)
	}
	if err := x.sendError(err); err != nil {
		x.cutOff(err)
	}
}

// cutOff logs that the client did not get the whole answer, and why if that is the store's fault: the client is only told by
// the broken connection.
func (x *exchange) cutOff(err error) {
	x.log.Debug("the answer was cut off", "path", x.request.URL.Path, "error", err)
	x.status = statusClientGone
	if isWriteError(err) || agl.IsContextError(err) {
		return
	}
	switch code := agl.ErrorCode(err); code {
	case agl.CodeInternal:
		x.logFault(err)
		x.status = http.StatusInternalServerError
	case agl.CodeUnavailable, agl.CodeExhausted:
		x.logRefusal(code, err)
		x.status, _ = wire.StatusOf(code)
	}
}

func (x *exchange) sendError(err error) error {
	if _, ok := errors.AsType[*agl.FieldError](err); ok { // from a store that validates documents itself
		err = wire.ErrBody(x.body, err)
	}
	if decided, ok := errors.AsType[*wire.StatusError](err); ok {
		return x.send(decided.Status, decided.Body)
	}
	if spent, ok := errors.AsType[*access.BudgetError](err); ok {
		err := wire.ErrBudget(spent)
		return x.send(err.Status, err.Body)
	}
	if agl.IsContextError(err) {
		if x.context().Err() != nil {
			return err
		}
		err = agl.Errorf(agl.CodeUnavailable, "the server gave up the operation: %w", err)
	}
	code := agl.ErrorCode(err)
	status, _ := wire.StatusOf(code)
	switch {
	case code == agl.CodeConflict && x.idempotencyKey() != "":
		return x.sendError(wire.ErrKeyConflict(x.idempotencyKey(), err))
	case status == http.StatusInternalServerError:
		return x.fault(err)
	case status == http.StatusServiceUnavailable:
		backoff.SetRetryAfter(x.Header(), retryAfter)
	}
	if code == agl.CodeUnavailable || code == agl.CodeExhausted {
		x.logRefusal(code, err)
	}
	return x.send(status, wire.AppendError(x.out, err))
}

// fault logs an internal error and answers with the id of its log line.
func (x *exchange) fault(err error) error {
	id := x.logFault(err)
	x.Header()["X-Request-Id"] = []string{id}
	return x.send(http.StatusInternalServerError, wire.AppendFault(x.out, id))
}

// logFault logs an internal error and returns the id of the log line.
func (x *exchange) logFault(err error) (id string) {
	id = rand.Text()
	x.log.Error("request failed", "request_id", id, "method", x.request.Method, "path", x.request.URL.Path, "error", err)
	return id
}

// logRefusal logs, now and then, that the store is away or full.
func (x *exchange) logRefusal(code agl.Code, err error) {
	if !x.drain.begun() {
		x.refusals.warn(x.log, code, x.request.URL.Path, err)
	}
}

// lastEvent logs the error that ends a stream of events, and returns it as an event. As in an answer, that of an internal error
// contains only the id of its log line.
func (x *exchange) lastEvent(err error) []byte {
	switch code := agl.ErrorCode(err); code {
	case agl.CodeInternal:
		return wire.AppendErrorEvent(nil, wire.AppendFault(nil, x.logFault(err)))
	case agl.CodeUnavailable, agl.CodeExhausted:
		x.logRefusal(code, err)
	}
	return wire.AppendErrorEvent(nil, wire.AppendError(nil, err))
}
