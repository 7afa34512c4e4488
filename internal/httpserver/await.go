package httpserver

import (
	"context"
	"errors"
	"fmt"
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

// Await asks a URL until a server answers with 200. If ctx ends first, the error has its cause and the last failure.
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
			err = errors.Join(err, fmt.Errorf("%s answers %s, must be 200", url, res.Status))
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick:
		}
	}
}
