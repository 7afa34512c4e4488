package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/agl-go/agl/proxy"
)

// rawBackend is a server that reads each request, answers with the text, and closes the connection. It returns its base URL.
func rawBackend(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(conn net.Conn) error {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return err
		}
		if _, err = io.Copy(io.Discard, r.Body); err == nil { // else closing the connection may take the answer back
			_, err = io.WriteString(conn, answer)
		}
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if err := errors.Join(serve(conn), conn.Close()); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // it ends the server
		serving.Wait()
	})
	return "http://" + listener.Addr().String() + "/v1"
}

// A backend that answers in another way than HTTP has it was reached.
func TestBackendThatBreaksHTTP(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ answer, want string }{
		"status below 100":   {"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\n{}", "answered, but not as HTTP has it: it answered 099"},
		"status above 599":   {"HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\n{}", "answered, but not as HTTP has it: it answered 600"},
		"long status":        {"HTTP/1.1 1000 Odd\r\nContent-Length: 2\r\n\r\n{}", "answered, but not as HTTP has it: "},
		"another protocol":   {"SSH-2.0-OpenSSH_9.2\r\n", "answered, but not as HTTP has it: "},
		"header":             {"HTTP/1.1 200 OK\r\nfoo bar\r\n\r\n{}", "answered, but not as HTTP has it: "},
		"length":             {"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n{}", "answered, but not as HTTP has it: "},
		"nothing":            {"", "broke off before it had replied"},
		"a part of the head": {"HTTP/1.1 200 OK\r\nA: b\r\n", "broke off before it had replied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, rawBackend(t, tt.answer), func(c *proxy.Config) { c.Retry.Attempts = 1 })
			got := post(t, g.URL+attemptPath, hello)
			if got.status != http.StatusBadGateway || !strings.Contains(string(got.body), tt.want) || !strings.Contains(string(got.body), "backend_broken") {
				t.Errorf("got %d %s, want %s", got.status, got.body, tt.want)
			}
		})
	}
}
