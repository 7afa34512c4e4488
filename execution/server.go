package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
)

// storeServer serves a managed store over HTTP.
type storeServer struct {
	url  string
	api  *server.Server
	http *httpserver.Running
}

// listenTCP listens at the address of a managed store.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	listener, err := httpserver.Listen(ctx, address, "choose another by "+EnvServerPort+" (0 takes a free one)")
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, agl.Errorf(agl.CodeConflict, "execution: %w", err)
	}
	return listener, err
}

// ClientURL returns the URL by which processes of this machine reach the HTTP server on a listener. A server that
// listens on every address is reached on the loopback address.
func ClientURL(listener net.Listener) string {
	scheme := httpserver.Scheme(listener) + "://"
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return scheme + listener.Addr().String()
	}
	host := addr.IP.String()
	switch {
	case !addr.IP.IsUnspecified():
	case addr.IP.To4() != nil:
		host = "127.0.0.1"
	default:
		host = "::1"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// serveStore starts serving a store to other processes. shutdown closes the listener.
func serveStore(listener net.Listener, opened OpenedStore, token string, log *slog.Logger) (*storeServer, error) {
	config := server.Config{Store: opened.Store, Metrics: opened.Metrics, Collector: opened.Collector, UI: opened.UI, Token: token, Logger: log}
	if documents, ok := opened.Store.(agl.DocumentStore); ok {
		config.Keys, config.Audit = access.NewKeys(documents), access.NewAudit(documents)
	}
	api, err := server.New(config)
	if err != nil {
		return nil, err
	}
	return &storeServer{url: ClientURL(listener), api: api, http: httpserver.Start(listener, api, log)}, nil
}

// shutdown finishes the accepted requests and closes the server, within the timeout. A second signal ends it at once.
func (s *storeServer) shutdown(ctx context.Context, timeout time.Duration) error {
	c, cancel := CleanupContext(ctx, timeout)
	defer cancel()
	s.api.Drain()
	if err := s.http.Shutdown(c); err != nil && !agl.IsContextError(err) {
		return fmt.Errorf("close the store server: %w", err)
	}
	return nil
}

// triesBeforeNotice is after how many tries, in a second, somebody may wonder why nothing happens.
const triesBeforeNotice = 6

// dialStore returns a client of a store server once the server answers, which it must within the timeout.
func dialStore(ctx context.Context, cfg client.Config, timeout time.Duration) (store agl.Store, closeStore func() error, err error) {
	client, err := client.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(timeout)
	delays := backoff.Exponential{First: 20 * time.Millisecond, Max: time.Second}
	for try := 0; ; try++ {
		err := client.Health(ctx)
		if err == nil {
			return client, client.Close, nil
		}
		if try == triesBeforeNotice && cfg.Logger != nil && agl.Transient(err) {
			cfg.Logger.WarnContext(ctx, "the store's server does not answer yet; it is tried again", "for", time.Until(deadline).Round(time.Second), "error", err)
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
