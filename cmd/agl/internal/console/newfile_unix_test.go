//go:build unix

package console

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Who waits for the reader of a named pipe can be interrupted.
func TestPipeThatNobodyReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	interrupt := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupt)
	err := new(Console).WriteFile(ctx, path, func(io.Writer) error {
		t.Error("something is written")
		return nil
	})
	if !errors.Is(err, interrupt) {
		t.Errorf("got %v, want %v", err, interrupt)
	}
	// Whoever still opens the pipe is released.
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}
