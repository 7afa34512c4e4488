package job

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestWatchRunners has rollouts wait without a runner, then with one, then without one again.
func TestWatchRunners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memorytest.Open(t)
		notices := make(chan string, 9)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			watchRunners(ctx, s, "http://trainer:4747", func(text string) { notices <- text })
		}()
		wait := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if len(notices) != want {
				t.Errorf("%d notices, want %d", len(notices), want)
			}
		}
		wait(time.Minute, 0) // nothing to do
		if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: slices.Repeat([]agl.EnqueueRollout{{Mode: agl.ModeTrain}}, 3)}); err != nil {
			t.Fatal(err)
		}
		wait(29*time.Second, 0)
		wait(time.Minute, 1)
		result, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{WorkerID: agl.Some("w"), Limit: 1})
		claimed := result.Rollouts
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		wait(time.Minute, 1) // an agent takes its time
		status := agl.AttemptSucceeded
		if _, err := s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: claimed[0].RolloutID, AttemptID: claimed[0].Attempt.AttemptID, Status: &status}); err != nil {
			t.Fatal(err)
		}
		wait(29*time.Second, 1)
		wait(time.Minute, 2)
		<-notices
		if want := "warning: 2 rollouts wait, and no runner has taken one for 30s: start runners that use the store http://trainer:4747 (agl train FILE --role runner, or agl runner)"; <-notices != want {
			t.Errorf("the second notice is not %q", want)
		}
		stop()
		<-ended
	})
}
