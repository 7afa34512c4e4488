package httpserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/memnet"
)

// connect serves handler and returns a client's end of a connection.
func connect(t *testing.T, handler http.HandlerFunc) net.Conn {
	t.Helper()
	listener := memnet.Listen()
	server := httpserver.New(handler, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	conn, err := listener.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // it may be closed
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return conn
}

// readBody answers with the number of bytes that it has read, or with 408.
func readBody(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.WriteHeader(http.StatusRequestTimeout)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	default:
		fmt.Fprint(w, n)
	}
}

func post(length int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", length)
}

func TestBodyDeadline(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		length int
		chunk  int           // bytes written every interval
		every  time.Duration // 0 writes nothing
		status string
		took   time.Duration
	}{
		{"nothing comes", 10, 0, 0, "408", 30 * time.Second},
		{"a trickle", 1000, 1, time.Second, "408", 30 * time.Second},
		{"slower than the least rate", 10 << 20, 8 << 10, time.Second, "408", 54 * time.Second},
		{"slow and steady", 8 << 20, 64 << 10, 2 * time.Second, "200", 254 * time.Second},
		{"at once", 1 << 20, 1 << 20, time.Second, "200", 0},
		{"much, then nothing", 20 << 20, 10 << 20, time.Hour, "408", 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := connect(t, readBody)
				start := time.Now()
				var writing sync.WaitGroup
				defer writing.Wait()
				defer conn.Close()
				writing.Go(func() {
					_, err := io.WriteString(conn, post(tc.length))
					for sent := 0; err == nil && tc.every > 0 && sent < tc.length; sent += tc.chunk {
						if sent > 0 {
							time.Sleep(tc.every)
						}
						_, err = conn.Write(make([]byte, min(tc.chunk, tc.length-sent)))
					}
				})
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if took := time.Since(start).Truncate(time.Second); !strings.HasPrefix(res.Status, tc.status) || took != tc.took {
					t.Errorf("got %s after %s, want %s after %s", res.Status, took, tc.status, tc.took)
				}
			})
		})
	}
}

// A request whose body has arrived, or that has none, may be answered whenever
// the handler likes, and its context lasts as long as the client stays.
func TestAnswersHaveNoDeadline(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"body":           post(2) + "{}",
		"chunked body":   "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"no body":        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"empty body":     post(0),
		"second request": "GET /now HTTP/1.1\r\nHost: h\r\n\r\n" + post(2) + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := connect(t, func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						t.Error(err)
					}
					if r.URL.Path == "/now" {
						return
					}
					select {
					case <-time.After(time.Hour):
					case <-r.Context().Done():
						t.Error("the request was cut")
					}
				})
				go func() {
					if _, err := io.WriteString(conn, request); err != nil {
						t.Error(err)
					}
				}()
				answers := bufio.NewReader(conn)
				for range strings.Count(request, " HTTP/1.1") {
					res, err := http.ReadResponse(answers, nil)
					if err != nil || res.StatusCode != http.StatusOK {
						t.Fatalf("got %+v, %v", res, err)
					}
					res.Body.Close()
				}
			})
		})
	}
}

// A handler that does not read the body is not kept by it.
func TestUnreadBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		start := time.Now()
		go func() { _, _ = io.WriteString(conn, post(10)) }() // the server may have closed
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if took := time.Since(start); res.StatusCode != http.StatusUnauthorized || took > time.Second {
			t.Errorf("got %s after %s", res.Status, took)
		}
	})
}

// A connection that was never used outlives the 10 s until the first heartbeat, which may take it.
func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, sent string
		took       time.Duration
	}{
		{"no request", "", 15 * time.Second},
		{"half a header", "GET / HTTP/1.1\r\n", 15 * time.Second},
		{"idle after a request", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 2 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := connect(t, readBody)
				start := time.Now()
				go func() { _, _ = io.WriteString(conn, tc.sent) }() // the server may have closed
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("closed after %s, want %s", took, tc.took)
				}
			})
		})
	}
}

// Python's HTTP client, and many others, read no answer before they have sent the body.
func TestUnreadBodyOfClientsThatSendAllFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status  int
		handler http.HandlerFunc
	}{
		"refused by its length": {http.StatusRequestEntityTooLarge, func(w http.ResponseWriter, r *http.Request) {
			_, err := httpserver.ReadBody(w, r, 1<<20)
			status, message := httpserver.BodyStatus(err)
			http.Error(w, message, status)
		}},
		"refused when it is too long": {http.StatusRequestEntityTooLarge, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			status, message := httpserver.BodyStatus(err)
			http.Error(w, message, status)
		}},
		"refused for another reason": {http.StatusUnauthorized, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := connect(t, tc.handler)
				const size = 64 << 20
				_, err := conn.Write([]byte(post(size)))
				if err == nil {
					_, err = conn.Write(make([]byte, size))
				}
				if err != nil {
					t.Fatalf("the body was not taken: %v", err)
				}
				r := bufio.NewReader(conn)
				answer, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				if answer.StatusCode != tc.status {
					t.Errorf("got %s, want %d", answer.Status, tc.status)
				}
				if _, err := io.Copy(io.Discard, r); err != nil { // until the server closes the connection
					t.Error(err)
				}
			})
		})
	}
}

// What a client sends after an answer that came before its body was complete is no request.
func TestUnreadBodyIsNoRequest(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			conn := connect(t, func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.WriteHeader(http.StatusUnauthorized)
			})
			go func() { _, _ = io.WriteString(conn, post(size)+"abc") }() // the server may have closed
			start, r := time.Now(), bufio.NewReader(conn)
			answer, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if _, err := io.Copy(io.Discard, r); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
			if took := time.Since(start); requests != 1 || took > 3*time.Second {
				t.Errorf("a body of %d bytes: %d requests, the connection was closed after %s", size, requests, took)
			}
		})
	}
}
