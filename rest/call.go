package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

// call is one request on its way through the server, with the buffers that it
// needs; calls are reused. It is the ResponseWriter of its handlers, so that
// the status is known for metrics without another wrapper.
type call struct {
	http.ResponseWriter
	server   *Server
	request  *http.Request
	ctx      context.Context //nolint:containedctx // a call lives as long as its request
	template string          // the path with placeholders, for metrics
	answers  *answers        // where the answer is counted, if the path is known
	status   int             // 0 until the header is written
	// spanToken is what the request is allowed by in the place of the server's
	// token; "" when it needs none.
	spanToken string

	body    []byte // the request's body
	reader  bytes.Buffer
	decoder *jsontext.Decoder
	options jsontext.Options
	out     []byte // empty; to append an answer to
}

// net/http finds out the length of an answer of this size by itself.
const selfCounted = 1 << 10

// The most that a released call keeps for the next one, and the largest memory of
// a body that is kept apart. New memory is the most expensive part of reading a
// large body.
const (
	keptBuffer = 256 << 10
	keptBody   = 8 << 20
)

func newCall(s *Server) *call {
	return &call{server: s, decoder: new(jsontext.Decoder), options: rawjson.Options(), out: make([]byte, 0, 4<<10)}
}

func (s *Server) newCall(w http.ResponseWriter, r *http.Request) *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = newCall(s)
	}
	c.ResponseWriter, c.request, c.ctx = w, r, r.Context()
	return c
}

func (s *Server) release(c *call) {
	c.ResponseWriter, c.request, c.ctx = nil, nil, nil
	c.template, c.answers, c.status, c.spanToken = "", nil, 0, ""
	if c.body = c.body[:0]; cap(c.body) > keptBuffer {
		if body := c.body; cap(body) <= keptBody {
			s.bodies.Put(&body)
		}
		// Nothing of the call may refer to memory that another one has next.
		c.body, c.reader = nil, bytes.Buffer{}
		c.decoder.Reset(&c.reader, c.options)
	}
	if cap(c.out) > keptBuffer {
		c.out = make([]byte, 0, 4<<10)
	}
	s.calls.Put(c)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader notes the status.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

// send answers with a JSON document. out is c.out with something appended: the
// call keeps what it has grown to.
func (c *call) send(status int, out []byte) error {
	if cap(out) > cap(c.out) {
		c.out = out[:0]
	}
	return c.write(status, out)
}

func (c *call) write(status int, body []byte) error {
	h := c.Header()
	h["Content-Type"] = c.server.jsonType
	if len(body) > selfCounted {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	c.WriteHeader(status)
	if _, err := c.Write(body); err != nil {
		return &writeError{err}
	}
	return nil
}

// writeError says that an answer did not reach the client: there is nobody left
// to tell.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write answer: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// fail answers with an error.
func (c *call) fail(err error) {
	var unwritten *writeError
	if errors.As(err, &unwritten) || c.status != 0 {
		c.server.config.Logger.Debug("answer cut off", "path", c.request.URL.Path, "error", err)
		c.status = statusClientGone
		return
	}
	if decided, ok := errors.AsType[*httpError](err); ok {
		c.finish(c.write(decided.status, decided.body))
		return
	}
	if _, ok := errors.AsType[*agl.FieldError](err); ok {
		// A store that looks into documents itself.
		c.fail(bodyError(c.body, err))
		return
	}
	if agl.IsContextError(err) {
		if c.request.Context().Err() != nil {
			c.status = statusClientGone
			return
		}
		err = agl.Errorf(agl.CodeUnavailable, "the server gave the operation up: %w", err)
	}
	code := agl.ErrorCode(err)
	status, _ := storeStatus(code)
	switch {
	case code == agl.CodeConflict && c.idempotencyKey() != "":
		loc := []byte(`["header","Idempotency-Key"]`)
		v := validation{"idempotency_conflict", loc, err.Error(), quote(c.idempotencyKey()), nil}
		body := v.appendJSON(nil)
		body = append(body[:len(body)-1], `,"code":"conflict"}`...)
		c.finish(c.write(status, body))
		return
	case status == http.StatusInternalServerError:
		c.finish(c.fault(err))
		return
	case status == http.StatusServiceUnavailable:
		backoff.SetRetryAfter(c.Header(), time.Second)
	}
	if (code == agl.CodeUnavailable || code == agl.CodeExhausted) && !c.server.drained() {
		c.server.trouble.tell(c.server.config.Logger, code, c.request.URL.Path, err)
	}
	c.finish(c.send(status, appendProblem(c.out, err)))
}

// fault answers a fault of ours: the client learns an id under which the log
// tells what happened.
func (c *call) fault(err error) error {
	id := rand.Text()
	c.server.config.Logger.LogAttrs(c.ctx, slog.LevelError, "request failed",
		slog.String("request_id", id), slog.String("method", c.request.Method), slog.String("path", c.request.URL.Path), slog.Any("error", err))
	out := c.out
	out = append(out, `{"detail":"Internal server error","error_type":"InternalError","code":"internal","request_id":`...)
	out = append(rawjson.AppendString(out, id), '}')
	c.Header()["X-Request-Id"] = []string{id}
	return c.send(http.StatusInternalServerError, out)
}

// finish notes that an answer did not get through.
func (c *call) finish(err error) {
	if err != nil {
		c.server.config.Logger.Debug("answer cut off", "path", c.request.URL.Path, "error", err)
		c.status = statusClientGone
	}
}

func (c *call) idempotencyKey() string {
	if v := c.request.Header["Idempotency-Key"]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// firstBody bounds the memory that a request gets for the length that it
// claims; it gets more as its body comes.
const firstBody = 1 << 20

// readBody reads the request's body, decompressed, into c.body.
func (c *call) readBody() error {
	limit := c.server.config.MaxBodyBytes
	r := c.request
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	encoding := r.Header.Get("Content-Encoding")
	switch strings.ToLower(encoding) {
	case "", "identity":
	case "gzip":
		return c.readGzip(limit)
	default:
		return detailError(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Encoding %q is not supported, allowed are gzip and identity", encoding))
	}
	n := int(r.ContentLength)
	if n > keptBuffer {
		c.takeLarge()
	}
	switch {
	case n < 0:
		return c.readAll(r.Body, limit)
	case n > max(cap(c.body), firstBody):
		if cap(c.body) < firstBody {
			c.body = make([]byte, 0, firstBody)
		}
		if err := c.readAll(r.Body, limit); err != nil {
			return err
		}
		if len(c.body) < n {
			return readFailure(io.ErrUnexpectedEOF)
		}
		return nil
	case cap(c.body) < n:
		c.body = make([]byte, n)
	}
	c.body = c.body[:n]
	_, err := io.ReadFull(r.Body, c.body)
	return readFailure(err)
}

// takeLarge gives the call the memory of a large body that is done with, if there
// is any.
func (c *call) takeLarge() {
	if body, ok := c.server.bodies.Get().(*[]byte); ok {
		c.body = *body
	}
}

func (c *call) readGzip(limit int64) error {
	z, err := gzip.NewReader(c.request.Body)
	if err != nil {
		return detailError(http.StatusBadRequest, "the body is not gzip as its Content-Encoding says: "+err.Error())
	}
	if err := c.readAll(z, limit); err != nil {
		return err
	}
	return z.Close()
}

// readAll reads until the end, at most limit bytes.
func (c *call) readAll(r io.Reader, limit int64) error {
	buf := bytes.NewBuffer(c.body[:0])
	_, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	c.body = buf.Bytes()
	if int64(len(c.body)) > limit {
		return tooLarge(limit)
	}
	return readFailure(err)
}

func tooLarge(limit int64) error {
	return detailError(http.StatusRequestEntityTooLarge, fmt.Sprintf("the request's body is larger than %d bytes, the most that this server takes", limit))
}

func readFailure(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return detailError(http.StatusRequestTimeout, "the request's body did not arrive in time")
	}
	return detailError(http.StatusBadRequest, "the request's body could not be read: "+err.Error())
}

// decode reads the body into v. A required body that is empty is 422; an
// optional one may be empty or null.
func (c *call) decode(v unmarshaler, required bool) error {
	if err := c.readBody(); err != nil {
		return err
	}
	if len(c.body) == 0 {
		if required {
			return bodyMissing()
		}
		return nil
	}
	if !isJSON(c.request.Header["Content-Type"]) {
		const message = "Input should be a valid dictionary or object to extract fields from"
		return validation{"model_attributes_type", []byte(`["body"]`), message, quote(string(c.body)), nil}.err()
	}
	if !required && string(bytes.TrimSpace(c.body)) == "null" {
		return nil
	}
	c.reader.Reset()
	c.reader = *bytes.NewBuffer(c.body)
	c.decoder.Reset(&c.reader, c.options)
	if err := decodeDocument(c.decoder, v); err != nil {
		return bodyError(c.body, err)
	}
	return nil
}

// isJSON reports whether a body of this content type is read as JSON, as one
// without any is.
func isJSON(contentType []string) bool {
	if len(contentType) == 0 || contentType[0] == "" || contentType[0] == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType[0])
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}
