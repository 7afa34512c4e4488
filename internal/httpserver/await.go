package httpserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The ports that FreePort chooses from: those below the ones that systems give to whoever asks for any port, to listen or to connect.
const firstPort, lastPort = 10_000, 32_767

// FreePort returns a loopback port that nothing listens on, for a program that is told where to listen. It keeps the UDP port of the
// same number open as a mark while this process lives: until then no call of FreePort, in any process, returns the port again, even
// while that program is down.
func FreePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	var last error
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		mark, err := config.ListenPacket(ctx, "udp", address)
		if err != nil {
			last = err
			continue
		}
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			last = errors.Join(err, mark.Close())
			continue
		}
		taken.Lock()
		taken.marks = append(taken.marks, mark) // the garbage collector would close a mark that nothing references
		taken.Unlock()
		return port, l.Close()
	}
	return 0, fmt.Errorf("no port from %d to %d is free: %w", firstPort, lastPort, last)
}

var taken struct {
	sync.Mutex

	marks []net.PacketConn
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
