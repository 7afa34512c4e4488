package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/internal/wire"
)

// shared holds what all exchanges of a server use.
type shared struct {
	maxBody   int64 // bytes
	log       *slog.Logger
	refusals  throttle
	drain     *drain
	auth      *auth
	open      *access.Open // long requests
	lists     *access.Open // answers that are sent in pieces
	jsonType  []string     // the Content-Type of answers, shared by all headers; never changed
	exchanges sync.Pool    // of *exchange
	bodies    sync.Pool    // of *[]byte, the memory of large bodies
}

// exchange is a request and its answer, with their buffers. Exchanges are reused. An exchange is the ResponseWriter
// of its handler, so that metrics learn the status.
type exchange struct {
	http.ResponseWriter
	*shared

	request *http.Request
	route   string // the path with placeholders, for metrics
	status  int    // 0 until the header is written
	caller  access.Caller
	audited bool          // it needs the scope train or admin and changes something
	lease   *access.Lease // of the budget of the caller's key; nil without one

	body    []byte // the request's body
	out     []byte // empty memory to append an answer to
	decoder *wire.Decoder
}

// maxKept bounds each buffer that an exchange keeps for the next one. Larger bodies, up
// to maxKeptBody, have a pool of their own, because allocation is most of the cost of
// reading them.
const (
	maxKept     = 256 << 10
	maxKeptBody = 8 << 20
)

// handler answers a request. [exchange.fail] answers with the error that it returns.
type handler func(x *exchange) error

func (s *shared) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x, ok := s.exchanges.Get().(*exchange)
	if !ok {
		x = &exchange{shared: s, out: make([]byte, 0, 4<<10), decoder: new(wire.Decoder)}
	}
	x.ResponseWriter, x.request = w, r
	return x
}

// end makes an exchange and its memory available to others.
func (x *exchange) end() {
	body, out := x.body[:0], x.out
	if cap(body) > maxKept {
		if large := body; cap(large) <= maxKeptBody {
			x.bodies.Put(&large)
		}
		body = nil
		x.decoder = new(wire.Decoder) // it must not refer to memory that another exchange gets
	}
	if cap(out) > maxKept {
		out = make([]byte, 0, 4<<10)
	}
	*x = exchange{shared: x.shared, body: body, out: out, decoder: x.decoder}
	x.exchanges.Put(x)
}

// replaceBody sets another body of the request. Nothing may refer to the previous one.
func (x *exchange) replaceBody(body []byte) {
	if old := x.body; cap(old) > maxKept && cap(old) <= maxKeptBody {
		x.bodies.Put(&old)
	}
	x.body = body
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(b)
}

func (x *exchange) context() context.Context { return x.request.Context() }

func (x *exchange) idempotencyKey() string {
	if v := x.request.Header[wire.IdempotencyKey]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// answer sends a document, or returns err if it is not nil.
func (x *exchange) answer(status int, doc rawjson.Appender, err error) error {
	if err != nil {
		return err
	}
	return x.send(status, doc.AppendJSON(x.out))
}

// answerTo sends what the store makes of what a request asks for. wrong says why the request could not be read; it is nil if p holds
// what was asked.
func answerTo[P, T any, D appenderTo[T]](x *exchange, status int, wrong error, p *P, do func(context.Context, P) (T, error)) error {
	if wrong != nil {
		return wrong
	}
	result, err := do(x.context(), *p)
	return x.answer(status, D(&result), err)
}

// answerText sends a JSON document.
func (x *exchange) answerText(status int, doc string) error {
	return x.send(status, append(x.out, doc...))
}

// tellCancelled tells a client that its attempt was cancelled, so that it stops the agent.
func (x *exchange) tellCancelled() { x.Header()[wire.AttemptState] = []string{wire.AttemptCancelled} }

// answerFound sends what the store found, or null if it found nothing, as clients
// of the reference expect.
func (x *exchange) answerFound(found rawjson.Appender, err error) error {
	if errors.Is(err, agl.ErrNotFound) {
		return x.answerText(http.StatusOK, "null")
	}
	return x.answer(http.StatusOK, found, err)
}

// net/http sets the Content-Length of smaller answers itself.
const minCounted = 1 << 10

// send sends a JSON document. If the document was appended to x.out and outgrew it, x.out keeps the larger memory.
func (x *exchange) send(status int, doc []byte) error {
	if cap(doc) > cap(x.out) {
		x.out = doc[:0]
	}
	h := x.Header()
	h["Content-Type"] = x.jsonType
	if len(doc) > minCounted {
		h["Content-Length"] = []string{strconv.Itoa(len(doc))}
	}
	return x.write(status, doc)
}

// write sends the header and a body.
func (x *exchange) write(status int, body []byte) error {
	x.WriteHeader(status)
	if _, err := x.Write(body); err != nil {
		return &writeError{err}
	}
	return nil
}

// sendNow sends a part of the body, and what the connection has buffered.
func (x *exchange) sendNow(part []byte) error {
	_, err := x.Write(part)
	if err == nil {
		err = http.NewResponseController(x.ResponseWriter).Flush()
	}
	if err != nil {
		return &writeError{err}
	}
	return nil
}

// writeError means that an answer could not be written because the client has disconnected.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write the answer: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func isWriteError(err error) bool {
	_, ok := errors.AsType[*writeError](err)
	return ok
}
