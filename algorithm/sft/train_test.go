package sft_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/tinkertest"
)

const vocab = 12

// counting returns demonstrations of the sequences that count up from a start.
func counting() []tinker.Datum {
	var data []tinker.Datum
	for start := range int32(vocab) {
		var d tinker.Datum
		for i := range int32(6) {
			d.Input = append(d.Input, (start+i)%vocab)
			d.Targets = append(d.Targets, (start+i+1)%vocab)
		}
		data = append(data, d)
	}
	return data
}

func newService(t *testing.T, dir string) *policy.Service {
	t.Helper()
	service, err := policy.NewService(policy.Config{Vocab: vocab, Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16, Workers: 1, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func config(t *testing.T, service tinker.Service, out string) sft.TrainConfig {
	t.Helper()
	source, err := sft.NewShuffled(counting(), 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	return sft.TrainConfig{
		Service: service, Model: tinker.CreateModelParams{Seed: 3}, Source: source,
		Steps: 60, Schedule: algorithm.Schedule{Peak: 2e-2, Warmup: 5}, OutDir: out, CheckpointEvery: 20,
	}
}

// Training that is done has not failed because the engine cannot unload the model.
func TestTrainOnEngineThatCannotUnload(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := config(t, tinkertest.Keeper{Service: newService(t, "")}, "")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if result, err := sft.Train(t.Context(), cfg); err != nil || result.Weights == "" {
		t.Errorf("%+v, %v", result, err)
	}
	if !strings.Contains(log.String(), "the engine has not unloaded a model") {
		t.Errorf("no warning: %s", log.String())
	}
}

// useless is an engine whose loss is NaN from a step on.
type useless struct {
	tinker.Service

	from int
}

func (u useless) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	client, err := u.Service.CreateModel(ctx, p)
	return &uselessModel{TrainingClient: client, left: u.from}, err
}

type uselessModel struct {
	tinker.TrainingClient

	left int
}

func (m *uselessModel) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := m.TrainingClient.ForwardBackward(ctx, p)
	if m.left--; m.left <= 0 {
		res.Loss = math.NaN()
	}
	return res, err
}

// TestTrainOnUselessWeights: a loss that is not a number ends the training, and makes no checkpoint.
func TestTrainOnUselessWeights(t *testing.T) {
	t.Parallel()
	cfg := config(t, useless{newService(t, t.TempDir()), 40}, t.TempDir())
	_, err := sft.Train(t.Context(), cfg)
	if !errors.Is(err, tinker.ErrUseless) || !strings.Contains(err.Error(), "step 40: the weights have become useless: the engine returned the loss NaN") {
		t.Errorf("got %v", err)
	}
	kept, err := filepath.Glob(filepath.Join(cfg.OutDir, "*.json"))
	if err != nil || len(kept) != 1 || filepath.Base(kept[0]) != "checkpoint-00000020.json" {
		t.Errorf("got the checkpoints %q, %v, want that of step 20", kept, err)
	}
}

func TestTrainLearns(t *testing.T) {
	t.Parallel()
	cfg := config(t, newService(t, ""), "")
	var losses []float64
	cfg.OnStep = func(r sft.StepReport) {
		losses = append(losses, r.Loss)
		if r.Tokens != 48 || r.Steps != 60 || r.Step != len(losses) {
			t.Errorf("report %+v: want 48 tokens, step %d of 60", r, len(losses))
		}
	}
	result, err := sft.Train(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) != 60 || losses[0] < 2 || losses[0] > 4 {
		t.Errorf("%d losses, the first %v: want 60, beginning near ln %d = %.2f", len(losses), losses[0], vocab, math.Log(vocab))
	}
	if result.Loss > 0.2 || result.Loss != losses[59] {
		t.Errorf("final loss %v (last step %v), want at most 0.2", result.Loss, losses[59])
	}
	if _, err := cfg.Service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: result.Weights}); err != nil {
		t.Errorf("the weights cannot be sampled: %v", err)
	}
}

// TestTrainResumes interrupts a run, or kills it after a checkpoint, and expects what an uninterrupted one gives, bit for bit.
func TestTrainResumes(t *testing.T) {
	t.Parallel()
	t.Run("interrupted", func(t *testing.T) { t.Parallel(); testTrainResumes(t, 47) })
	t.Run("killed", func(t *testing.T) { t.Parallel(); testTrainResumes(t, 40) })
}

func testTrainResumes(t *testing.T, at int) {
	t.Helper()
	var want []sft.StepReport
	whole := config(t, newService(t, ""), "")
	whole.OnStep = func(r sft.StepReport) { want = append(want, timeless(r)) }
	if _, err := sft.Train(t.Context(), whole); err != nil {
		t.Fatal(err)
	}

	weights, out := t.TempDir(), t.TempDir()
	ctx, kill := context.WithCancel(t.Context())
	first := config(t, newService(t, weights), out)
	first.OnStep = func(r sft.StepReport) {
		if r.Step == 47 {
			kill()
		}
	}
	if _, err := sft.Train(ctx, first); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run gave %v, want context.Canceled", err)
	}

	if at == 40 {
		if err := os.Remove(filepath.Join(out, "checkpoint-00000047.json")); err != nil {
			t.Fatal(err)
		}
	}
	var got []sft.StepReport
	from := -1
	second := config(t, newService(t, weights), out)
	second.OnStart = func(done int) { from = done }
	second.OnStep = func(r sft.StepReport) { got = append(got, timeless(r)) }
	result, err := sft.Train(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if from != at {
		t.Errorf("resumed at step %d, want %d", from, at)
	}
	if diff := cmp.Diff(want[at:], got); diff != "" {
		t.Errorf("steps after the resumption (-uninterrupted +resumed):\n%s", diff)
	}

	again := config(t, newService(t, weights), out)
	again.OnStep = func(sft.StepReport) { t.Error("a finished run trained on") }
	third, err := sft.Train(t.Context(), again)
	if err != nil || third.Weights != result.Weights {
		t.Errorf("third run: %v, %v; want the weights %s at once", third, err, result.Weights)
	}
	files, err := os.ReadDir(out)
	if err != nil || len(files) != 2 {
		t.Errorf("%d checkpoints (%v), want the last 2", len(files), err)
	}
}

func timeless(r sft.StepReport) sft.StepReport {
	r.Duration = 0
	return r
}

func TestTrainRefusesOtherRun(t *testing.T) {
	t.Parallel()
	weights, out := t.TempDir(), t.TempDir()
	if _, err := sft.Train(t.Context(), config(t, newService(t, weights), out)); err != nil {
		t.Fatal(err)
	}
	other := config(t, newService(t, weights), out)
	other.Model.Seed = 4
	_, err := sft.Train(t.Context(), other)
	want := "sft: " + filepath.Join(out, "checkpoint-00000060.json") +
		` belongs to another run: model_seed is "4" here and "3" there; resume with the same settings or use another directory`
	if !errors.Is(err, agl.ErrConflict) || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestTrainRejectsConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(*sft.TrainConfig)
		want string
	}{
		{"no service", func(c *sft.TrainConfig) { c.Service = nil }, "sft: Service is nil; an engine is required"},
		{"no source", func(c *sft.TrainConfig) { c.Source = nil }, "sft: Source is nil; data is required"},
		{"no steps", func(c *sft.TrainConfig) { c.Steps = 0 }, "sft: Steps is 0, must be at least 1"},
		{"no rate", func(c *sft.TrainConfig) { c.Schedule.Peak = math.NaN() }, "sft: Schedule.Peak is NaN, must be a positive number"},
		{"high floor", func(c *sft.TrainConfig) { c.Schedule.Floor = 1 }, "sft: Schedule.Floor is 1, must be between 0 and Peak (0.02)"},
		{"warm-up", func(c *sft.TrainConfig) { c.Schedule.Warmup = -1 }, "sft: Schedule.Warmup is -1, must not be negative"},
		{"checkpoints", func(c *sft.TrainConfig) { c.CheckpointEvery = -1 }, "sft: CheckpointEvery is -1, must be at least 1"},
		{"adam", func(c *sft.TrainConfig) { c.Adam.Beta1 = 1 }, "sft: Adam: beta1: 1 is not below 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, newService(t, ""), "")
			tc.edit(&cfg)
			_, err := sft.Train(t.Context(), cfg)
			if !errors.Is(err, agl.ErrInvalid) || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestShuffledRejects(t *testing.T) {
	t.Parallel()
	if _, err := sft.NewShuffled(nil, 8, 1); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("no data: got %v, want ErrInvalid", err)
	}
	bad := counting()
	bad[3].Targets = bad[3].Targets[1:]
	_, err := sft.NewShuffled(bad, 8, 1)
	if want := "sft: demonstration 3: targets: 5 values for 6 input tokens; the lengths must be equal"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestShuffledFingerprint(t *testing.T) {
	t.Parallel()
	base := fingerprint(t, counting(), 8, 1)
	if again := fingerprint(t, counting(), 8, 1); again != base {
		t.Errorf("the same source has fingerprints %s and %s", base, again)
	}
	weighted := counting()
	weighted[0].Weights = []float32{0, 1, 1, 1, 1, 1}
	for name, other := range map[string]string{
		"seed": fingerprint(t, counting(), 8, 2), "size": fingerprint(t, counting(), 9, 1),
		"data": fingerprint(t, counting()[1:], 8, 1), "weights": fingerprint(t, weighted, 8, 1),
	} {
		if other == base {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}

func fingerprint(t *testing.T, data []tinker.Datum, size int, seed uint64) string {
	t.Helper()
	s, err := sft.NewShuffled(data, size, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s.Fingerprint()
}
