package sqlite

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
)

// bump commits something. during runs before the commit.
func bump(t *testing.T, d *Driver, during func()) error {
	t.Helper()
	d.writing.Lock()
	defer d.writing.Unlock()
	c, err := d.connected(t.Context())
	if err != nil {
		return err
	}
	return d.commit(t.Context(), c, func() error {
		if during != nil {
			during()
		}
		return d.state.write(t.Context(), c)
	}, func() {})
}

// The log may go with the last connection, and only with it.
func TestLogOfNextConnection(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reader, before, after bool // a reader is open; the log is moved away before the connection is closed, or after that
		lost                  bool
	}{
		"last connection":      {},
		"reader":               {reader: true},
		"moved before":         {before: true, lost: true},
		"reader, moved before": {reader: true, before: true, lost: true},
		"reader, moved after":  {reader: true, after: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.lost && runtime.GOOS == "windows" {
				t.Skip("an open log cannot be moved")
			}
			d := openTest(t, Config{})
			if tc.reader {
				if err := d.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			move := func() {
				if err := os.Rename(logName(d.path), d.path+".away"); err != nil {
					t.Fatal(err)
				}
			}
			if tc.before {
				move()
			}
			d.writing.Lock()
			d.retire(d.writer)
			d.writing.Unlock()
			if tc.after {
				move()
			}
			for range 2 {
				err := bump(t, d, nil)
				if tc.lost && (!errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "write-ahead log")) || !tc.lost && err != nil {
					t.Errorf("got error %v, want one about the log: %t", err, tc.lost)
				}
			}
			if err := d.Close(t.Context()); (err != nil) != tc.lost {
				t.Error(err)
			}
		})
	}
}

// A store that cannot look its file up after a commit says that it must be restarted.
func TestUnsure(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the directory of an open file cannot be moved")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := openTest(t, Config{Path: filepath.Join(dir, "agl.db")})
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "restart the server") || !strings.Contains(err.Error(), d.path) {
			t.Errorf("got error %v, want one that says to restart the server", err)
		}
	}
	refused(bump(t, d, func() {
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}))
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	refused(bump(t, d, nil))
	refused(d.Close(t.Context()))
}

// An identity is found in a log wherever it is.
func TestInLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	const identity = "0123456789ab"
	for _, at := range []int{0, 100, 1<<20 - 12, 1<<20 - 6, 1 << 20, 2<<20 - 20, 3<<20 - 1} {
		data := append(bytes.Repeat([]byte{'0'}, at), identity...)
		if err := os.WriteFile(logName(path), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := inLog(path, identity); !found || err != nil {
			t.Errorf("at %d: found %t, error %v", at, found, err)
		}
		if found, err := inLog(path, "0123456789ac"); found || err != nil {
			t.Errorf("at %d: another one: found %t, error %v", at, found, err)
		}
	}
}

// A file that could not be read is looked at again, and a caller that leaves meanwhile does not keep it from being read.
func TestLooksAgain(t *testing.T) {
	t.Parallel()
	for name, unreadable := range map[string]bool{"caller leaves": false, "unreadable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, backup := filepath.Join(dir, "agl.db"), filepath.Join(dir, "backup.db")
			d, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			db, err := OpenDatabase(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Backup(t.Context(), backup); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(backup)
			if err != nil {
				t.Fatal(err)
			}
			past := time.Now().Add(-time.Hour)
			put := func(data []byte) {
				t.Helper()
				if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, past, past)); err != nil {
					t.Fatal(err)
				}
			}
			look := func(ctx context.Context) error {
				d.writing.Lock()
				defer d.writing.Unlock()
				return d.present(ctx, false)
			}
			if unreadable {
				put(bytes.Repeat([]byte{'x'}, len(data)))
				if err := look(t.Context()); err != nil {
					t.Error(err)
				}
				put(data)
			} else {
				put(data)
				left, leave := context.WithCancel(t.Context())
				leave()
				_ = look(left)
			}
			if err := bump(t, d, nil); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "overwritten") {
				t.Errorf("a write into another database: error %v", err)
			}
			if err := d.Close(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
				t.Errorf("close: error %v", err)
			}
		})
	}
}
