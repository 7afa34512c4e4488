package tracker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer/tracker"
)

// A run that resumes repeats the steps after its last checkpoint, and its series has each once.
func TestRunResumes(t *testing.T) {
	t.Parallel()
	runs := agl.RunsOf(memorytest.Open(t))
	start := agl.StartRunParams{RunID: "ru-1", Name: "calculator", Algorithm: "grpo"}
	process := func(failed error, lines ...string) agl.Run {
		t.Helper()
		run, err := tracker.NewRun(t.Context(), runs, start)
		if err != nil {
			t.Fatal(err)
		}
		set := tracker.NewSet(slog.New(slog.DiscardHandler), run)
		for _, line := range lines {
			set.Line(t.Context(), []byte(line))
		}
		set.Close(t.Context(), failed)
		got, err := runs.GetRun(t.Context(), "ru-1")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	cut := process(fmt.Errorf("step 3: %w", context.Canceled), `{"step":1,"loss":3,"time":{"update":0.5}}`, `{"step":2,"loss":2}`)
	if cut.Status != agl.RunInterrupted || cut.Error != "step 3: context canceled" || !cut.EndTime.Valid {
		t.Errorf("interrupted: %+v", cut)
	}
	if failed := process(errors.New(strings.Repeat("ü", 3000)), `{"step":2,"loss":2.5}`); failed.Status != agl.RunFailed || len(failed.Error) != 5000 {
		t.Errorf("failed: %s with %d bytes", failed.Status, len(failed.Error))
	}
	ended := process(nil, `{"step":2,"loss":2.5}`, `{"step":3,"loss":1}`)
	if ended.Status != agl.RunFinished || ended.Error != "" || ended.Step != agl.Some(3) || ended.StartTime != cut.StartTime {
		t.Errorf("ended: %+v", ended)
	}
	wantSeries(t, runs, "1 map[loss:3 time/update:0.5], 2 map[loss:2.5], 3 map[loss:1]")
}

// away are runs of a store that is away for a while.
type away struct {
	agl.Runs

	mu   sync.Mutex
	err  error
	back time.Time // UpdateRun succeeds from then on; zero means never
}

func (a *away) set(err error, back time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err, a.back = err, back
}

func (a *away) state() (back time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.back, a.err
}

func (a *away) AddRunMetrics(ctx context.Context, p agl.AddRunMetricsParams) (agl.Run, error) {
	if _, err := a.state(); err != nil {
		return agl.Run{}, err
	}
	return a.Runs.AddRunMetrics(ctx, p)
}

func (a *away) UpdateRun(ctx context.Context, p agl.UpdateRunParams) (agl.Run, error) {
	if back, err := a.state(); err != nil && (back.IsZero() || time.Now().Before(back)) {
		return agl.Run{}, err
	}
	return a.Runs.UpdateRun(ctx, p)
}

// wantSeries checks all metrics of the run ru-1.
func wantSeries(t *testing.T, runs agl.Runs, want string) {
	t.Helper()
	page, err := runs.QueryRunMetrics(t.Context(), agl.QueryRunMetricsParams{RunID: "ru-1"})
	if err != nil {
		t.Fatal(err)
	}
	var series []string
	for _, m := range page.Items {
		series = append(series, fmt.Sprint(m.Step, m.Values))
	}
	if got := strings.Join(series, ", "); got != want {
		t.Errorf("series %s, want %s", got, want)
	}
}

// What the store does not take while it is away, such as a database that restarts, is sent with the next line, or at the end. What it refuses is not.
func TestRunOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	runs := &away{Runs: agl.RunsOf(memorytest.Open(t))}
	run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: "ru-1"})
	if err != nil {
		t.Fatal(err)
	}
	set := tracker.NewSet(slog.New(slog.DiscardHandler), run)
	unavailable := agl.Errorf(agl.CodeUnavailable, "the database system is starting up")
	for _, step := range []struct {
		err  error
		line string
	}{
		{nil, `{"step":1,"loss":5}`},
		{unavailable, `{"step":2,"loss":4}`},
		{context.DeadlineExceeded, `{"step":3,"loss":3,"beside":{"step":2,"validation":{"pass_rate":0.5}}}`},
		{nil, `{"step":4,"loss":2}`},
		{agl.Errorf(agl.CodeInvalid, "refused"), `{"step":5,"loss":1}`},
		{unavailable, `{"step":6,"loss":0}`},
		{nil, `{"step":7,"` + strings.Repeat("n", agl.MaxRunMetricBytes+1) + `":1}`}, // must not take the step before with it
	} {
		runs.set(step.err, time.Time{})
		set.Line(t.Context(), []byte(step.line))
	}
	runs.set(nil, time.Time{})
	set.Close(t.Context(), nil)
	wantSeries(t, runs, "1 map[loss:5], 2 map[loss:4 validation/pass_rate:0.5], 3 map[loss:3], 4 map[loss:2], 6 map[loss:0]")
}

// A store that is away exactly at the end of a run is told of it later; one that stays away is an error.
func TestRunEndsInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := &away{Runs: agl.RunsOf(memorytest.Open(t))}
		run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: "ru-1"})
		if err != nil {
			t.Fatal(err)
		}
		unanswered := agl.Errorf(agl.CodeUnavailable, "the server does not answer")
		runs.set(unanswered, time.Time{})
		if err := run.Close(t.Context(), errors.New("boom")); !errors.Is(err, agl.ErrUnavailable) {
			t.Fatalf("got %v, want that the store is away", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := run.CloseAgain(ctx); !errors.Is(err, agl.ErrUnavailable) || ctx.Err() == nil {
			t.Errorf("got %v, want that the store is still away after 10s", err)
		}
		runs.set(unanswered, time.Now().Add(3*time.Second))
		if err := errors.Join(run.CloseAgain(t.Context()), run.CloseAgain(t.Context())); err != nil {
			t.Error(err)
		}
		if got, err := runs.GetRun(t.Context(), "ru-1"); err != nil || got.Status != agl.RunFailed || got.Error != "boom" {
			t.Errorf("%+v, %v; want it failed with boom", got, err)
		}
	})
}

// TestRunAlone: a run is refused while another one that needs the queue is heard from. What was refused leaves nothing, or a failed run
// that can be resumed, and what other programs started is in nobody's way.
func TestRunAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := agl.RunsOf(memorytest.Open(t))
		start := func(id, metadata string) *tracker.Run {
			t.Helper()
			run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: id, Name: "name-of-" + id, Metadata: []byte(metadata)})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // no two start at the same time
			return run
		}
		start("metrics", `{}`)
		const exclusive = `{"exclusive":true}`
		first := start("first", exclusive)
		if err := first.Alone(t.Context(), asIs); err != nil {
			t.Fatalf("beside a run that only keeps metrics: %v", err)
		}
		first.Heartbeat(t.Context(), slog.New(slog.DiscardHandler))
		time.Sleep(time.Hour) // it has long steps

		err := start("second", exclusive).Alone(t.Context(), asIs)
		if !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "run first (name-of-first)") {
			t.Errorf("a second run: %v, want a conflict that names the first", err)
		}
		if _, err := runs.GetRun(t.Context(), "second"); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("the refused run is in the store: %v", err)
		}
		if err := first.Close(t.Context(), context.Canceled); err != nil {
			t.Fatal(err)
		}
		killed := start("third", exclusive)
		if err := killed.Alone(t.Context(), asIs); err != nil {
			t.Fatalf("after the end of the first: %v", err)
		}
		if err := start("first", exclusive).Alone(t.Context(), asIs); !errors.Is(err, agl.ErrConflict) {
			t.Errorf("the first resumes beside the third: %v, want a conflict", err)
		}
		if got, err := runs.GetRun(t.Context(), "first"); err != nil || got.Status != agl.RunFailed || !strings.Contains(got.Error, "run third") {
			t.Errorf("the refused run: %+v, %v, want it failed for the third", got, err)
		}
		if err := start("third", exclusive).Alone(t.Context(), asIs); err != nil {
			t.Errorf("the third resumes at once after it was killed: %v", err)
		}
		time.Sleep(time.Minute)
		if err := start("first", exclusive).Alone(t.Context(), asIs); err != nil {
			t.Errorf("the third was killed a minute ago: %v", err)
		}
	})
}

func asIs(err error) error { return err }

// TestRunSuspended: a run that was silent for so long that another one was started says so when it is heard from again.
func TestRunSuspended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := &away{Runs: agl.RunsOf(memorytest.Open(t))}
		start := func(runs agl.Runs, id string) (*tracker.Run, *strings.Builder) {
			t.Helper()
			run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: id, Metadata: []byte(`{"exclusive":true}`)})
			if err == nil {
				err = run.Alone(t.Context(), asIs)
			}
			if err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			run.Heartbeat(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			return run, &log
		}
		suspended, log := start(runs, "suspended")
		runs.set(agl.Errorf(agl.CodeUnavailable, "suspended"), time.Now().Add(3*time.Minute))
		time.Sleep(2 * time.Minute)
		other, quiet := start(runs.Runs, "other")
		time.Sleep(10 * time.Minute)
		if err := errors.Join(suspended.Close(t.Context(), nil), other.Close(t.Context(), nil)); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "other=other"); n != 1 || quiet.Len() > 0 {
			t.Errorf("%d warnings of the other run, want one, and none there: %q\n%s", n, quiet, log)
		}
	})
}

// TestRunsAtTheSameTime: of two runs that have both started, the earlier goes on.
func TestRunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := agl.RunsOf(memorytest.Open(t))
		var started []*tracker.Run
		for _, id := range []string{"a", "b"} {
			run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: id, Metadata: []byte(`{"exclusive":true}`)})
			if err != nil {
				t.Fatal(err)
			}
			started = append(started, run)
			time.Sleep(time.Millisecond)
		}
		if first, second := started[0].Alone(t.Context(), asIs), started[1].Alone(t.Context(), asIs); first != nil || !errors.Is(second, agl.ErrConflict) {
			t.Errorf("the first: %v, the second: %v; want the first to go on", first, second)
		}
	})
}

// TestRunOfACopiedFolder: a run is refused in a copy of its folder while it goes on in the other.
func TestRunOfACopiedFolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := agl.RunsOf(memorytest.Open(t))
		check := func(output string) error {
			return tracker.NotElsewhere(t.Context(), runs, "run", output, time.Now())
		}
		if err := check("/here"); err != nil {
			t.Errorf("a new run: %v", err)
		}
		run, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: "run", Metadata: []byte(`{"exclusive":true,"output":"/there"}`)})
		if err != nil {
			t.Fatal(err)
		}
		run.Heartbeat(t.Context(), slog.New(slog.DiscardHandler))
		time.Sleep(time.Hour)
		err = check("/here")
		if !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "under way with the output folder /there") {
			t.Errorf("beside it: %v, want a conflict that names its folder", err)
		}
		if err := check("/there"); err != nil {
			t.Errorf("it resumes at once after it was killed: %v", err)
		}
		if err := run.Close(t.Context(), context.Canceled); err != nil {
			t.Fatal(err)
		}
		if err := check("/here"); err != nil {
			t.Errorf("after its end: %v", err)
		}
		if _, err := tracker.NewRun(t.Context(), runs, agl.StartRunParams{RunID: "run"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := check("/here"); err != nil {
			t.Errorf("it was killed a minute ago: %v", err)
		}
	})
}
