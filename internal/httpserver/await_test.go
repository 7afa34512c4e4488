package httpserver_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/agl-go/agl/internal/httpserver"
)

// A port stays that of the program it was chosen for, also while that program does not run: nobody else is given it.
func TestFreePort(t *testing.T) {
	t.Parallel()
	given := map[int]bool{}
	for range 200 {
		port, err := httpserver.FreePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if given[port] || port < 10_000 || port > 32_767 {
			t.Errorf("port %d is given a second time, or is one of those that systems give to others", port)
		}
		given[port] = true
	}
	for port := range given {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if mark, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address); err == nil {
			t.Errorf("port %d has no mark", port)
			_ = mark.Close() // it is an error already
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Error(err)
			break
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
