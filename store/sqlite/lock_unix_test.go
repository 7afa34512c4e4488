//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agl-go/agl"
)

// A name of something that is no file is refused before anything is created beside it.
func TestNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, pipe := filepath.Join(dir, "folder"), filepath.Join(dir, "pipe")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{folder: "is a directory, name a file", pipe: "is a device, a pipe or a socket, name a regular file"} {
		_, err := Open(t.Context(), Config{Path: path})
		if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("Open: error %v, want %q", err, want)
		}
		d, err := OpenDatabase(t.Context(), path)
		if err == nil {
			_, err = d.Status(t.Context())
		}
		if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("Status: error %v, want %q", err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, error %v, want what was there", entries, err)
	}
}

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
