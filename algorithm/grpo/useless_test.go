package grpo_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/tinker"
)

// meddler changes what an engine answers to forward passes, which it counts from 1.
type meddler struct {
	tinker.Service

	edit  func(n int64, res *tinker.ForwardResult) error
	calls atomic.Int64
}

func (m *meddler) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	client, err := m.Service.CreateModel(ctx, p)
	return &meddled{client, m}, err
}

type meddled struct {
	tinker.TrainingClient

	by *meddler
}

func (c *meddled) Forward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := c.TrainingClient.Forward(ctx, p)
	return res, errors.Join(err, c.by.edit(c.by.calls.Add(1), &res))
}

func (c *meddled) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := c.TrainingClient.ForwardBackward(ctx, p)
	return res, errors.Join(err, c.by.edit(c.by.calls.Add(1), &res))
}

// TestUselessAnswers: an engine that answers with what no update can be made of ends the run before the weights are published, and the error
// says so.
func TestUselessAnswers(t *testing.T) {
	t.Parallel()
	nan := func(_ int64, res *tinker.ForwardResult) error {
		last := res.Logprobs[0]
		last[len(last)-1] = float32(math.NaN())
		return nil
	}
	const token = "the engine returned the log-probability NaN of token 2 of sequence 0 of the batch"
	for name, tc := range map[string]struct {
		edit   func(int64, *tinker.ForwardResult) error
		config func(*grpo.Config)
		want   string
	}{
		"token":              {nan, func(*grpo.Config) {}, token},
		"token, corrected":   {nan, func(c *grpo.Config) { c.Correction.Kind = grpo.TokenTIS }, token},
		"token, rejected":    {nan, func(c *grpo.Config) { c.Correction.Kind = grpo.Geometric }, token},
		"token of reference": {nan, func(c *grpo.Config) { c.KL.Coefficient = 0.1 }, token},
		"loss": {func(_ int64, res *tinker.ForwardResult) error {
			res.Loss = math.Inf(1)
			return nil
		}, func(*grpo.Config) {}, "the engine returned the loss +Inf"},
		"nothing": {func(_ int64, res *tinker.ForwardResult) error {
			res.Logprobs = nil
			return nil
		}, func(*grpo.Config) {}, "the engine returned log-probabilities for 0 sequences, but was given"},
		"nothing any more, sampling ahead": {func(n int64, _ *tinker.ForwardResult) error {
			if n > 5 {
				return errors.New("the engine is gone")
			}
			return nil
		}, func(c *grpo.Config) {
			c.Async, c.ValidateEvery = grpo.Async{MaxStaleness: 2, Minibatches: 2}, 1
		}, "forward and backward: the engine is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			cfg := w.config(t.TempDir())
			cfg.Service = &meddler{Service: w.service, edit: tc.edit}
			tc.config(&cfg)
			g := newGRPO(t, cfg)
			train := tasks(t, task{Digit: 1, Fails: 2}, task{Digit: 2, Fails: 2}) // from which each step learns
			err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: train, Val: tasks(t)})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
			if want := g.Summary().Step + 1; len(w.published) != want {
				t.Errorf("%d versions were published after %d steps, want %d", len(w.published), want-1, want)
			}
			noneLive(t, w)
		})
	}
}

// panickySource panics when it is asked for tasks.
type panickySource struct{ grpo.Source }

func (panickySource) Next(context.Context, int) ([]grpo.Task, error) { panic("boom") }

// TestPanics: an adapter or a source that panics ends the run with an error, and not the process.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*grpo.Config){
		"adapter": func(c *grpo.Config) {
			c.Adapter = agl.AdapterFunc[adapter.Merged](func([]agl.Span) (adapter.Merged, error) { panic("boom") })
		},
		"source": func(c *grpo.Config) {
			source, err := grpo.NewDatasetSource(tasks(t), 1)
			if err != nil {
				t.Error(err)
			}
			c.Source = panickySource{source}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			cfg := w.config("")
			set(&cfg)
			err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)})
			if err == nil || !strings.Contains(err.Error(), "panic: boom, at ") || !strings.Contains(err.Error(), "useless_test.go:") {
				t.Errorf("got %v, want the panic and where it was", err)
			}
			noneLive(t, w)
		})
	}
}

// TestNeverCalled: a run, or a role, whose model no agent calls learns nothing, and says so, although rewards differ.
func TestNeverCalled(t *testing.T) {
	t.Parallel()
	var count atomic.Int64
	do := func(context.Context, agl.Task) (agl.Result, error) {
		return agl.RewardResult(float64(count.Add(1))), nil
	}
	const want = "nothing was learned: no model call was recorded in 16 rollouts"
	w := newWorld(t, "", nil)
	w.do = do
	cfg := w.config("")
	cfg.Steps = 1
	var rec recorder
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	if len(rec.warnings) != 1 || !strings.Contains(rec.warnings[0].Message, want) {
		t.Errorf("warnings %+v, want %q", rec.warnings, want)
	}
	c := newCouple(t, "", nil)
	c.fault = "lonely"
	cfg = c.config("")
	cfg.Steps = 1
	rec.warnings = nil
	rec.attach(&cfg)
	if err := c.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	if len(rec.warnings) != 1 || !strings.HasPrefix(rec.warnings[0].Message, "role down: ") || !strings.Contains(rec.warnings[0].Message, want) {
		t.Errorf("warnings %+v, want %q of the role down", rec.warnings, want)
	}
}

// TestAsyncBounds: bounds that leave no choice change nothing but the order.
func TestAsyncBounds(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]grpo.Async{
		"further than the run": {MaxStaleness: 50}, "one group at a time": {MaxStaleness: 2, Concurrency: 1},
		"one at a time, wait": {MaxStaleness: 2, Concurrency: 1, OnStale: admission.Wait}, "one at a time, synchronous": {Concurrency: 1, OnStale: admission.Drop},
		"a part for each group": {MaxStaleness: 1, Minibatches: 4},
	} {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Async = async
		g := newGRPO(t, cfg)
		if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t)}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil {
			t.Fatal(err)
		}
		if s := g.Summary(); s.Step != 6 || len(page.Items) != 96 || s.Totals.Rollouts != 96 {
			t.Errorf("%s: %d rollouts were started and %+v are counted after %d steps, want 96 after 6", name, len(page.Items), s.Totals, s.Step)
		}
		noneLive(t, w)
	}
}

// TestWorse: where a model that had rewards has none any more, the warning does not say that it never had any.
func TestWorse(t *testing.T) {
	t.Parallel()
	w, rec := newWorld(t, "", nil), &recorder{}
	cfg := w.config("")
	cfg.Steps = 3
	cfg.Schedule = algorithm.Schedule{Peak: 1e3, Floor: 1e3}
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Digit: 1})}); err != nil {
		t.Fatal(err)
	}
	if first, last := rec.steps[0], rec.steps[2]; first.RewardMean == 0 || last.RewardMean != 0 {
		t.Fatalf("got the rewards %v and %v, want a model that got worse", first.RewardMean, last.RewardMean)
	}
	const want = "every reward of the 16 rollouts is 0, and earlier ones were not"
	if len(rec.warnings) != 1 || !strings.Contains(rec.warnings[0].Message, want) {
		t.Errorf("warnings %+v, want %q", rec.warnings, want)
	}
}
