package tracker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

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
	page, err := runs.QueryRunMetrics(t.Context(), agl.QueryRunMetricsParams{RunID: "ru-1"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range page.Items {
		got = append(got, fmt.Sprint(m.Step, m.Values))
	}
	if want := "1 map[loss:3 time/update:0.5], 2 map[loss:2.5], 3 map[loss:1]"; strings.Join(got, ", ") != want {
		t.Errorf("series %s, want %s", strings.Join(got, ", "), want)
	}
}
