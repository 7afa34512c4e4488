// Package inferencetest has an inference server for tests that crashes on purpose. It is
// run by the test's own program: TestMain calls [Main].
package inferencetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Script is what the server does, as the value of the environment variable [Env].
type Script struct {
	// Port of 127.0.0.1.
	Port int
	// Unready is the number of times that /health answers 503 at first.
	Unready int
	// CrashAt ends the process in the middle of this call, counted from 1; 0 is none.
	CrashAt int
	// Dying is how many milliseconds the server answers with 500 and 503 instead, from that
	// call on, before its process ends; 0 is none.
	Dying int
	// Lives is the number of starts after which the server ends at once; 0 is no limit.
	// The starts are lines of the file Starts, with the ids of the server's process and
	// of the one that it has started.
	Lives  int
	Starts string
}

// Env is the variable that makes a test's program the server.
const Env = "AGL_TEST_INFERENCE_SERVER"

// String returns the variable with its value.
func (s Script) String() string {
	return fmt.Sprintf("%s=%d %d %d %d %d %s", Env, s.Port, s.Unready, s.CrashAt, s.Dying, s.Lives, s.Starts)
}

// Port returns a port of 127.0.0.1 that nothing listens on. The system assigns no ports of this
// range by itself, and the datagrams of the port are taken until the test is over, as a mark for
// other processes that look for a port: nobody takes it before the server does, or while that
// starts again. It is not tried out by listening: a process that another test starts at this
// moment would keep the listener open for a while.
func Port(tb testing.TB) int {
	tb.Helper()
	const first, count = 20_000, 10_000
	for {
		port := first + rand.IntN(count)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		mark, err := new(net.ListenConfig).ListenPacket(tb.Context(), "udp", address)
		if err != nil {
			continue // it is given
		}
		tb.Cleanup(func() {
			if err := mark.Close(); err != nil {
				tb.Error(err)
			}
		})
		conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", address)
		if err != nil {
			return port // nobody listens
		}
		if err := conn.Close(); err != nil {
			tb.Fatal(err)
		}
	}
}

// Main serves if [Env] is set, and then does not return.
func Main() {
	value, ok := os.LookupEnv(Env)
	if !ok {
		return
	}
	var s Script
	if _, err := fmt.Sscan(value, &s.Port, &s.Unready, &s.CrashAt, &s.Dying, &s.Lives, &s.Starts); err != nil {
		crash(err)
	}
	crash(s.serve())
}

func crash(err error) {
	fmt.Fprintln(os.Stderr, "CUDA out of memory:", err)
	os.Exit(3)
}

func (s Script) serve() error {
	worker := exec.Command("sleep", "3600") //nolint:noctx // it outlives the server unless its group is ended
	if err := worker.Start(); err != nil {
		return err
	}
	f, err := os.OpenFile(s.Starts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, os.Getpid(), worker.Process.Pid); err != nil {
		return err
	}
	data, err := os.ReadFile(s.Starts)
	if err != nil {
		return err
	}
	if starts := strings.Count(string(data), "\n"); s.Lives > 0 && starts > s.Lives {
		return fmt.Errorf("start %d", starts)
	}
	var probes, calls atomic.Int64
	http.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if probes.Add(1) <= int64(s.Unready) || s.Dying > 0 && s.CrashAt > 0 && calls.Load() >= int64(s.CrashAt) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	for _, path := range []string{"POST /sleep", "POST /wake_up"} {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if _, err := fmt.Fprintln(f, r.URL.Path); err != nil {
				crash(err)
			}
		})
	}
	http.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
		n := calls.Add(1)
		if n == int64(s.CrashAt) {
			failure := fmt.Errorf("call %d", n)
			if s.Dying == 0 {
				crash(failure)
			}
			time.AfterFunc(time.Duration(s.Dying)*time.Millisecond, func() { crash(failure) })
		}
		if s.CrashAt > 0 && n >= int64(s.CrashAt) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"id":"c","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"0.5"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`)
	})
	return http.ListenAndServe("127.0.0.1:"+strconv.Itoa(s.Port), nil) //nolint:gosec // a test's
}
