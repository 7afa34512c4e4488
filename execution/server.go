package execution

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest"
)

// storeServer is a managed store: a store of this process, served over HTTP.
type storeServer struct {
	url    string
	api    *rest.Server
	http   *http.Server
	closed chan struct{} // when serving has ended
	err    error         // valid once closed is
}

// listen takes the address of a managed store.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, agl.Errorf(agl.CodeConflict,
			"execution: %s: address already in use; choose another by %s (0 takes a free one)", address, EnvServerPort)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// ClientURL is where processes of this machine reach an HTTP server behind a
// listener: one that listens on every address is found on the loopback.
func ClientURL(listener net.Listener) string {
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return "http://" + listener.Addr().String()
	}
	host := addr.IP.String()
	switch {
	case !addr.IP.IsUnspecified():
	case addr.IP.To4() != nil:
		host = "127.0.0.1"
	default:
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// serve starts serving a store to other processes.
func (c ClientServer) serve(listener net.Listener, opened OpenedStore) (*storeServer, error) {
	api, err := rest.NewServer(rest.ServerConfig{Store: opened.Store, Metrics: opened.Metrics, Token: c.Token, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	s := &storeServer{
		url:    ClientURL(listener),
		api:    api,
		http:   httpserver.New(api, c.Logger),
		closed: make(chan struct{}),
	}
	go func() {
		defer close(s.closed)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
		}
	}()
	return s, nil
}

// dial returns a client of a store server, once that answers.
func (c ClientServer) dial(ctx context.Context, url string) (store agl.Store, closeStore func() error, err error) {
	client, err := rest.NewClient(rest.ClientConfig{URL: url, Token: c.Token, RetryBudget: c.StoreOutage, Logger: c.Logger})
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(c.ConnectTimeout)
	delays := backoff.Exponential{First: 20 * time.Millisecond, Max: time.Second}
	for try := 0; ; try++ {
		err := client.Health(ctx)
		if err == nil {
			return client, client.Close, nil
		}
		if delay := delays.Delay(try); agl.Transient(err) && time.Until(deadline) > delay && backoff.Sleep(ctx, delay) == nil {
			continue
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, errors.Join(fmt.Errorf("reach the store server: %w", err), client.Close())
	}
}

// watch makes the server a side, so that its end is noticed.
func (s *storeServer) watch(ended chan<- *side) *side {
	return startFunc("store server", ended, func() error {
		<-s.closed
		return s.err
	})
}

// shutdown answers the requests that were accepted and closes the server. It
// does not wait once the user insists.
func (s *storeServer) shutdown(ctx context.Context, timeout time.Duration) error {
	c, cancel := CleanupContext(ctx, timeout)
	defer cancel()
	s.api.Drain()
	err := s.http.Shutdown(c)
	if err != nil {
		err = s.http.Close()
	}
	<-s.closed
	if err != nil {
		return fmt.Errorf("close the store server: %w", err)
	}
	return nil
}

const (
	workerPoll = 20 * time.Millisecond
	// farewell is how long a worker that has reported may take to ask for more
	// and so hear that the queue is closed. One that has done all that it wants
	// never asks.
	farewell = time.Second
)

// awaitWorkers returns when every worker that is busy has reported and has
// asked for more, so that it knows that the queue is closed; or after the
// timeout, or when ctx ends. A worker whose last act was to ask has been told
// already: its request was blocked when the queue was closed.
func awaitWorkers(ctx context.Context, store agl.Store, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(workerPoll)
	defer ticker.Stop()
	working := agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{agl.WorkerBusy, agl.WorkerIdle}}
	for {
		page, err := store.QueryWorkers(ctx, working)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("look after the workers: %w", err)
		}
		if !slices.ContainsFunc(page.Items, expected) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// expected reports whether a worker is still to be heard of.
func expected(w agl.Worker) bool {
	if w.Status == agl.WorkerBusy {
		return true
	}
	reported := w.LastIdleTime.Valid && w.LastIdleTime.V > w.LastDequeueTime.V
	return reported && time.Since(w.LastIdleTime.V.Time()) < farewell
}
