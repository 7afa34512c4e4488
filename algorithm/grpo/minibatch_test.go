package grpo_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tinker"
)

// watched is an engine that says what it is asked for.
type watched struct {
	tinker.Service

	forward, gradient, step func() // after these; nil does nothing
	snapshot, save          func() // before these; nil does nothing
}

func (w watched) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	client, err := w.Service.CreateModel(ctx, p)
	return watchedClient{client, w}, err
}

type watchedClient struct {
	tinker.TrainingClient

	service watched
}

func (c watchedClient) Forward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := c.TrainingClient.Forward(ctx, p)
	if c.service.forward != nil && err == nil {
		c.service.forward()
	}
	return res, err
}

func (c watchedClient) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := c.TrainingClient.ForwardBackward(ctx, p)
	if c.service.gradient != nil && err == nil {
		c.service.gradient()
	}
	return res, err
}

func (c watchedClient) OptimStep(ctx context.Context, p tinker.AdamParams) (tinker.OptimStepResult, error) {
	res, err := c.TrainingClient.OptimStep(ctx, p)
	if c.service.step != nil && err == nil {
		c.service.step()
	}
	return res, err
}

func (c watchedClient) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	return c.saving(ctx, c.service.save, p, c.TrainingClient.SaveWeights)
}

func (c watchedClient) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	return c.saving(ctx, c.service.snapshot, p, c.TrainingClient.SaveWeightsForSampler)
}

func (watchedClient) saving(ctx context.Context, before func(), p tinker.SaveWeightsParams,
	save func(context.Context, tinker.SaveWeightsParams) (string, error),
) (string, error) {
	if before != nil {
		before()
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return save(ctx, p)
}

// holding makes rollouts of training wait if hold says so, and gives each second one of a group the reward 1, the others 0.
func (w *world) holding(hold func(ctx context.Context, tag algorithm.Tag) error) {
	agent := w.agent
	w.workers = 16
	w.do = func(ctx context.Context, task agl.Task) (agl.Result, error) {
		var tag algorithm.Tag
		if err := rawjson.Unmarshal(task.Rollout.Metadata, &tag); err != nil {
			return agl.Result{}, err
		}
		if err := hold(ctx, tag); err != nil {
			return agl.Result{}, err
		}
		res, err := agent(ctx, task)
		if err != nil {
			return res, err
		}
		attrs, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: float64(tag.Sample % 2)})
		res.Spans = append(res.Spans, newSpan(task, 3, agl.SpanAnnotation, attrs))
		return res, err
	}
}

// TestMinibatchesWhileSampling: with two minibatches the engine computes the gradient of the first groups while the others are sampled,
// and takes an optimizer step, if there are two; a run without minibatches would wait forever.
func TestMinibatchesWhileSampling(t *testing.T) {
	t.Parallel()
	for _, updates := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", nil)
			ready := make(chan struct{})
			begin := sync.OnceFunc(func() { close(ready) })
			w.holding(func(ctx context.Context, tag algorithm.Tag) error {
				if tag.Step > 1 || tag.Group < 2 {
					return nil
				}
				select {
				case <-ready:
				case <-ctx.Done():
				}
				return ctx.Err()
			})
			cfg := w.config("")
			cfg.Async.Minibatches, cfg.Minibatches = 2, updates
			if updates == 1 {
				cfg.Service = watched{Service: w.service, gradient: begin}
			} else {
				cfg.Service = watched{Service: w.service, step: begin}
			}
			var rec recorder
			rec.attach(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := w.run(ctx, t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
				t.Fatal(err)
			}
			for _, s := range rec.steps {
				if s.Groups != 4 || s.Rollouts != 16 || s.ResponseTokens != 32 || s.GroupsUsed+s.GroupsSkipped != 4 || s.Updates != updates || s.Staleness.Max != 0 {
					t.Errorf("step %d: %+v, want 4 groups of 4 rollouts in %d updates", s.Step, s, updates)
				}
			}
			noneLive(t, w)
		})
	}
}

// TestMinibatchesSameGradient: replies of equal length have the same gradient in one part or in four.
func TestMinibatchesSameGradient(t *testing.T) {
	t.Parallel()
	run := func(minibatches int) (grpo.StepReport, [][]float32) {
		w := newWorld(t, "", nil)
		cfg := w.config(t.TempDir())
		cfg.Steps, cfg.Async.Minibatches = 1, minibatches
		cfg.KL.Coefficient = 0.1
		cfg.Correction.Kind = grpo.TokenTIS
		var rec recorder
		rec.attach(&cfg)
		g := newGRPO(t, cfg)
		if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t)}); err != nil {
			t.Fatal(err)
		}
		s := rec.steps[0]
		s.Seconds, s.TokensPerSecond, s.ResourcesID = grpo.Seconds{}, 0, ""
		return s, probe(t, w.service, g.Summary().Weights)
	}
	near := cmp.Options{
		cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }),
		cmp.Comparer(func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-3 }),
	}
	whole, want := run(0)
	one, same := run(1)
	parts, got := run(4)
	if diff := cmp.Diff(whole, one) + cmp.Diff(want, same); diff != "" {
		t.Errorf("one minibatch (-without +with):\n%s", diff)
	}
	if diff := cmp.Diff(whole, parts, near); diff != "" {
		t.Errorf("report (-whole +parts):\n%s", diff)
	}
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("weights (-whole +parts):\n%s", diff)
	}
	if whole.Updates != 1 || whole.Drift == nil {
		t.Errorf("nothing was trained: %+v", whole)
	}
}

// TestMinibatchesInterrupted: a run that ends between two optimizer steps of a step keeps no checkpoint of its weights, which are not
// those of the step before. One that ends before the first keeps them.
func TestMinibatchesInterrupted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"forward": 1, "gradient": 1, "step": 0} {
		free := map[string]int{"forward": 1, "gradient": 1, "step": 2}[name] // groups of step 2 that come
		w := newWorld(t, "", nil)
		cfg := w.config(t.TempDir())
		cfg.Steps, cfg.Async.Minibatches, cfg.Minibatches, cfg.Correction.Kind = 4, 4, 2, grpo.TokenTIS
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.holding(func(ctx context.Context, tag algorithm.Tag) error {
			if tag.Step != 2 || tag.Group < free {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		gradients, steps, forwards := 0, 0, 0
		count := func(kind string, n *int, at int) func() {
			return func() {
				if *n++; name == kind && *n == at {
					cancel()
				}
			}
		}
		cfg.Service = watched{Service: w.service, forward: count("forward", &forwards, 5), gradient: count("gradient", &gradients, 5), step: count("step", &steps, 3)}
		g := newGRPO(t, cfg)
		if err := w.run(ctx, t, g, agl.AlgorithmInput{Train: tasks(t)}); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want context.Canceled", err)
		}
		if s := g.Summary(); s.Step != 1 || s.Checkpoint != want {
			t.Errorf("%s: interrupted in step %d with a checkpoint of step %d, want in step 2 with that of step %d", name, s.Step+1, s.Checkpoint, want)
		}
	}
}

func TestMinibatchesRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	for text, change := range map[string]func(*grpo.Config){
		"grpo: Async.Minibatches is -1, must be at least 0":                                                       func(c *grpo.Config) { c.Async.Minibatches = -1 },
		"grpo: Async.Minibatches is 3, must divide PromptsPerStep (4)":                                            func(c *grpo.Config) { c.Async.Minibatches = 3 },
		"grpo: Async.Minibatches is 2, must be a multiple of Minibatches (4), the optimizer steps that they make": func(c *grpo.Config) { c.Async.Minibatches, c.Minibatches = 2, 4 },
	} {
		cfg := w.config("")
		change(&cfg)
		if _, err := grpo.New(cfg); !errors.Is(err, agl.ErrInvalid) || err.Error() != text {
			t.Errorf("error %v, want %q", err, text)
		}
	}
}
