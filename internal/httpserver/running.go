package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Running is a server that accepts requests.
type Running struct {
	server *http.Server
	done   chan struct{}
	err    error // valid once done is closed
}

// Start serves handler on listener, as [New] does, and cuts off clients that take nothing of their
// answers. The listener is closed with the server, which the caller ends by Shutdown.
func Start(listener net.Listener, handler http.Handler, log *slog.Logger, trusted ...netip.Prefix) *Running {
	r := &Running{server: New(handler, log, trusted...), done: make(chan struct{})}
	if e, ok := listener.(encrypted); ok {
		r.server.ConnContext = e.files.inConnection
	} else {
		listener = stallListener{listener}
	}
	go func() {
		defer close(r.done)
		if err := r.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.err = err
		}
	}()
	return r
}

// Done returns a channel that is closed when the server has ended.
func (r *Running) Done() <-chan struct{} { return r.done }

// Err waits until the server has ended and returns why, or nil if Shutdown ended it.
func (r *Running) Err() error {
	<-r.done
	return r.err
}

// Shutdown accepts no more requests, waits for those under way while ctx lasts, and
// closes the connections that are left. The error is that of ctx when there were any.
func (r *Running) Shutdown(ctx context.Context) error { return r.ShutdownOr(ctx, nil) }

// lastAnswers is how long requests that were aborted may take to answer.
const lastAnswers = time.Second

// ShutdownOr is Shutdown that calls abort, if it is not nil, before it closes connections: from then on requests look as if
// their clients had left. If the deadline of ctx has passed, aborted requests have a moment to answer.
func (r *Running) ShutdownOr(ctx context.Context, abort func()) error {
	err := r.server.Shutdown(ctx)
	if err != nil && abort != nil {
		abort()
		if errors.Is(err, context.DeadlineExceeded) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
			_ = r.server.Shutdown(last) // what has not answered by then is closed
			cancel()
		}
	}
	if err != nil {
		err = errors.Join(err, r.server.Close())
	}
	return errors.Join(err, r.Err())
}
