package job

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/output"
)

// A run file without a program is run with an agent of this process, stopped, and resumed.
func TestTrainAndResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "agl.yaml")
	for name, text := range map[string]string{
		"tasks.jsonl": tasks,
		"agl.yaml":    "agent: {concurrency: 1}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done atomic.Int32
	agent := agl.AgentFunc(func(_ context.Context, task agl.Task) (agl.Result, error) {
		var line struct {
			N float64 `json:"n"`
		}
		if err := task.DecodeInput(&line); err != nil {
			return agl.Result{}, err
		}
		if done.Add(1) == 3 {
			stop()
		}
		return agl.RewardResult(line.N / 10), nil
	})
	first, err := Train(ctx, file, agent)
	if err == nil || first == nil || first.State != output.StateInterrupted {
		t.Fatalf("the stopped run: %+v, %v", first, err)
	}
	if want := filepath.Join(dir, "runs", "agl"); first.Output != want || !strings.Contains(first.Resume, want) {
		t.Errorf("the run is in %s and resumed with %s, want %s", first.Output, first.Resume, want)
	}
	second, err := Resume(t.Context(), first.Output, agent)
	if err != nil {
		t.Fatal(err)
	}
	s := baselineOf(t, second)
	if second.State != output.StateFinished || second.Output != first.Output || s.Train.Rollouts != 6 || s.Train.RewardMean < 0.349 || s.Train.RewardMean > 0.351 {
		t.Errorf("the resumed run: %+v, %+v", second.Record, s.Train)
	}
	if _, err := Train(t.Context(), file, nil); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "agent: got nil") {
		t.Errorf("no agent: %v", err)
	}
	if _, err := Resume(t.Context(), dir, agent); agl.ErrorCode(err) != agl.CodeNotFound {
		t.Errorf("resume of a folder without a run: %v", err)
	}
}
