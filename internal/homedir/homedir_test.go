package homedir_test

import (
	"path/filepath"
	"testing"

	"github.com/agl-go/agl/internal/homedir"
)

func TestExpand(t *testing.T) { //nolint:paralleltest // it sets the home directory of the process
	home := t.TempDir()
	t.Setenv("HOME", home)
	for path, want := range map[string]string{
		"":           "",
		"runs":       "runs",
		"a/~/b":      "a/~/b",
		"./~a":       "./~a",
		"~":          home,
		"~/":         home,
		"~/runs/one": filepath.Join(home, "runs/one"),
		"~/../x":     filepath.Join(home, "../x"),
	} {
		if got, err := homedir.Expand(path); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"~bob/runs": `got "~bob/runs", whose ~bob is not expanded, must be a path such as ~/NAME, /NAME or ./NAME`,
		"~bob":      `got "~bob", whose ~bob is not expanded, must be a path such as ~/NAME, /NAME or ./NAME`,
	} {
		if got, err := homedir.Expand(path); err == nil || err.Error() != want {
			t.Errorf("%q: got %q, %v, want %s", path, got, err, want)
		}
	}
	t.Setenv("HOME", "")
	if got, err := homedir.Expand("~/a"); err == nil {
		t.Errorf("got %q without a home directory", got)
	}
}
