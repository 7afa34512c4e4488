package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/proxy/openai"
)

// Reply is a backend's reply, or, for a failed call, how far it got. It belongs to one
// goroutine and must be closed with [Reply.Close].
type Reply struct {
	Status int
	Header http.Header
	Length int64 // of the body; negative when it is not known
	// Buffered is the body of a reply that was received before Send returned, or its
	// beginning if there is More. It is nil otherwise. [Reply.Free] releases it.
	Buffered []byte
	More     bool // Buffered is longer than Config.MaxReplyBytes; the rest is read

	Target  Target // the backend; its Model is nil when none was chosen
	Backend string // URL of the backend, without a password
	Tries   int    // requests that were sent
	Cached  bool   // the reply comes from the cache
	// Lost says that a backend may have executed the last request, and that its reply was
	// lost.
	Lost bool
	// VersionEnd is the version of the weights behind the backend when the call ended.
	VersionEnd string

	// Sent is when the last request was sent, FirstByte and LastByte when its reply
	// began and when the last part of it arrived. Each is zero until then.
	Sent, FirstByte, LastByte time.Time

	pool       *Pool
	model      string
	ctx        context.Context //nolint:containedctx // that of Send, as http.Request has it: the reply is read under it
	cancel     context.CancelCauseFunc
	idle       *idleTimeout // nil before the first request
	ending     *time.Timer  // nil before EndSoon
	outlasts   atomic.Bool  // see Outlast
	detach     func() bool  // from Send's context
	body       io.ReadCloser
	buffer     *[]byte    // memory of Buffered
	passage    *passage   // through the gate; nil outside
	backend    *backend   // where the call counts as load; nil after leave
	translated bool       // the backend's API is not the agent's
	streams    bool       // a stream was asked for
	admitted   bool       // the circuit breaker of backend waits for report
	verdict    verdict    // so far
	tried      []*backend // those that have failed
}

// Stream reports whether the body is a stream of events.
func (r *Reply) Stream() bool { return r.hasType(eventStream) }

const eventStream = "text/event-stream"

func (r *Reply) hasType(media string) bool {
	t := r.Header.Get("Content-Type")
	return len(t) >= len(media) && strings.EqualFold(t[:len(media)], media)
}

// Encoding returns the content encoding of the body; empty is none.
func (r *Reply) Encoding() string {
	if e := r.Header.Get("Content-Encoding"); e != "identity" {
		return e
	}
	return ""
}

// Read reads the body, or what follows Buffered. Its error is an *openai.Error when
// upstream itself ended the call, and the cause of Send's context when that has ended.
func (r *Reply) Read(to []byte) (int, error) {
	n, err := r.body.Read(to)
	r.LastByte = time.Now()
	if n > 0 {
		r.ResumeIdle()
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		r.verdict = max(r.verdict, worked)
	default:
		err = r.cause(err)
		v := r.verdictOf(err)
		r.noteFailure(v, err)
		r.verdict = max(r.verdict, v)
	}
	return n, err
}

// noteFailure keeps how a try failed, if it did, for those who get no backend later.
func (r *Reply) noteFailure(v verdict, err error) {
	if v == failed && r.backend != nil {
		text := r.cause(err).Error()
		r.backend.state.failure.Store(&text)
	}
}

// SuspendIdle suspends the idle timeout until ResumeIdle, while the call waits for the
// agent and not for the backend.
func (r *Reply) SuspendIdle() {
	if r.idle != nil {
		r.idle.suspend()
	}
}

// ResumeIdle starts the idle timeout again.
func (r *Reply) ResumeIdle() {
	if r.idle != nil {
		r.idle.alive()
	}
}

// maxPooled is the largest buffer that is kept for the next reply.
const maxPooled = 2 << 20

// Free releases the memory of Buffered. It may be called after Close.
func (r *Reply) Free() {
	if r.buffer == nil {
		return
	}
	if cap(r.Buffered) <= maxPooled {
		*r.buffer = r.Buffered
		r.pool.buffers.Put(r.buffer)
	}
	r.buffer, r.Buffered = nil, nil
}

// soon is the time for the end of a body that is complete by its own rules. It lets the connection serve another request.
const soon = time.Second

// Outlast says whether the body outlasts Send's context: the agent has the whole reply, and if it leaves the body can be read on
// for a moment, because the backend's usage comes last.
func (r *Reply) Outlast(whole bool) { r.outlasts.Store(whole) }

// end ends the call after Send's context.
func (r *Reply) end(cause error) {
	if r.outlasts.Load() && errors.Is(cause, context.Canceled) {
		timer := time.NewTimer(soon)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.ctx.Done():
		}
	}
	r.cancel(cause)
}

// EndSoon is called when the body is complete by its own rules. Some backends keep its connection open: the body ends then,
// and that is not held against the backend.
func (r *Reply) EndSoon() {
	if r.ending == nil {
		r.ending = time.AfterFunc(soon, func() { r.cancel(errComplete) })
	}
}

// Close ends the call. Its tokens are charged to the limits of the backend.
func (r *Reply) Close(tokens int64) {
	r.leave(tokens)
	r.closeBody()
	if r.idle != nil {
		r.idle.stop()
	}
	if r.ending != nil {
		r.ending.Stop()
	}
	r.detach()
	r.cancel(nil)
}

func (r *Reply) closeBody() {
	if r.body != nil {
		_ = r.body.Close() // of a reply that is no longer read
		r.body = nil
	}
}

// leave ends the call at its backend: verdict, gate, limits and load.
func (r *Reply) leave(tokens int64) {
	r.SuspendIdle()
	b := r.backend
	if b == nil {
		return
	}
	r.report(r.verdict)
	// Read the version first: the weights may change once the call has left the gate.
	r.VersionEnd = r.pool.models.Load().versionNow(b)
	r.pool.gate.leave(r.passage)
	b.state.limits.charge(tokens)
	b.state.limits.release()
	b.state.load.Add(-1)
	r.backend, r.passage = nil, nil
}

// report sends the verdict to the circuit breaker, once per admitted try.
func (r *Reply) report(v verdict) {
	if r.admitted {
		r.admitted = false
		if v == failed && r.backend.Supervised {
			v = neutral
		}
		r.backend.state.breaker.report(v, time.Now(), &r.pool.cfg.Health)
	}
}

// verdictOf returns the verdict for a try that ended with err.
func (r *Reply) verdictOf(err error) verdict {
	switch {
	case errors.Is(context.Cause(r.ctx), errIdle):
		return failed
	case r.ctx.Err() != nil:
		return neutral
	case err != nil:
		return failed
	default:
		return worked
	}
}

// cause returns why the call was cancelled, or err if it was not.
func (r *Reply) cause(err error) error {
	switch cause := context.Cause(r.ctx); {
	case errors.Is(cause, errIdle):
		return openai.NewError(http.StatusGatewayTimeout, openai.APIError, "backend_timeout",
			fmt.Sprintf("the backend of model %q sent nothing for %v", r.model, r.pool.cfg.IdleTimeout))
	case errors.Is(cause, errAborted):
		return refusal(http.StatusServiceUnavailable, "aborted", 0, cause.Error())
	case cause != nil:
		return cause
	default:
		return err
	}
}

// redirected returns the error of Send for a call that was answered with a redirect. To follow it would send the model's key and the prompt
// to an address that nobody has configured, and so would the agent's client if it got the reply. The backend is up: its circuit breaker
// stays closed.
func (r *Reply) redirected(res *http.Response) error {
	location := secret.RedactURL(res.Header.Get("Location")) // most repeat the query of base_url
	message := fmt.Sprintf("the backend of model %q answered %d with the Location %.300q: base_url must be the URL that answers itself, such as https:// in place of http://",
		r.model, res.StatusCode, location)
	r.pool.cfg.Logger.Warn("backend redirects", "model", r.model, "backend", r.Backend, "status", res.StatusCode, "location", location)
	return openai.NewError(http.StatusBadGateway, openai.APIError, "backend_redirects", message)
}

// failure returns the error of Send for a call that got no reply.
func (r *Reply) failure(err error) error {
	if cause := r.cause(nil); cause != nil {
		return cause
	}
	code, text, what := "backend_unreachable", "backend unreachable", "cannot be reached"
	switch {
	case notHTTP(err):
		code, text, what = "backend_broken", "backend does not speak HTTP", "answered, but not as HTTP has it"
	case !r.FirstByte.IsZero() || brokeOff(err):
		code, text, what = "backend_broken", "backend broke off", "broke off before it had replied"
	}
	r.pool.cfg.Logger.Warn(text, "model", r.model, "backend", r.Backend, "error", err)
	return openai.NewError(http.StatusBadGateway, openai.APIError, code, fmt.Sprintf("the backend of model %q %s: %v", r.model, what, err))
}
