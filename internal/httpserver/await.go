package httpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// FreePort returns a port of the loopback interface that nothing listens on, for a program that is told where to listen.
func FreePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Await returns nil when a server answers a URL with 200. It asks until ctx ends.
func Await(ctx context.Context, url string) error {
	tick := time.Tick(time.Millisecond)
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			if err = res.Body.Close(); err == nil && res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.Join(err, errors.New(res.Status))
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick:
		}
	}
}
