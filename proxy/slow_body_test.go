package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// A request whose body does not arrive before the server's deadline is answered
// with 408.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	const token = "s3cret"
	p := unplugged(t, always, &spans{}, func(c *proxy.Config) { c.Token = token })
	for _, path := range []string{"/v1/chat/completions", "/admin/flush"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, iotest.ErrReader(os.ErrDeadlineExceeded))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != http.StatusRequestTimeout {
			t.Errorf("%s: got %d %s, want 408", path, w.Code, w.Body)
		}
	}
	closed(t, p)
}

// Bodies that are announced and not sent hold no memory: other calls go on. Bodies that
// are sent in part hold what has arrived, and never more than the limit.
func TestStuckBodies(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.CaptureBytes, c.QueueTimeout = limit, 200*time.Millisecond })
	stuck := func(sent int) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", attemptPath, 10*limit)
		if _, err := io.WriteString(conn, head+strings.Repeat(" ", sent)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for range 4 {
		stuck(0)
	}
	if got := post(t, g.URL+attemptPath, hello); got.status != http.StatusOK {
		t.Errorf("beside four idle connections a call got %d %s", got.status, got.body)
	}
	type answer struct {
		status int
		body   []byte
		err    error
	}
	answers := make(chan answer, 4)
	for range 4 { // each asks for 4 MiB after the first 512 KiB, which never fits
		conn := stuck(600 << 10)
		go func() { // at once: a while after its answer the server resets the connection, which takes back what was not read
			var a answer
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if a.err = err; err == nil {
				a.status = res.StatusCode
				a.body, a.err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			answers <- a
		}()
	}
	for range 4 {
		if a := <-answers; a.err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), "capture_full") {
			t.Errorf("a body beyond the memory got %d %s, %v", a.status, a.body, a.err)
		}
		if held := captureBytes(t, g); held > limit {
			t.Errorf("half-sent bodies hold %d bytes, the limit is %d", held, limit)
		}
	}
}

// captureBytes returns the memory that calls hold, as the metrics show it.
func captureBytes(t *testing.T, g *gateway) int64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go_goroutines ", "process_open_fds "} {
		if !strings.Contains(string(text), "\n"+name) {
			t.Errorf("the metrics lack %s", name)
		}
	}
	_, rest, _ := strings.Cut(string(text), "\nagl_proxy_capture_bytes ")
	line, _, _ := strings.Cut(rest, "\n")
	held, err := strconv.ParseFloat(line, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(held)
}
