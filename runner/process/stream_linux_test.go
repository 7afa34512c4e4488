package process

import (
	"io"
	"os"
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
