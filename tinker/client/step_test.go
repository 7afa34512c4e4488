package client_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// TestStepIsQueued: all requests of a step are submitted before the first result is asked for, and results and weights are those of
// one call after the other.
func TestStepIsQueued(t *testing.T) {
	t.Parallel()
	engine, err := policy.NewService(tiny(""))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := engine.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	wantForward, err := plain.ForwardBackward(t.Context(), data(0))
	if err != nil {
		t.Fatal(err)
	}
	wantStep, err := plain.OptimStep(t.Context(), adam)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg  client.Config
		want []string
	}{
		"one request": {client.Config{}, []string{"/forward_backward", "/optim_step", "/retrieve_future", "/retrieve_future"}},
		"in parts": {client.Config{ChunkData: 2}, []string{
			"/forward_backward", "/forward_backward", "/forward_backward", "/optim_step",
			"/retrieve_future", "/retrieve_future", "/retrieve_future", "/retrieve_future",
		}},
		"protobuf": {client.Config{Encoding: engines.Protobuf}, []string{"/forward_backward", "/optim_step", "/retrieve_future", "/retrieve_future"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var paths []string
			w := newWorld(t, "", tc.cfg, server.Config{Order: engines.Strict}, func(c tinkertest.Call) tinkertest.Fault {
				paths = append(paths, c.Path)
				return tinkertest.None
			})
			defer w.close(t)
			m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			before := len(paths)
			forward, step, err := tinker.Step(t.Context(), m, data(0), adam)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, paths[before:]); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(wantForward.Losses, forward.Losses); diff != "" || forward.Loss != wantForward.Loss {
				t.Errorf("%s: the loss is %v, want %v\n%s", name, forward.Loss, wantForward.Loss, diff)
			}
			if diff := cmp.Diff(wantForward.Logprobs, forward.Logprobs); diff != "" {
				t.Errorf("%s: log-probabilities (-want +got):\n%s", name, diff)
			}
			if tc.cfg.ChunkData == 0 && (step.GradNorm != wantStep.GradNorm || step.Step != wantStep.Step) { // parts are added in another order
				t.Errorf("%s: the step is %+v, want %+v", name, step, wantStep)
			}
		})
	}
}

// broken is an engine whose model refuses batches.
type broken struct {
	tinker.Service

	refuses atomic.Bool
}

type brokenModel struct {
	tinker.TrainingClient

	of *broken
}

func (b *broken) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	m, err := b.Service.CreateModel(ctx, p)
	return brokenModel{m, b}, err
}

func (m brokenModel) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	if m.of.refuses.Load() {
		return tinker.ForwardResult{}, agl.Errorf(agl.CodeExhausted, "out of memory")
	}
	return m.TrainingClient.ForwardBackward(ctx, p)
}

// TestStepInDoubt: a step behind a batch that failed, or that ran twice, is not trusted; a checkpoint makes the model whole again.
func TestStepInDoubt(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]tinkertest.Config{
		"the batch fails": {},
		// The server forgets the result of the batch when it has that of the step.
		"the result is gone": {Server: server.Config{MaxResults: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			engine, err := policy.NewService(tiny(""))
			if err != nil {
				t.Fatal(err)
			}
			b := &broken{Service: engine}
			var asked atomic.Int64
			cfg.NewService = func() (tinker.Service, error) { return b, nil }
			var late atomic.Bool
			cfg.Fault = func(c tinkertest.Call) tinkertest.Fault {
				if late.Load() && c.Path == "/retrieve_future" {
					if asked.Add(1) == 1 {
						return tinkertest.Delay
					}
				}
				return tinkertest.None
			}
			fake, c := connect(t, client.Config{}, cfg)
			defer func() {
				if err := errors.Join(c.Close(), fake.Close()); err != nil {
					t.Error(err)
				}
			}()
			m, err := c.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "before"})
			if err != nil {
				t.Fatal(err)
			}
			b.refuses.Store(cfg.Server.MaxResults == 0)
			late.Store(true)
			if _, _, err := tinker.Step(t.Context(), m, data(0), adam); !errors.Is(err, client.ErrInDoubt) {
				t.Fatalf("%s: error is %v, want ErrInDoubt", name, err)
			}
			if _, err := m.OptimStep(t.Context(), adam); !errors.Is(err, client.ErrInDoubt) {
				t.Errorf("%s: the next call gave %v, want ErrInDoubt", name, err)
			}
			b.refuses.Store(false)
			if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
				t.Fatal(err)
			}
			// One after the other: a server that keeps one result may forget that of the batch again.
			if _, err := m.ForwardBackward(t.Context(), data(0)); err != nil {
				t.Fatal(err)
			}
			step, err := m.OptimStep(t.Context(), adam)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := engine.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			_, want, err := tinker.Step(t.Context(), fresh, data(0), adam)
			if err != nil || want.GradNorm != step.GradNorm {
				t.Errorf("%s: the step after the checkpoint is %+v, want %+v (%v)", name, step, want, err)
			}
		})
	}
}

// TestStepOfRefusedOptimizer: an optimizer step that was never queued leaves the gradient of the batch, for another try.
func TestStepOfRefusedOptimizer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refuses := false
		w := newWorld(t, "", client.Config{RetryFor: -1}, server.Config{}, func(c tinkertest.Call) tinkertest.Fault {
			if refuses && c.Path == "/optim_step" {
				return tinkertest.Refuse
			}
			return tinkertest.None
		})
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		refuses = true
		forward, _, err := tinker.Step(t.Context(), m, data(0), adam)
		if !errors.Is(err, agl.ErrExhausted) || len(forward.Logprobs) != len(data(0).Data) {
			t.Fatalf("error is %v with %d results, want ErrExhausted and those of the batch", err, len(forward.Logprobs))
		}
		refuses = false
		step, err := m.OptimStep(t.Context(), adam)
		if err != nil || step.GradNorm == 0 {
			t.Errorf("the step is %+v, %v; want one along the gradient", step, err)
		}
		invalid := data(0)
		invalid.Data = slices.Clone(invalid.Data[:1])
		invalid.Data[0].Targets = []int32{-1}
		if _, _, err := tinker.Step(t.Context(), m, invalid, adam); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("bad data: %v", err)
		}
		if _, _, err := tinker.Step(t.Context(), m, data(0), tinker.AdamParams{LearningRate: -1}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("bad parameters: %v", err)
		}
	})
}
