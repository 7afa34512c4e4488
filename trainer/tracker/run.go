package tracker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
)

// Run keeps the metrics in a store.
type Run struct {
	runs agl.Runs
	id   string
}

// NewRun starts the run, or goes on with it if the store has it.
func NewRun(ctx context.Context, runs agl.Runs, p agl.StartRunParams) (*Run, error) {
	started, err := runs.StartRun(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("start the run in the store: %w", err)
	}
	return &Run{runs, started.RunID}, nil
}

// ID returns the id of the run.
func (r *Run) ID() string { return r.id }

// Log implements [Tracker].
func (r *Run) Log(ctx context.Context, step int, values map[string]float64) error {
	_, err := r.runs.AddRunMetrics(ctx, agl.AddRunMetricsParams{RunID: r.id, Metrics: []agl.RunMetrics{{Step: step, Values: values}}})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Close implements [Tracker].
func (r *Run) Close(ctx context.Context, failed error) error {
	status, message := agl.RunFinished, ""
	if failed != nil {
		status, message = agl.RunFailed, failed.Error()
		if _, interrupted := errors.AsType[*execution.InterruptError](failed); interrupted || agl.IsContextError(failed) {
			status = agl.RunInterrupted
		}
	}
	const most = 5000 // bytes; a store takes no longer ones
	message = strings.ToValidUTF8(message[:min(len(message), most)], "")
	if _, err := r.runs.UpdateRun(ctx, agl.UpdateRunParams{RunID: r.id, Status: &status, Error: &message}); err != nil {
		return fmt.Errorf("end the run in the store: %w", err)
	}
	return nil
}
