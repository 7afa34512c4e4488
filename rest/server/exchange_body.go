package server

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Whether a request needs a body.
const (
	bodyRequired = true
	bodyOptional = false // the body may be empty or null
)

// decode reads the body into v.
func (x *exchange) decode(v json.UnmarshalerFrom, required bool) error {
	if err := x.readBody(); err != nil {
		return err
	}
	if len(x.body) == 0 {
		if required {
			return wire.ErrNoBody()
		}
		return nil
	}
	if !isJSON(x.request.Header["Content-Type"]) {
		return wire.ErrNotJSON(x.body)
	}
	if !required && string(bytes.TrimSpace(x.body)) == "null" {
		return nil
	}
	return x.decoder.Decode(x.body, v)
}

// bodyOf is a pointer to a body of type T.
type bodyOf[T any] interface {
	*T
	json.UnmarshalerFrom
}

// bodyHandler answers a request that needs a body of type T.
type bodyHandler[T any, P bodyOf[T]] func(x *exchange, body P) error

func (h bodyHandler[T, P]) decodeAndAnswer(x *exchange) error {
	body := P(new(T))
	if err := x.decode(body, bodyRequired); err != nil {
		return err
	}
	return h(x, body)
}

// withBody returns a handler that decodes the body first.
func withBody[T any, P bodyOf[T]](h bodyHandler[T, P]) handler { return h.decodeAndAnswer }

// isJSON reports whether a body of this content type, or without one, is JSON.
func isJSON(contentType []string) bool {
	if len(contentType) == 0 || contentType[0] == "" || contentType[0] == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType[0])
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// query reads the parameters of a query: from the query string of a GET, otherwise from the body.
func (x *exchange) query(q wire.Query) error {
	if x.request.Method == http.MethodGet {
		return q.Parse(x.request.URL.RawQuery, x.decoder)
	}
	return x.decode(q, bodyRequired)
}

// firstRead bounds the memory that is allocated for a Content-Length before any of the
// body has arrived. The buffer grows as the body arrives.
const firstRead = 1 << 20

// readBody reads the request's body, decompressed, into x.body, and charges it to the
// budget of the caller's key.
func (x *exchange) readBody() error {
	if err := x.receiveBody(); err != nil || x.lease == nil || x.route == chargeRoute { // a proxy must always be able to report what is spent
		return err
	}
	return x.reserve(access.Amounts{Bytes: int64(len(x.body))})
}

func (x *exchange) receiveBody() error {
	r := x.request
	n := r.ContentLength
	if n > x.maxBody {
		return errTooLarge(x.maxBody)
	}
	switch encoding := r.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
	case "gzip":
		return x.readGzip()
	default:
		return wire.ErrDetail(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Encoding %q is not supported, allowed are gzip and identity", encoding))
	}
	if n < 0 {
		return x.readAll(r.Body)
	}
	if n > maxKept {
		if memory, ok := x.bodies.Get().(*[]byte); ok {
			x.body = *memory
		}
	}
	read, size := 0, min(int(n), max(cap(x.body), firstRead))
	for {
		if err := httpserver.HoldBody(r, int64(size)); err != nil {
			return errUnreadable(err)
		}
		x.body = slices.Grow(x.body[:read], size-read)[:size]
		if _, err := io.ReadFull(r.Body, x.body[read:]); err != nil {
			return errUnreadable(err)
		}
		if size == int(n) {
			return nil
		}
		read, size = size, min(int(n), 4*size)
	}
}

func (x *exchange) readGzip() error {
	z, err := gzip.NewReader(x.request.Body)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, httpserver.ErrBusy) {
		return errUnreadable(err)
	}
	if err != nil {
		return wire.ErrDetail(http.StatusBadRequest, "the body is not gzip as its Content-Encoding says: "+err.Error())
	}
	if err := x.readAll(z); err != nil {
		return err
	}
	return z.Close()
}

// readAll reads a body of unknown length.
func (x *exchange) readAll(r io.Reader) error {
	x.body = x.body[:0]
	for {
		if len(x.body) == cap(x.body) {
			size := max(2*cap(x.body), 4<<10)
			if err := httpserver.HoldBody(x.request, int64(size)); err != nil {
				return errUnreadable(err)
			}
			x.body = slices.Grow(x.body, size-len(x.body))
		}
		n, err := r.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		switch {
		case int64(len(x.body)) > x.maxBody:
			return errTooLarge(x.maxBody)
		case err == io.EOF:
			return nil
		case err != nil:
			return errUnreadable(err)
		}
	}
}

func errTooLarge(limit int64) error {
	return wire.ErrDetail(http.StatusRequestEntityTooLarge, fmt.Sprintf("the request's body is larger than %d bytes, the maximum of this server", limit))
}

func errUnreadable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, httpserver.ErrBusy):
		return agl.Errorf(agl.CodeUnavailable, "the request's body was not read: %w", err)
	default:
		return wire.ErrDetail(httpserver.BodyStatus(err))
	}
}
