package httpserver

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxArriving bounds the memory of the bodies that are arriving at a server.
	maxArriving = 256 << 20
	// maxArrivingClient bounds what one client address may have of it, so that a client
	// that stops in the middle of its bodies does not keep others out.
	maxArrivingClient = maxArriving / 2
	// freeBody is the size up to which a body is not counted.
	freeBody = 64 << 10
	// Memory is counted in steps of bodyUnit.
	bodyUnit = 256 << 10
)

// ErrBusy is the error of reading a body for which a server has no memory now. Answer it with 503;
// the request may be repeated.
var ErrBusy = errors.New("bodies of other requests hold the memory that this server has for them")

// arriving counts the memory of bodies that have not arrived completely.
type arriving struct {
	mu      sync.Mutex
	held    int64            // bytes
	clients map[string]int64 // bytes by client address
	bodies  map[*timedBody]struct{}
	hurried atomic.Bool // the server shuts down
}

// await sets the deadline of a body that is arriving.
func (a *arriving) await(b *timedBody, deadline time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last := time.Now().Add(lastPause); a.hurried.Load() && last.Before(deadline) {
		deadline = last
	}
	err := b.conn.SetReadDeadline(deadline)
	if err == nil {
		a.bodies[b] = struct{}{}
	}
	return err
}

// forget leaves the deadline of a body to the caller.
func (a *arriving) forget(b *timedBody) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.bodies, b)
}

// hurry is called when the server shuts down.
func (a *arriving) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hurried.Store(true)
	for b := range a.bodies {
		_ = b.conn.SetReadDeadline(time.Now().Add(lastPause)) // a closed connection needs none
	}
}

// hold counts n more bytes of a client, unless that exceeds a limit.
func (a *arriving) hold(client string, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held+n > maxArriving || a.clients[client]+n > maxArrivingClient {
		return ErrBusy
	}
	a.held += n
	a.clients[client] += n
	return nil
}

func (a *arriving) release(client string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= n
	if a.clients[client] -= n; a.clients[client] == 0 {
		delete(a.clients, client)
	}
}

// HoldBody reserves memory for a request's body before it is allocated: n bytes in all, of
// which those that have arrived are reserved already. Handlers call it when they allocate
// ahead of the body, or decompress it. The memory is free again when the body has arrived
// or the request has ended. The error is [ErrBusy]. A request of a server that [New] has
// not made has no limit.
func HoldBody(r *http.Request, n int64) error {
	if b, ok := r.Body.(*timedBody); ok {
		return b.hold(n)
	}
	return nil
}

// ReadBody reads a request's body of at most limit bytes. A longer one is refused by its
// announced length, before any of it is read. See [BodyStatus] for the error.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
}

// BodyStatus is the status with which a failed read of a request's body is answered, and
// what to say.
func BodyStatus(err error) (status int, message string) {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return http.StatusRequestEntityTooLarge, "the request's body is too large: " + err.Error()
	}
	switch {
	case errors.Is(err, ErrBusy):
		return http.StatusServiceUnavailable, "the request's body was not read: " + err.Error() + "; repeat the request"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, "the request's body did not arrive in time"
	default:
		return http.StatusBadRequest, "the request's body could not be read: " + err.Error()
	}
}

// hold reserves n bytes in all.
func (b *timedBody) hold(n int64) error {
	if b.done || n <= freeBody || n <= b.held {
		return nil
	}
	more := (n - b.held + bodyUnit - 1) / bodyUnit * bodyUnit
	if err := b.arriving.hold(b.client(), more); err != nil {
		return err
	}
	b.held += more
	return nil
}

// release gives the memory back.
func (b *timedBody) release() {
	b.done = true
	if b.held > 0 {
		b.arriving.release(b.client(), b.held)
		b.held = 0
	}
}

func (b *timedBody) client() string {
	host, _, err := net.SplitHostPort(b.remote)
	if err != nil {
		return b.remote
	}
	return host
}
