package job

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/agl-go/agl/execution"
)

// The record of a run names what has ended it: not that its algorithm was cancelled, when something else failed, nor the
// end of the run, when the algorithm failed by itself.
func TestReason(t *testing.T) {
	t.Parallel()
	denied, diverged := errors.New("runner 0: denied"), errors.New("the loss is not a number")
	signal := &execution.InterruptError{}
	for name, test := range map[string]struct{ cause, err, want error }{
		"success":                               {nil, nil, nil},
		"success at the moment of an interrupt": {&execution.StopError{Cause: signal}, nil, nil},
		"a failure":                             {nil, diverged, diverged},
		"a failure at the end":                  {&execution.StopError{Cause: denied}, diverged, diverged},
		"a runner's failure":                    {&execution.StopError{Cause: denied}, fmt.Errorf("wait: %w", context.Canceled), denied},
		"an interrupt":                          {&execution.StopError{Cause: signal}, context.Canceled, signal},
		"cancelled":                             {context.Canceled, context.Canceled, context.Canceled},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if test.cause != nil {
			cancel(test.cause)
		}
		if got := reason(ctx, test.err); got != test.want { //nolint:errorlint // the very error
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		cancel(nil)
	}
}
