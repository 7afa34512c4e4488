package job

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/panics"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
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

// An algorithm that panics, or that ends its goroutine, has failed in the store, too.
func TestAlgorithmPanics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func()
		want string
	}{
		"panic":  {func() { panic("boom") }, "panic: boom, at "},
		"goexit": {runtime.Goexit, panics.ErrGoexit.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := shellJob(t, `echo '{"reward": 1}'`)
			cfg.File.Algorithm = &ending{end: test.end}
			if _, err := Run(t.Context(), cfg); err == nil || strings.Count(err.Error(), test.want) != 1 {
				t.Errorf("got %v, want %q once", err, test.want)
			}
			if run := storedRun(t, cfg.File.Output); run.Status != agl.RunFailed || !strings.Contains(run.Error, test.want) {
				t.Errorf("the store says %s, %q, want it failed with %q", run.Status, run.Error, test.want)
			}
		})
	}
}

// ending is an algorithm that has a rollout and does not return.
type ending struct {
	algorithms.Baseline

	end func()
}

func (e *ending) New(algorithms.Parts) (algorithms.Run, error) { return endingRun{e}, nil }

type endingRun struct{ *ending }

// Run implements [algorithms.Run].
func (e endingRun) Run(ctx context.Context, in agl.AlgorithmInput) error {
	_, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
	e.end()
	return err
}

// Result implements [algorithms.Run].
func (endingRun) Result() algorithms.Result { return algorithms.Result{} }

// A finished run that is resumed with a corrected run file while another run is under way in its store stays finished there.
func TestFinishedRunBesideAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memorytest.Open(t)
		runs := agl.RunsOf(s)
		start := func(id string) *tracker.Run {
			t.Helper()
			run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: id, Metadata: []byte(`{"exclusive":true}`)})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // what the store did not have is deleted, by its times
			return run
		}
		if err := start("ru-1").Close(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		start("ru-2")
		cfg := Config{File: &runfile.File{Algorithm: &algorithms.Baseline{}, Store: runfile.Store{URL: "http://127.0.0.1:1"}}, Logger: slog.New(slog.DiscardHandler)}
		l := &learner{cfg: cfg, runID: "ru-1", outDir: t.TempDir(), earlier: &output.Record{State: output.StateFinished}}
		if err := l.Start(t.Context(), s); !errors.Is(err, agl.ErrConflict) {
			t.Fatalf("got %v, want a conflict", err)
		}
		if run, err := runs.GetRun(t.Context(), "ru-1"); err != nil || run.Status != agl.RunFinished || run.Error != "" {
			t.Errorf("the run is %+v, %v; want it finished", run, err)
		}
	})
}
