package httpserver_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/memnet"
)

// A request that does not end is cut off when the time is over.
func TestShutdown(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	server := httpserver.Start(listener, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}), slog.New(slog.DiscardHandler))
	answered := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+listener.Addr().String(), nil)
		if err != nil {
			answered <- err
			return
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		answered <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown returned %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the request was answered")
	}
}

// A client that has stopped in the middle of its body does not hold back the end of the server, and one that goes on is answered.
func TestShutdownDuringBodies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sent   int // bytes, every half second
		status int
		took   time.Duration
	}{
		"stopped":    {0, http.StatusRequestTimeout, time.Second},
		"slow":       {10, http.StatusOK, 5 * time.Second},
		"at its end": {100, http.StatusOK, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				listener := memnet.Listen()
				server := httpserver.Start(listener, http.HandlerFunc(readBody), slog.New(slog.DiscardHandler))
				conn, err := listener.Dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				const length = 101
				if _, err := io.WriteString(conn, post(length)+"1"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				start, ended := time.Now(), make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					ended <- server.Shutdown(ctx)
				}()
				for left := length - 1; tc.sent > 0 && left > 0; left -= tc.sent {
					time.Sleep(500 * time.Millisecond)
					if _, err := conn.Write(make([]byte, tc.sent)); err != nil {
						t.Fatal(err)
					}
				}
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				if took := time.Since(start); answer.StatusCode != tc.status || took != tc.took {
					t.Errorf("answered %s after %s, want %d after %s", answer.Status, took, tc.status, tc.took)
				}
				if err := <-ended; err != nil {
					t.Errorf("shutdown returned %v", err)
				}
			})
		})
	}
}

func TestServerThatFails(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server := httpserver.Start(listener, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	<-server.Done()
	if !errors.Is(server.Err(), net.ErrClosed) {
		t.Errorf("ended with %v", server.Err())
	}
}

// A client that takes nothing of its answer is cut off, one that takes little is not, and one that
// waits for more is not.
func TestClientsThatTakeNothing(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	for name, tc := range map[string]struct {
		take  int // bytes, every time
		every time.Duration
		all   bool
	}{
		"nothing": {0, 0, false}, "less than it must": {1 << 10, time.Minute, false}, "slowly": {256 << 10, time.Minute, true}, "at once": {size, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				listener := memnet.Listen()
				failed := make(chan error, 1)
				running := httpserver.Start(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/later" {
						time.Sleep(time.Hour) // the handler may take as long as it likes
						return
					}
					began := time.Now()
					_, err := w.Write(make([]byte, size))
					if err == nil {
						err = http.NewResponseController(w).Flush()
					}
					if took := time.Since(began); err != nil && took > 5*time.Minute {
						t.Errorf("cut off after %s", took)
					}
					failed <- err
				}), slog.New(slog.DiscardHandler))
				conn, err := listener.Dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(conn, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReaderSize(conn, 16)
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != http.StatusOK {
					t.Fatal(res, err)
				}
				defer res.Body.Close()
				if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				for left := size; tc.take > 0 && left > 0; left -= tc.take {
					if _, err := io.CopyN(io.Discard, in, int64(min(tc.take, left))); err != nil {
						break
					}
					time.Sleep(tc.every)
				}
				if tc.all {
					go func() { _, _ = io.Copy(io.Discard, in) }() // what is left of the framing
				}
				if err := <-failed; (err == nil) != tc.all {
					t.Errorf("got %v", err)
				}
				_ = conn.Close() // it may be closed
				if err := running.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
