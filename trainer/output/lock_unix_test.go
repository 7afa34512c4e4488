//go:build unix

package output

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder is free when its run is over, whatever process is being started meanwhile.
func TestUnlock(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), lockFile)
	for range 2 {
		lock, err := takeLock(name, "here")
		if err != nil {
			t.Fatal(err)
		}
		copied, err := unix.Dup(int(lock.Fd())) // as a fork has it before its exec
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Folder{lock: lock}).Close(); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(copied)
	}
}
