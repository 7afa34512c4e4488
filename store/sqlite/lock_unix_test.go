//go:build unix

package sqlite

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A database is free when its server is gone, whatever process is being started meanwhile.
func TestRelease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	for range 2 {
		l, err := takeLock(path)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := unix.Dup(int(l.file.Fd())) // as a fork has it before its exec
		if err != nil {
			t.Fatal(err)
		}
		l.release()
		defer unix.Close(copied)
	}
}
