// Package httpserver makes the HTTP servers of this module, so that all of them bound alike how long a client may hold a
// connection without sending anything. It knows no handler and no protocol above HTTP.
package httpserver

import (
	"io"
	"log/slog"
	"net/http"
	"time"
)

const (
	// headerTimeout bounds how long a client may take to send a request's header.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection may wait for its next request. It is
	// longer than that of our clients (90 s), so that it is they who close.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes leaves room for long query strings.
	maxHeaderBytes = 256 << 10
	// A body may take bodyTimeout, and a second more for every bodyRate bytes that
	// have arrived: a large body over a slow line gets through, a trickle does not.
	bodyTimeout = 30 * time.Second
	bodyRate    = 16 << 10
	// The deadline is moved once per bodyStep bytes.
	bodyStep = 4 * bodyRate
)

// New returns a server for handler that logs to log. Headers, bodies and idle connections have deadlines; a handler may take
// as long as it likes to answer once it has read the body, so that streams and long polls are not cut.
//
// When a body does not arrive in time, the handler's read of it fails with
// [os.ErrDeadlineExceeded], to be answered with 408.
func New(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           limitBody(handler),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// limitBody gives every request's body a deadline.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			body := &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w), start: time.Now()}
			if body.conn.SetReadDeadline(body.start.Add(bodyTimeout)) == nil {
				r.Body = body
			}
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a request's body that has to arrive at bodyRate.
type timedBody struct {
	io.ReadCloser
	conn     *http.ResponseController
	start    time.Time
	received int64 // bytes
	extended int64 // received when the deadline was last moved
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	switch {
	case err == io.EOF:
		// From here on net/http reads ahead only to notice that the client has left.
		_ = b.conn.SetReadDeadline(time.Time{}) // a closed connection needs none
	case b.received-b.extended >= bodyStep:
		b.extended = b.received
		earned := time.Duration(b.received/bodyRate) * time.Second
		_ = b.conn.SetReadDeadline(b.start.Add(bodyTimeout + earned)) // as above
	}
	return n, err
}
