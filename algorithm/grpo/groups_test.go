package grpo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestMinViable: groups that the infrastructure failed are replaced, those whose agent failed count.
func TestMinViable(t *testing.T) {
	t.Parallel()
	for _, staleness := range []int{0, 2} {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Async = grpo.Async{MaxStaleness: staleness, MinViable: 4}
		var rec recorder
		rec.attach(&cfg)
		list := []task{{Digit: 0, Fault: "timeout"}, {Digit: 1, Fault: "error"}, {Digit: 2}, {Digit: 3}, {Digit: 4}, {Digit: 5}}
		if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, list...)}); err != nil {
			t.Fatal(err)
		}
		dropped, unused := 0, 0
		for _, s := range rec.steps {
			if s.Groups != 4 || s.Rollouts != 16 || len(s.Masked) != 0 {
				t.Errorf("step %d: %+v, want 4 whole groups", s.Step, s)
			}
			dropped += s.Dropped[admission.Failed]
			unused += s.UnusedTokens
		}
		if unused == 0 {
			t.Error("the tokens of dropped groups are not counted")
		}
		checkNoted(t, w, "failed", 4*dropped)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Async.MinViable = 2
		err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: "model_error", Always: true})})
		if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "fewer than min_viable (2) rollouts that count; of the last one are masked: model_error 4") {
			t.Errorf("error %v", err)
		}
		noneLive(t, w)
	})
}

// TestNothingCounts: a run ends whose groups the infrastructure fails for three steps, also without min_viable.
func TestNothingCounts(t *testing.T) {
	t.Parallel()
	for _, staleness := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", nil)
			cfg := w.config("")
			cfg.Steps, cfg.Async.MaxStaleness = 5, staleness
			var rec recorder
			rec.attach(&cfg)
			began := time.Now()
			err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: "model_error", Always: true})})
			if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "no rollout of the last 12 groups counts; of the last one are masked: model_error 4") {
				t.Errorf("error %v", err)
			}
			// Of an engine that is away for seconds, not all groups must fail.
			if rests := time.Since(began); rests < 30*time.Second || rests > 3*time.Minute {
				t.Errorf("the run ended after %v", rests)
			}
			if len(rec.steps) > 2 {
				t.Errorf("%d steps", len(rec.steps))
			}
			noneLive(t, w)
		})
	}
}

// TestGroupTimeout: the rollouts of a group that hang are cancelled, and the others are compared.
func TestGroupTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Steps = 1
		cfg.Async.GroupTimeout = 5 * time.Second
		var rec recorder
		rec.attach(&cfg)
		if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Digit: 1, Fault: "hang"}, task{Digit: 2}, task{Digit: 3}, task{Digit: 4})}); err != nil {
			t.Fatal(err)
		}
		if s := rec.steps[0]; s.Masked[algorithm.Mask(agl.OutcomeCancelled)] != 1 || s.Groups != 4 {
			t.Errorf("step %+v, want a cancelled rollout", s)
		}
		noneLive(t, w)
	})
}

// TestGroupTimeoutResumed: groups that are ready when a run is killed are trained on when it resumes, also those with a rollout that was cancelled.
func TestGroupTimeoutResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
		var rec recorder
		process := func(kill bool) error {
			w := newWorld(t, weights, st)
			w.workers = 40
			cfg := w.config(out)
			cfg.Steps, cfg.CheckpointEvery, cfg.Async = 2, 1, grpo.Async{MaxStaleness: 1, GroupTimeout: time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			rec.attach(&cfg)
			if kill {
				cfg.Publisher = unhurried{w}
				cfg.OnStep = func(grpo.StepReport) { cancel() }
			}
			hang := func(digit int32) task { return task{Digit: digit, Fault: "hang", Fails: 2} } // their rewards differ, so that each step publishes
			return w.run(ctx, t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, hang(1), hang(2), hang(3), hang(4))})
		}
		if err := process(true); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := process(false); err != nil {
			t.Fatal(err)
		}
		page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil || len(page.Items) != 2*16 {
			t.Errorf("%d rollouts (%v), want those of 2 steps", len(page.Items), err)
		}
		if s := rec.steps[len(rec.steps)-1]; s.Step != 2 || s.Masked[algorithm.Mask(agl.OutcomeCancelled)] != 4 {
			t.Errorf("step %+v, want one cancelled rollout of each group", s)
		}
	})
}

// unhurried takes five minutes to publish, in which the rollouts of the next step end.
type unhurried struct{ *world }

func (p unhurried) Publish(ctx context.Context, publication algorithm.Publication) error {
	time.Sleep(5 * time.Minute)
	return p.world.Publish(ctx, publication)
}

// TestOversample: a group is complete without the rollout that hangs or that the infrastructure failed; nothing but the count of what was
// stopped tells it from one of GroupSize.
func TestOversample(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"", "hang", "timeout"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", nil)
			w.workers = 20
			cfg := w.config("")
			cfg.GroupSize, cfg.Async.Oversample = 3, 1
			if fault == "" { // the last rollouts of each group wait until they are told to end
				agent := w.agent
				w.do = func(ctx context.Context, t agl.Task) (agl.Result, error) {
					var tag algorithm.Tag
					if err := rawjson.Unmarshal(t.Rollout.Metadata, &tag); err != nil {
						return agl.Result{}, err
					}
					if t.Rollout.Mode == agl.ModeTrain && tag.Sample == 1 {
						<-ctx.Done()
						return agl.Result{}, ctx.Err()
					}
					return agent(ctx, t)
				}
			}
			var rec recorder
			rec.attach(&cfg)
			list := []task{{Digit: 1, Fault: fault}, {Digit: 2, Fault: fault}, {Digit: 3, Fault: fault}, {Digit: 4, Fault: fault}}
			if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, list...)}); err != nil {
				t.Fatal(err)
			}
			stopped := 0
			for _, s := range rec.steps {
				stopped += s.Stopped
				masked := 0
				for _, n := range s.Masked {
					masked += n
				}
				// One that times out may be stopped before.
				if s.Rollouts-masked != 12 || masked+s.Stopped != 4 || fault != "timeout" && masked > 0 || s.Groups != 4 {
					t.Errorf("%q: step %d has %d rollouts, masked %v, stopped %d; want 12 that count, and 4 that do not", fault, s.Step, s.Rollouts, s.Masked, s.Stopped)
				}
			}
			noneLive(t, w)
			if fault != "timeout" {
				checkNoted(t, w, "oversampled", stopped)
			}
		})
	}
}

// TestDynamicSampling: every group of a step has an advantage, and those that had none were replaced.
func TestDynamicSampling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.DynamicSampling, cfg.GroupSize = true, 2
	var rec recorder
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for _, s := range rec.steps {
		if s.GroupsUsed != 4 || s.GroupsSkipped != 0 {
			t.Errorf("step %d: %d groups of 4 have an advantage", s.Step, s.GroupsUsed)
		}
		dropped += s.Dropped[admission.NoVariance]
	}
	checkNoted(t, w, "no_variance", 2*dropped)
	// Where every group passes or fails there is nothing to wait for.
	w = newWorld(t, "", nil)
	cfg = w.config("")
	cfg.DynamicSampling, cfg.Steps, cfg.PromptsPerStep, cfg.GroupSize = true, 1, 2, 2
	rec.steps = nil
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: "error", Always: true})}); err != nil {
		t.Fatal(err)
	}
	if s := rec.steps[0]; s.Dropped[admission.NoVariance] != 20 || s.GroupsSkipped != 2 {
		t.Errorf("%+v, want 20 groups replaced before 2 are taken as they are", s)
	}
}

// TestHardGroupsGrow: a group without a reward that differs gets more rollouts, unless it passes; each has a seed of its own.
func TestHardGroupsGrow(t *testing.T) {
	t.Parallel()
	list := []task{{Digit: 1, Fails: 1}, {Digit: 2, Fails: 3}, {Digit: 3, Fails: 6}, {Digit: 4, Fails: 100}}
	want := []int{2, 4, 7, 7}
	for _, async := range []grpo.Async{{}, {MaxStaleness: 2}, {Pin: grpo.PinRollout}} {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Steps, cfg.GroupSize, cfg.MaxGroupSize, cfg.Async = 3, 2, 7, async
		var rec recorder
		rec.attach(&cfg)
		if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, list...)}); err != nil {
			t.Fatal(err)
		}
		groups, used := 0, 0
		for _, s := range rec.steps {
			groups, used = groups+s.Groups, used+s.GroupsUsed
		}
		if groups != 12 || used != 9 {
			t.Errorf("%+v: %d of %d groups have an advantage, want 9 of 12", async, used, groups)
		}
		counts, seeds := make([]int, len(list)), map[uint64]bool{}
		page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			var tag algorithm.Tag
			if err := rawjson.Unmarshal(r.Metadata, &tag); err != nil {
				t.Fatal(err)
			}
			counts[tag.Index]++
			if seeds[tag.Seed] {
				t.Errorf("%+v: two rollouts have the seed %d", async, tag.Seed)
			}
			seeds[tag.Seed] = true
		}
		for i, n := range counts {
			if n != 3*want[i] {
				t.Errorf("%+v: %d rollouts of task %d in 3 groups, want %d", async, n, i, 3*want[i])
			}
		}
		noneLive(t, w)
	}
	// One that passes has nothing to learn.
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Steps, cfg.GroupSize, cfg.MaxGroupSize, cfg.PassReward = 1, 2, 7, 0.1
	var rec recorder
	rec.attach(&cfg)
	w.do = func(context.Context, agl.Task) (agl.Result, error) { return agl.RewardResult(0.2), nil }
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	if rec.steps[0].Rollouts != 8 {
		t.Errorf("%d rollouts of 4 groups that pass, want 8", rec.steps[0].Rollouts)
	}
}
