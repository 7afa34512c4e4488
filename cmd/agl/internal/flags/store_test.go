package flags_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
)

// TestWrapSilentServer: the error of a server that takes a request and does not answer in time names the server, and where a run
// is read without one. That of an interrupted command is left alone.
func TestWrapSilentServer(t *testing.T) {
	t.Parallel()
	f := flags.StoreOrRun{Store: flags.Store{StoreURL: "http://trainer:4747"}}
	err := f.Wrap(agl.Errorf(agl.CodeUnavailable, "Statistics: the store's server does not answer: %w", context.DeadlineExceeded))
	if text := err.Error(); !strings.HasPrefix(text, "store http://trainer:4747: Statistics: ") || !strings.Contains(text, "runs/agl") {
		t.Errorf("got %q", text)
	}
	if err := f.Wrap(context.Canceled); !errors.Is(err, context.Canceled) || err.Error() != context.Canceled.Error() {
		t.Errorf("an interrupted command: %v", err)
	}
	failed := &console.OutputError{Err: errors.New("the disk is full")}
	if err := f.Wrap(failed); err == nil || err.Error() != failed.Error() {
		t.Errorf("output that cannot be written is no error of the store: %v", err)
	}
}
