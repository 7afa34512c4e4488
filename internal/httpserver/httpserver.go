// Package httpserver makes the HTTP servers of this module, so that all of them bound alike how long a client may hold a
// connection without sending anything. It knows no handler and no protocol above HTTP.
package httpserver

import (
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	// headerTimeout bounds how long a client may take to send a request's header, from the beginning of its connection for the
	// first one. It is longer than the 10 s between heartbeats: clients open spare connections, and the first heartbeat would be
	// lost if the server closed one just as the heartbeat took it.
	headerTimeout = 15 * time.Second
	// idleTimeout is how long a connection may wait for its next request. It is longer than that of
	// our clients (90 s), so that the clients close first.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes leaves room for long query strings.
	maxHeaderBytes = 256 << 10
	// A body may take bodyTimeout, and a second more for every bodyRate bytes that have arrived: a
	// large body over a slow line gets through, a trickle does not. A body of which nothing arrives
	// for bodyTimeout does not, either.
	bodyTimeout = 30 * time.Second
	bodyRate    = 16 << 10
	// The part of a body that a handler has not read may take unreadBody to arrive, with at most
	// unreadPause for each unreadStep bytes, so that the answer is not held back for long.
	unreadBody  = 10 * time.Second
	unreadPause = time.Second
	unreadStep  = 1 << 20
	// The deadline is moved once per bodyStep bytes.
	bodyStep = 4 * bodyRate
	// Once the server shuts down, a body of which nothing arrives for lastPause does not get through: its client may be gone,
	// and the others wait for the end.
	lastPause = time.Second
)

// New returns a server for handler that logs to the given logger. Headers, bodies and idle connections have deadlines; a handler may take
// as long as it likes to answer once it has read the body, so that streams and long polls are not cut. [Start] also gives
// answers a deadline for what their clients must take.
//
// Requests from trusted addresses come from proxies, which name the client's address in X-Forwarded-For.
//
// When a body does not arrive in time, the handler's read of it fails with
// [os.ErrDeadlineExceeded], to be answered with 408. When bodies that are still arriving
// hold too much memory, it fails with [ErrBusy]; see [BodyStatus].
func New(handler http.Handler, to *slog.Logger, trusted ...netip.Prefix) *http.Server {
	all := &arriving{clients: map[string]int64{}, bodies: map[*timedBody]struct{}{}}
	server := &http.Server{
		Handler:           forwarded(all.limit(handler), trusted),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(errorLog{to}, "", 0),
	}
	server.RegisterOnShutdown(all.hurry)
	return server
}

// errorLog takes what net/http logs.
type errorLog struct{ to *slog.Logger }

// Write logs one line. A connection that ends before its handshake is no warning: load balancers check a server so, every few seconds.
func (l errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if strings.HasPrefix(text, "http: TLS handshake error") && (strings.HasSuffix(text, ": EOF") || strings.HasSuffix(text, ": connection reset by peer")) {
		l.to.Debug(text)
	} else {
		l.to.Warn(text)
	}
	return len(line), nil
}

// limit gives every request's body a deadline, and counts its memory while it arrives.
func (a *arriving) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w), start: time.Now(), arriving: a, remote: r.RemoteAddr}
		if r.Body == http.NoBody || a.await(body, body.start.Add(bodyTimeout)) != nil {
			next.ServeHTTP(w, r)
			return
		}
		r.Body = body
		defer body.end(r)
		next.ServeHTTP(w, r)
	})
}

// end is called when the handler has returned, before a short answer is sent. Of what the handler has
// left, net/http takes a small part, and closes the connection if there is more. Clients that read no
// answer before they have sent it all, such as Python's, would find the connection reset, so more is
// taken here. A client that awaits 100 Continue sends nothing when it gets another answer.
func (b *timedBody) end(r *http.Request) {
	left := !b.done && !b.failed
	b.arriving.forget(b)
	b.release()
	awaits := b.received == 0 && r.Header.Get("Expect") != ""
	end := time.Now().Add(unreadBody)
	for left && time.Now().Before(end) {
		if b.conn.SetReadDeadline(time.Now().Add(unreadPause)) != nil || awaits {
			return
		}
		_, err := io.CopyN(io.Discard, b.ReadCloser, unreadStep)
		if errors.Is(err, io.EOF) {
			_ = b.conn.SetReadDeadline(time.Time{}) // as in Read
		}
		left = err == nil
	}
}

// timedBody is a request's body that has to arrive at bodyRate.
type timedBody struct {
	io.ReadCloser
	conn     *http.ResponseController
	start    time.Time
	received int64 // bytes
	extended int64 // received when the deadline was last moved

	arriving *arriving
	remote   string // the client's address and port
	held     int64  // bytes that arriving counts
	done     bool   // nothing is counted any more
	failed   bool   // a read has failed
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	b.failed = err != nil
	switch {
	case errors.Is(err, io.EOF):
		// From here on net/http reads ahead only to notice that the client has left.
		b.arriving.forget(b)
		_ = b.conn.SetReadDeadline(time.Time{}) // a closed connection needs none
		b.release()
		return n, err
	case b.received-b.extended >= bodyStep || err == nil && b.arriving.hurried.Load():
		b.extended = b.received
		deadline := b.start.Add(bodyTimeout + time.Duration(b.received/bodyRate)*time.Second)
		if silent := time.Now().Add(bodyTimeout); silent.Before(deadline) {
			deadline = silent
		}
		_ = b.arriving.await(b, deadline) // as above
	}
	if err == nil {
		err = b.hold(b.received)
	}
	return n, err
}
