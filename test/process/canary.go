package process

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"
)

// Canary is a part of every key, token and secret variable that a suite gives to its processes.
// Nothing that they print or leave behind may contain it.
const Canary = "canary-9c41e7a2"

// secretVariable is a secret of servers that no test uses. It is set only to be searched for.
const secretVariable = "AGL_OIDC_CLIENT_SECRET"

// Dir returns a directory that is removed after the test. The test fails if a file in it has a
// secret.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	tb.Cleanup(func() { Search(tb, dir) })
	return dir
}

// Search fails a test if a file below a directory contains a secret.
func Search(tb testing.TB, dir string) {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Errorf("look for secrets: %v", err)
		return
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		text, err := fs.ReadFile(root.FS(), path)
		Silent(tb, path, text)
		return ignoreGone(err)
	})
	if err != nil {
		tb.Errorf("look for secrets: %v", err)
	}
}

// ignoreGone returns nil if the file was removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Silent fails a test if a text, such as the output of a process, contains a secret.
func Silent(tb testing.TB, where string, text []byte) {
	tb.Helper()
	const around = 100
	if at := bytes.Index(text, []byte(Canary)); at >= 0 {
		tb.Errorf("%s has a secret: %q", where, text[max(0, at-around):min(len(text), at+around)])
	}
}
