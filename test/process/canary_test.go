package process

import (
	"os"
	"path/filepath"
	"testing"
)

// failures counts what a test would have been told.
type failures struct {
	testing.TB

	errors int
}

func (f *failures) Helper() {}

func (f *failures) Errorf(string, ...any) { f.errors++ }

// A secret in a file, also in a folder below, is found, and only a secret is.
func TestSearch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for want, text := range []string{"nothing", "\x00\xff key-" + Canary + "\x00"} {
		if err := os.WriteFile(filepath.Join(below, "file"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := failures{TB: t}
		if Search(&f, dir); f.errors != want {
			t.Errorf("%q: %d failures, want %d", text, f.errors, want)
		}
	}
}
