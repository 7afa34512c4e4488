package process

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestStreamAfterDeadline: what a process wrote before it ended is read, also if nobody could read it in time, and
// although something holds the pipe open.
func TestStreamAfterDeadline(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.WriteString(`{"reward": 1}`); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(&stream{pipe: r}); err != nil || string(got) != `{"reward": 1}` {
		t.Errorf("got %q, error %v", got, err)
	}
}

// TestKeptEndsBeforeItsTask: what a new process has written belongs to its first task, also if it has ended before that begins.
func TestKeptEndsBeforeItsTask(t *testing.T) {
	t.Parallel()
	a, err := New(Config{Command: []string{"/bin/sh", "-c", "echo no module >&2; exit 1"}, Keepalive: KeepaliveStdio})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	k, err := a.startKept()
	if err != nil {
		t.Fatal(err)
	}
	<-k.exited
	_, err = k.serve(t.Context(), []byte("{}\n"), &turn{reply: make(chan stdioReply, 1), stdout: newOutput(1000), stderr: newOutput(1000)})
	if err == nil || !strings.HasSuffix(err.Error(), ": no module") {
		t.Errorf("got %v, want what the process has written to standard error", err)
	}
}
