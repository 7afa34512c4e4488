package process

import (
	"os"
	"path/filepath"
	"testing"
)

// failures counts the failures that a test would have reported.
type failures struct {
	testing.TB

	errors int
}

func (f *failures) Helper() {}

func (f *failures) Errorf(string, ...any) { f.errors++ }

// A secret in a file, even in a folder below, must be found, and nothing else.
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
