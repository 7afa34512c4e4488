package job

import (
	"context"
	"log/slog"
	"testing"

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
