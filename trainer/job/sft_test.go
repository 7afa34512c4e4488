package job

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/runfile"
)

func sftOf(t *testing.T, r *Result) algorithms.SFTSummary {
	t.Helper()
	s, ok := r.Summary.(algorithms.SFTSummary)
	if !ok {
		t.Fatalf("the summary is %T", r.Summary)
	}
	return s
}

// A run learns from the best of its own rollouts, and another one from what the first has left.
func TestSFT(t *testing.T) {
	t.Parallel()
	tiny := runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}}
	own := grpoJob(t, tiny)
	own.File.Algorithm = &algorithms.SFT{Config: sft.Config{
		TrainingConfig: algorithm.TrainingConfig{Schedule: algorithm.Schedule{Peak: 1e-2, Floor: 1e-2}},
		Filter:         sft.Filter{Best: 1}, Rounds: 2, Tasks: 2, Samples: 4, Steps: 20,
	}}
	var shown bytes.Buffer
	own.Out = &shown
	first, err := Run(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	s := sftOf(t, first)
	if s.Steps != 40 || s.Selected == nil || s.Selected.Rollouts != 8 || s.Selected.Kept != 2 || s.Selected.KeptMean < s.Selected.RewardMean {
		t.Fatalf("the run came to %+v", s)
	}
	for _, text := range []string{"round 1 learns from 2 of 8 rollouts, of 2 tasks", "round 2 learns", "step 40/40  loss "} {
		if !strings.Contains(shown.String(), text) {
			t.Errorf("progress lacks %q:\n%s", text, shown.String())
		}
	}
	report, err := os.ReadFile(first.Report)
	if err != nil || !strings.Contains(string(report), "40 optimizer steps, 22 rollouts made.") || !strings.Contains(string(report), "curves/loss.svg") {
		t.Errorf("report (%v):\n%s", err, report)
	}
	best, err := os.ReadFile(filepath.Join(first.Output, "best", "best.json"))
	if err != nil || !strings.Contains(string(best), `"weights_file"`) {
		t.Errorf("best (%v): %s", err, best)
	}

	pupil := grpoJob(t, tiny)
	pupil.File.Algorithm = &algorithms.SFT{
		Config: sft.Config{Steps: 30, Filter: sft.Filter{MinReward: agl.Some(0.01)}},
		From:   &keys.Source{Database: "sqlite:" + filepath.Join(first.Output, keys.DatabaseFile)},
	}
	driver, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(first.Output, keys.DatabaseFile)}) // the other run may go on, and has its database for itself
	if err != nil {
		t.Fatal(err)
	}
	second, err := Run(t.Context(), pupil)
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := sftOf(t, second); s.Steps != 30 || s.Selected.Rollouts != 16 || s.Selected.Kept == 0 || s.Rollouts != 4 || second.Best.Weights == "" {
		t.Errorf("the pupil came to %+v of %+v", s, s.Selected)
	}

	none := grpoJob(t, tiny)
	none.File.Algorithm = &algorithms.SFT{Config: sft.Config{Steps: 1}, From: &keys.Source{Database: "sqlite:" + filepath.Join(t.TempDir(), "none.db")}}
	if _, err := Run(t.Context(), none); !errors.Is(err, agl.ErrNotFound) || !strings.Contains(err.Error(), "algorithm.sft.from: there are no rollouts") {
		t.Errorf("no database: %v", err)
	}
}

// What is read of a database beside its server is what its store says.
func TestStoredRollouts(t *testing.T) {
	t.Parallel()
	made := grpoJob(t, runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}})
	made.File.Algorithm.(*algorithms.GRPO).Steps = 1
	result := runJob(t, made)
	path := filepath.Join(result.Output, keys.DatabaseFile)
	rollouts := algorithms.StoredRollouts(keys.Source{Database: "sqlite:" + path}, made.LookupEnv, nil, made.Logger)
	driver, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.New(t.Context(), store.Config{Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	var want, got []algorithm.Episode
	for episode, err := range sft.Stored(s)(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, episode)
	}
	for episode, err := range rollouts(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if episode.Rollout.Mode == agl.ModeTrain { // the other skips the rest
			got = append(got, episode)
		}
	}
	if diff := gocmp.Diff(want, got, gocmp.Transformer("text", func(v jsontext.Value) string { return string(v) })); diff != "" || len(want) != 6 {
		t.Errorf("of the store (-) and of the database (+), %d rollouts:\n%s", len(want), diff)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
