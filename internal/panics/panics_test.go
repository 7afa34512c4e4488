package panics_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/agl-go/agl/internal/panics"
)

func TestCatch(t *testing.T) {
	t.Parallel()
	var missing *struct{ name string }
	tests := map[string]struct {
		f    func() error
		want string
		is   error
	}{
		"text":       {f: func() error { panic("boom") }, want: "panic: boom"},
		"error":      {f: func() error { panic(fs.ErrNotExist) }, want: "panic: file does not exist", is: fs.ErrNotExist},
		"by runtime": {f: func() error { return errors.New(missing.name) }, want: "panic: runtime error: invalid memory address or nil pointer dereference"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := panics.Catch(test.f)
			p, ok := errors.AsType[*panics.Error](err)
			if !ok || err.Error() != test.want || !errors.Is(err, test.is) && test.is != nil {
				t.Fatalf("got %v, want %s", err, test.want)
			}
			if !strings.Contains(p.Where, "panics_test.go:") || !strings.Contains(p.Stack, "panics_test.go:") {
				t.Errorf("where: %q; stack: %s", p.Where, p.Stack)
			}
			if got, want := panics.Located(err).Error(), test.want+", at "+p.Where; got != want {
				t.Errorf("located: got %s, want %s", got, want)
			}
			if got, want := panics.Located(panics.Located(err)).Error(), test.want+", at "+p.Where; got != want {
				t.Errorf("located twice: got %s, want %s", got, want)
			}
		})
	}
	if err := panics.Located(panics.Catch(func() error { return fs.ErrExist })); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want the function's own error", err)
	}
}
