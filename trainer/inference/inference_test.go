//go:build unix

package inference_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/inference/inferencetest"
)

func TestMain(m *testing.M) {
	inferencetest.Main()
	goleak.VerifyTestMain(m)
}

// config is one of a server that follows a script.
func config(t *testing.T, s inferencetest.Script) (inference.Config, inferencetest.Script) {
	t.Helper()
	s.Port, s.Starts = inferencetest.Port(t), filepath.Join(t.TempDir(), "starts")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return inference.Config{
		Command: []string{self}, Env: append(os.Environ(), s.String()), BaseURL: fmt.Sprintf("http://127.0.0.1:%d/v1", s.Port), GracePeriod: time.Minute,
	}, s
}

// call makes one model call through the server's transport.
func call(t *testing.T, s *inference.Server, transport http.RoundTripper, url string) (string, error) {
	t.Helper()
	client := http.Client{Transport: s.Transport(transport)}
	resp, err := client.Post(url+"/chat/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// checkGone checks that no process of a script is left, the servers' children included.
func checkGone(t *testing.T, s inferencetest.Script, starts int) {
	t.Helper()
	data, err := os.ReadFile(s.Starts)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != starts {
		t.Errorf("%d starts, want %d: %q", len(lines), starts, lines)
	}
	for _, line := range lines {
		var server, worker int
		if _, err := fmt.Sscan(line, &server, &worker); err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{server, worker} {
			awaitGone(t, pid)
		}
	}
}

// awaitGone waits for a process whose group was killed: the kernel ends it soon after.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for state := processState(pid); state != "" && state != "Z"; state = processState(pid) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("process %d is left, in state %s", pid, state)
		}
	}
}

// processState is the letter of Linux; empty is a process that is gone. One that has
// ended but has not been waited for by init yet is Z.
func processState(pid int) string {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// A server that dies is started again while calls wait, and ends with everything that it
// has started.
func TestServer(t *testing.T) {
	t.Parallel()
	cfg, script := config(t, inferencetest.Script{Unready: 2, CrashAt: 2})
	cfg.Restarts, cfg.Stable = 1, time.Nanosecond // every death starts a new count
	s, err := inference.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	const crashes = 2
	starts := 1
	for n := 0; starts <= crashes; {
		body, err := call(t, s, transport, cfg.BaseURL)
		if err != nil { // the server died in the middle of the call, or with its connection accepted
			if starts = countLines(t, script.Starts); n == 0 || errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("after %d calls: %v", n, err)
			}
			continue
		}
		if n++; !strings.Contains(body, `"content":"0.5"`) {
			t.Fatalf("got %s", body)
		}
	}
	if err := s.Await(t.Context()); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := s.Await(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	// A death may be seen before the start that follows it, so there may have been one more.
	starts = countLines(t, script.Starts)
	if starts <= crashes {
		t.Errorf("%d starts, want %d at least", starts, crashes+1)
	}
	checkGone(t, script, starts)
}

func countLines(t *testing.T, name string) int {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// A server may answer with errors before its process ends: the calls wait for the next one.
func TestDying(t *testing.T) {
	t.Parallel()
	cfg, script := config(t, inferencetest.Script{CrashAt: 2, Dying: 300})
	s, err := inference.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	for n := range 3 {
		if body, err := call(t, s, transport, cfg.BaseURL); err != nil || !strings.Contains(body, `"content":"0.5"`) {
			t.Errorf("call %d: %q, %v", n+1, body, err)
		}
	}
	s.Close()
	checkGone(t, script, 3)
}

// A server that keeps dying is given up, with its last lines; calls that wait get the
// same error.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	cfg, script := config(t, inferencetest.Script{CrashAt: 1, Lives: 1})
	cfg.Restarts = 2
	lost := make(chan error, 1)
	cfg.Lost = func(err error) { lost <- err }
	s, err := inference.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if _, err := call(t, s, transport, cfg.BaseURL); err == nil {
		t.Error("the call in whose middle the server dies succeeded")
	}
	err = <-lost
	if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "restarted 2 times") || !strings.Contains(err.Error(), "CUDA out of memory: start 3") {
		t.Errorf("got %v", err)
	}
	if _, waited := call(t, s, transport, cfg.BaseURL); !errors.Is(waited, err) {
		t.Errorf("a later call: %v", waited)
	}
	s.Close()
	checkGone(t, script, 3)
}

// What keeps a server from becoming ready is in the error, and nothing is left of it.
func TestNotReady(t *testing.T) {
	t.Parallel()
	t.Run("it ends", func(t *testing.T) {
		t.Parallel()
		cfg, script := config(t, inferencetest.Script{Lives: -1})
		cfg.Command = []string{"sh", "-c", `sleep 3600 & echo $$ $! > "$0"; echo no such model; exit 4`, script.Starts}
		_, err := inference.Start(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "exit status 4; its last lines:\n    no such model") {
			t.Errorf("got %v", err)
		}
		checkGone(t, script, 1)
	})
	t.Run("it does not answer", func(t *testing.T) {
		t.Parallel()
		cfg, script := config(t, inferencetest.Script{})
		cfg.Command = []string{"sh", "-c", `trap "" TERM; sleep 3600 & echo $$ $! > "$0"; echo loading; wait; wait`, script.Starts}
		cfg.StartTimeout, cfg.GracePeriod = 2*time.Second, 10*time.Millisecond
		_, err := inference.Start(t.Context(), cfg)
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "did not answer within 2s") || !strings.Contains(err.Error(), "/health") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(script.Starts); err == nil { // it may have been killed before
			checkGone(t, script, 1)
		}
	})
	t.Run("the run ends", func(t *testing.T) {
		t.Parallel()
		cfg, script := config(t, inferencetest.Script{Unready: 1 << 30})
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cfg.Output = writerFunc(func(p []byte) (int, error) { cancel(enough); return len(p), nil })
		cfg.Command = []string{"sh", "-c", `sleep 3600 & echo $$ $! > "$0"; echo loading; wait`, script.Starts}
		if _, err := inference.Start(ctx, cfg); !errors.Is(err, enough) || !strings.Contains(err.Error(), "loading") {
			t.Errorf("got %v", err)
		}
		checkGone(t, script, 1)
	})
	t.Run("the port is taken", func(t *testing.T) {
		t.Parallel()
		cfg, _ := config(t, inferencetest.Script{})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		cfg.BaseURL = "http://" + listener.Addr().String() + "/v1"
		if _, err := inference.Start(t.Context(), cfg); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), listener.Addr().String()) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no program", func(t *testing.T) {
		t.Parallel()
		cfg, _ := config(t, inferencetest.Script{})
		cfg.Command = []string{"/none"}
		if _, err := inference.Start(t.Context(), cfg); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
