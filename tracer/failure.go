package tracer

import (
	"context"

	"github.com/agl-go/agl"
)

// ModelFailure returns how the last model call of the trace in ctx failed, or
// nil if it did not, or none was made. It lets a runner tell an agent that
// failed from one whose model did, whatever SDK the agent uses.
func ModelFailure(ctx context.Context) *agl.OutcomeError {
	if t, ok := FromContext(ctx); ok {
		return t.failure.Load()
	}
	return nil
}
