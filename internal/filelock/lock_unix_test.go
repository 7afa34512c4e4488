//go:build unix

package filelock_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agl-go/agl/internal/filelock"
)

func try(t *testing.T, path string) (*os.File, bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	free, err := filelock.Try(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, free
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	for range 2 {
		f, free := try(t, path)
		if !free {
			t.Fatal("a released lock is held")
		}
		other, free := try(t, path)
		if free {
			t.Error("the lock was taken twice")
		}
		copied, err := unix.Dup(int(f.Fd())) // as a fork has it before its exec
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(copied)
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		if err := filelock.Release(f); err != nil {
			t.Error(err)
		}
	}
}
