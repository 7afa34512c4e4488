package httpbody

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// refusingConn is a connection to a server that answers 413, and closes the connection, while the request is still sent: the
// write fails, and only then the answer is read.
type refusingConn struct {
	net.Conn // for addresses

	once   sync.Once
	failed chan struct{} // closed when a write has failed
	answer io.Reader
}

func (c *refusingConn) Write([]byte) (int, error) {
	c.once.Do(func() { close(c.failed) })
	return 1, errors.New("broken pipe")
}

func (c *refusingConn) Read(to []byte) (int, error) {
	<-c.failed
	return c.answer.Read(to)
}

func (c *refusingConn) Close() error {
	c.once.Do(func() { close(c.failed) })
	return c.Conn.Close()
}

// A server that refuses a long request before it has read it is heard.
func TestEarlyRefusal(t *testing.T) {
	t.Parallel()
	const answer = "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong"
	transport := &http.Transport{DialContext: Dial(func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() }) // nothing uses it
		return &refusingConn{Conn: here, failed: make(chan struct{}), answer: strings.NewReader(answer)}, nil
	})}
	defer transport.CloseIdleConnections()
	for range 100 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://backend/", strings.NewReader(strings.Repeat("x", 1<<16)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "long" {
			t.Fatalf("got %d %q, %v", res.StatusCode, body, err)
		}
	}
}
