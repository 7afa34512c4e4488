// Package runnertest runs runners in the background of a test.
package runnertest

import (
	"context"
	"testing"

	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/runner"
)

// Serve starts a runner that runs until the test ends, and fails the test if Run returns an error.
func Serve(tb testing.TB, cfg runner.Config) {
	tb.Helper()
	r, err := runner.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(background.Start(context.WithoutCancel(tb.Context()), func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			tb.Errorf("runner: %v", err)
		}
	}))
}
