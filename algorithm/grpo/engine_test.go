package grpo_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
	"github.com/agl-go/agl/tinker/wire"
)

// Every loss trains, over HTTP too, as it does on the engine of this process.
func TestLosses(t *testing.T) {
	t.Parallel()
	losses := tinker.LossNames()[1:]
	if testing.Short() {
		losses = losses[:1] // they differ in arithmetic
	}
	for _, loss := range losses {
		t.Run(string(loss), func(t *testing.T) {
			t.Parallel()
			st := memorytest.Open(t)
			r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, nil)
			_, steps, err := r.process(t, st, "", func(c *grpo.Config, _ *speller) {
				c.Loss = tinker.Loss{Name: loss}
				c.PlainAdvantage = loss == tinker.DRO
				c.Steps, c.GroupSize, c.Minibatches = 30, 8, 2
			})
			if err != nil {
				t.Fatal(err)
			}
			first, last := mean(steps[:5]), mean(steps[25:])
			if last < first+0.2 {
				t.Errorf("the reward went from %v to %v", first, last)
			}
		})
	}
}

func mean(steps []grpo.StepReport) float64 {
	sum := 0.0
	for _, s := range steps {
		sum += s.RewardMean / float64(len(steps))
	}
	return sum
}

// A loss that the engine lacks is refused before there is any rollout.
func TestRefusesLoss(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	has := []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling}
	r := newRemote(t, tinkertest.EngineConfig{Losses: has}, server.Config{}, client.Config{}, nil)
	_, _, err := r.process(t, st, "", func(c *grpo.Config, _ *speller) { c.Loss.Name = tinker.CISPO })
	if !errors.Is(err, agl.ErrUnimplemented) || !strings.Contains(err.Error(), `the engine has no loss "cispo", only ["cross_entropy" "importance_sampling"]`) {
		t.Errorf("error %v", err)
	}
	r = newRemote(t, tinkertest.EngineConfig{Losses: []tinker.LossName{tinker.ImportanceSampling}}, server.Config{}, client.Config{}, nil)
	_, _, err = r.process(t, st, "", func(c *grpo.Config, _ *speller) { c.KL.Coefficient = 0.1 })
	if !errors.Is(err, agl.ErrUnimplemented) || !strings.Contains(err.Error(), `the engine has no loss "cross_entropy", only ["importance_sampling"]`) {
		t.Errorf("error %v", err)
	}
	// One that averages has no gradient of what is not linear in the advantages.
	cc := client.Config{Engine: &engines.Engine{Normalization: engines.DatumMean, ImmutableSnapshots: true, Losses: tinker.LossNames()}}
	r = newRemote(t, tinkertest.EngineConfig{DatumMean: true}, server.Config{}, cc, nil)
	_, _, err = r.process(t, st, "", func(c *grpo.Config, _ *speller) { c.Loss.Name, c.PlainAdvantage = tinker.DRO, true })
	if !errors.Is(err, agl.ErrUnimplemented) || !strings.Contains(err.Error(), `the engine has no loss "dro"`) {
		t.Errorf("error %v", err)
	}
	page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil || len(page.Items) > 0 {
		t.Errorf("%d rollouts were enqueued (%v)", len(page.Items), err)
	}
}

// trained is the steps and the end of a run over HTTP.
func trained(t *testing.T, ec tinkertest.EngineConfig, sc server.Config, cc client.Config, edit func(*grpo.Config, *speller)) (steps []grpo.StepReport, end ending, r *remote) {
	t.Helper()
	r = newRemote(t, ec, sc, cc, nil)
	summary, steps, err := r.process(t, memorytest.Open(t), t.TempDir(), edit)
	if err != nil {
		t.Fatal(err)
	}
	return steps, r.ending(t, summary), r
}

// TestMeanEngine: where the engine takes the mean of its data as SkyRL does, the same run gives the same weights to
// float tolerance as on one that sums.
func TestMeanEngine(t *testing.T) {
	t.Parallel()
	losses := []tinker.LossName{tinker.ImportanceSampling, tinker.PPO, tinker.CISPO}
	if testing.Short() {
		losses = losses[:1] // they differ in arithmetic
	}
	for _, loss := range losses {
		t.Run(string(loss), func(t *testing.T) {
			t.Parallel()
			edit := func(c *grpo.Config, agent *speller) {
				c.Loss.Name, c.Minibatches, c.GroupSize = loss, 2, 4
				agent.stop = []int32{0, 1} // so that replies differ in length
				agent.frozen = true        // one token that is drawn otherwise, by the last bit, makes another run
			}
			sc := server.Config{Order: engines.Ignored, HideEngine: true}
			_, want, _ := trained(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, edit)
			cc := client.Config{Engine: &engines.Engine{Normalization: engines.DatumMean, ImmutableSnapshots: true, Losses: []tinker.LossName{tinker.CrossEntropy, loss, tinker.ImportanceSampling}}}
			_, got, _ := trained(t, tinkertest.EngineConfig{DatumMean: true}, sc, cc, edit)
			if d := distance(want.Probe, got.Probe); d > 1e-4 || d == 0 {
				t.Errorf("log-probabilities differ by %v, want rounding", d)
			}
			// That the engine does average is seen by who does not know it.
			cc.Engine.Normalization = engines.Sum
			_, other, _ := trained(t, tinkertest.EngineConfig{DatumMean: true}, sc, cc, edit)
			if d := distance(want.Probe, other.Probe); d < 1e-2 {
				t.Errorf("without a correction log-probabilities differ by %v only", d)
			}
		})
	}
}

// distance is the largest difference of two probes.
func distance(a, b [][]float32) float64 {
	most := 0.0
	for k := range a {
		for i := range a[k] {
			most = max(most, math.Abs(float64(a[k][i]-b[k][i])))
		}
	}
	return most
}

// TestNewestOnly: on an engine whose snapshots change, a run samples none but the newest and none beside training, and
// ends as elsewhere.
func TestNewestOnly(t *testing.T) {
	t.Parallel()
	kl := func(c *grpo.Config, _ *speller) { c.KL.Coefficient = 0.01 }
	_, want, _ := trained(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, kl)
	// The engine alone minds, so that it is the run's order that is seen and not the client's gate.
	_, got, r := trained(t, tinkertest.EngineConfig{NewestOnly: true}, server.Config{}, client.Config{Engine: &engines.Engine{ImmutableSnapshots: true}}, kl)
	if list := r.engine.Violations(); len(list) > 0 {
		t.Error(list)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestKL: the penalty holds the model near its reference, and there is none at the first step. Off, there is no reference.
func TestKL(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of other tests")
	}
	run := func(coefficient float64) []grpo.StepReport {
		steps, _, _ := trained(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, func(c *grpo.Config, _ *speller) {
			c.GroupSize, c.Steps, c.KL.Coefficient = 6, 40, coefficient
		})
		return steps
	}
	plain := run(0)
	free := run(1e-9) // measures, and moves nothing that counts
	held := run(1)
	if free[0].KL != 0 || held[0].KL != 0 {
		t.Errorf("KL of the first step: %v, %v; want 0", free[0].KL, held[0].KL)
	}
	last := func(steps []grpo.StepReport) (kl float64) {
		for _, s := range steps[len(steps)-10:] {
			kl += s.KL / 10
		}
		return kl
	}
	if a, b := last(free), last(held); a < 0.2 || b > a/2 {
		t.Errorf("KL at the end is %v, and %v with a penalty; want at most half", a, b)
	}
	for _, s := range plain {
		if s.KL != 0 {
			t.Errorf("step %d: KL %v without a reference", s.Step, s.KL)
		}
	}
	// Off, there is no second model either.
	for coefficient, want := range map[float64]int{0: 1, 0.1: 2} {
		models := 0
		r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, func(c tinkertest.Call) tinkertest.Fault {
			if c.Path == wire.CreateModel {
				models++
			}
			return tinkertest.None
		})
		if _, _, err := r.process(t, memorytest.Open(t), "", func(c *grpo.Config, _ *speller) { c.Steps, c.KL.Coefficient = 1, coefficient }); err != nil {
			t.Fatal(err)
		}
		if models != want {
			t.Errorf("a coefficient of %v makes %d models, want %d", coefficient, models, want)
		}
	}
}

// TestKLReference: a checkpoint can be the reference, and a resumed run has the same one.
func TestKLReference(t *testing.T) {
	t.Parallel()
	r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, nil)
	st := memorytest.Open(t)
	summary, _, err := r.process(t, st, t.TempDir(), func(c *grpo.Config, _ *speller) { c.Steps = 8 })
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		initial, reference string
		away               bool // the run starts elsewhere than at its reference
	}{
		"a checkpoint":     {"", summary.Weights, true},
		"the base model":   {"", "", false},
		"where it started": {summary.Weights, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resumesWithReference(t, r, c.initial, c.reference, c.away)
		})
	}
	_, _, err = r.process(t, st, "", func(c *grpo.Config, _ *speller) {
		c.KL = grpo.KL{Coefficient: 0.1, Reference: "tinker://nobody/weights/x"}
	})
	if !errors.Is(err, agl.ErrNotFound) || !strings.Contains(err.Error(), "load the reference of KL from tinker://nobody/weights/x") {
		t.Errorf("an unknown reference: %v", err)
	}
}

// resumesWithReference runs in one piece and in two.
func resumesWithReference(t *testing.T, r *remote, initial, reference string, away bool) {
	t.Helper()
	st, out := memorytest.Open(t), t.TempDir()
	edit := func(steps int) func(*grpo.Config, *speller) {
		return func(c *grpo.Config, _ *speller) {
			c.Steps, c.Schedule, c.InitialWeights = steps, algorithm.Schedule{Peak: 4e-3, Floor: 4e-3}, initial
			c.KL = grpo.KL{Coefficient: 0.1, Reference: reference}
		}
	}
	_, whole, err := r.process(t, st, t.TempDir(), edit(8))
	if err != nil {
		t.Fatal(err)
	}
	if (whole[0].KL != 0) != away || whole[7].KL == 0 {
		t.Errorf("KL is %v at the first step and %v at the last", whole[0].KL, whole[7].KL)
	}
	var parts []grpo.StepReport
	for _, steps := range []int{4, 8} {
		_, part, err := r.process(t, st, out, edit(steps))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part...)
	}
	for i := range whole {
		if len(parts) != len(whole) || parts[i].KL != whole[i].KL || parts[i].Loss != whole[i].Loss {
			t.Fatalf("step %d of %d: KL and loss differ from those of a run in one piece", i+1, len(parts))
		}
	}
	if reference != "" {
		return
	}
	_, _, err = r.process(t, st, out, func(c *grpo.Config, agent *speller) {
		edit(9)(c, agent)
		c.InitialWeights = "tinker://other/weights/x"
	})
	if !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), `reference=\"tinker://other/weights/x\"`) {
		t.Errorf("resumed with another reference: %v", err)
	}
}

// TestTruncated: replies that were cut are counted and, if they are to be, left out of the loss, but not of the group.
func TestTruncated(t *testing.T) {
	t.Parallel()
	one := func(mask bool) grpo.StepReport {
		steps, _, _ := trained(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, func(c *grpo.Config, agent *speller) {
			c.Steps, c.GroupSize, c.MaskTruncated = 1, 8, mask
			agent.stop = []int32{0, 1, 2} // of seven tokens end a reply before it is cut
		})
		return steps[0]
	}
	kept, masked := one(false), one(true)
	if kept.Truncated == 0 || kept.Truncated == kept.Rollouts || kept.Truncated != masked.Truncated {
		t.Fatalf("%d and %d of %d rollouts are cut", kept.Truncated, masked.Truncated, kept.Rollouts)
	}
	if kept.Sequences != kept.Rollouts || masked.Sequences != kept.Rollouts-kept.Truncated {
		t.Errorf("%d and %d sequences of %d rollouts, %d of them cut", kept.Sequences, masked.Sequences, kept.Rollouts, kept.Truncated)
	}
	if kept.RewardMean != masked.RewardMean || kept.GroupsUsed != masked.GroupsUsed || len(masked.Masked) > 0 {
		t.Errorf("the group changed: %+v and %+v", kept, masked)
	}
}

// single is an engine with one gradient for each step.
type single struct{ tinker.Service }

// Capabilities implements tinker.Service.
func (s single) Capabilities(ctx context.Context) (tinker.Capabilities, error) {
	can, err := s.Service.Capabilities(ctx)
	can.SingleGradient = true
	return can, err
}

// What needs several gradients for a step is refused before a rollout is enqueued.
func TestSingleGradient(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit    func(*grpo.Config)
		refused bool
	}{
		"neither": {func(*grpo.Config) {}, false},
		"anchor": {func(c *grpo.Config) {
			c.Anchor = &grpo.Anchor{Data: []tinker.Datum{{Input: []int32{1}, Targets: []int32{2}}}}
		}, true},
		"as many parts":     {func(c *grpo.Config) { c.Minibatches, c.Async.Minibatches = 2, 2 }, false},
		"more parts":        {func(c *grpo.Config) { c.Async.Minibatches = 2 }, true},
		"steps of one part": {func(c *grpo.Config) { c.Minibatches = 2 }, false},
	} {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Steps, cfg.Service = 1, single{cfg.Service}
		test.edit(&cfg)
		err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{})})
		if refused := errors.Is(err, agl.ErrUnimplemented) && strings.Contains(err.Error(), "a step has one gradient"); refused != test.refused || !refused && err != nil {
			t.Errorf("%s: error %v, want it refused: %v", name, err, test.refused)
		}
	}
}
