package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The parent of each new directory is synced, from the top; the parents of existing ones are not.
func TestMkdirAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var got []string
	deep := filepath.Join(dir, "a", "b", "c")
	note := func(parent string) error {
		name, err := filepath.Rel(dir, parent)
		got = append(got, name)
		return err
	}
	for range 2 {
		if err := mkdirAll(deep, note); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{".", "a", filepath.Join("a", "b")}, got); diff != "" {
		t.Errorf("synced (-want +got):\n%s", diff)
	}
	if err := MkdirAll(filepath.Join(deep, "d")); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "a")} {
		if err := MkdirAll(bad); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A complete file gets its name also where the file system has no hard links, and never that of another file.
func TestPublish(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]func(path, name string) error{
		"with hard links": os.Link,
		"without hard links": func(path, name string) error {
			return &os.LinkError{Op: "link", Old: path, New: name, Err: syscall.EPERM}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			partial, name := filepath.Join(dir, "a.partial"), filepath.Join(dir, "a")
			for n, want := range []error{nil, fs.ErrExist} {
				if err := os.WriteFile(partial, []byte{'0' + byte(n)}, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := publish(partial, name, link); !errors.Is(err, want) {
					t.Errorf("got error %v, want %v", err, want)
				}
				if got, err := os.ReadFile(name); err != nil || string(got) != "0" {
					t.Errorf("the file holds %q, %v, want what was published first", got, err)
				}
			}
			if _, err := os.Stat(partial); err != nil {
				t.Errorf("the file whose name was taken is gone: %v", err)
			}
			if err := publish(filepath.Join(dir, "missing"), filepath.Join(dir, "b"), link); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a missing file: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "b")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a failed publication leaves a file: %v", err)
			}
		})
	}
}
