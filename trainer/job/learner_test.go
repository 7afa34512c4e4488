package job

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer/tracker"
)

// restarting are runs of a store that is away for the first change of a run.
type restarting struct {
	agl.Runs

	changes int
}

func (r *restarting) UpdateRun(ctx context.Context, p agl.UpdateRunParams) (agl.Run, error) {
	if r.changes++; r.changes == 1 {
		return agl.Run{}, agl.Errorf(agl.CodeUnavailable, "the store restarts")
	}
	return r.Runs.UpdateRun(ctx, p)
}

// A store that is away exactly when the algorithm ends is told of it when all parts have ended.
func TestStoreAwayAtTheEnd(t *testing.T) {
	t.Parallel()
	runs := &restarting{Runs: agl.RunsOf(memorytest.Open(t))}
	stored, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: "ru-1"})
	if err != nil {
		t.Fatal(err)
	}
	l := &learner{stored: stored}
	l.began.Store(true)
	tracker.NewSet(slog.New(slog.DiscardHandler), stored).Close(t.Context(), nil)
	l.ended.Store(true)
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run, err := runs.GetRun(t.Context(), "ru-1"); err != nil || run.Status != agl.RunFinished {
		t.Errorf("the run is %+v, %v; want it finished", run, err)
	}
}

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
