package grpo_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// asText compares raw JSON.
var asText = cmp.Transformer("text", func(v jsontext.Value) string { return string(v) })

// TestAsyncZero: with a staleness of 0 the metrics and weights are those of the synchronous run, whatever else is set.
func TestAsyncZero(t *testing.T) {
	t.Parallel()
	run := func(async grpo.Async) ([]jsontext.Value, [][]float32) {
		w, out := newWorld(t, "", nil), t.TempDir()
		cfg := w.config(out)
		cfg.Async = async
		g := newGRPO(t, cfg)
		if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t), Val: tasks(t)}); err != nil {
			t.Fatal(err)
		}
		return metricsLines(t, out), probe(t, w.service, g.Summary().Weights)
	}
	wantLines, wantWeights := run(grpo.Async{})
	for name, async := range map[string]grpo.Async{
		"all settings":    {Concurrency: 4, OnStale: admission.Drop, MinViable: 2, GroupTimeout: time.Hour},
		"one at a time":   {Concurrency: 1},
		"with a deadline": {GroupTimeout: time.Hour},
	} {
		lines, weights := run(async)
		if diff := cmp.Diff(wantLines, lines, asText); diff != "" {
			t.Errorf("%s: metrics (-synchronous +asynchronous):\n%s", name, diff)
		}
		if diff := cmp.Diff(wantWeights, weights); diff != "" {
			t.Errorf("%s: weights (-synchronous +asynchronous):\n%s", name, diff)
		}
	}
}

// TestAsyncRunsAhead: rollouts of later steps run while a step is being published, no further than the bound, and none is wasted.
func TestAsyncRunsAhead(t *testing.T) {
	t.Parallel()
	for _, staleness := range []int{1, 3} {
		w := newWorld(t, "", nil)
		cfg := w.config("")
		cfg.Steps = 8
		cfg.Async = grpo.Async{MaxStaleness: staleness, OnStale: admission.Wait}
		var mu sync.Mutex
		started := map[int]int{} // rollouts by the step whose weights were the newest when their group was admitted
		ahead := make(chan struct{})
		var once sync.Once
		w.onRollout = func(task agl.Task) {
			var tag algorithm.Tag
			if err := rawjson.Unmarshal(task.Rollout.Metadata, &tag); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			started[tag.Step]++
			if started[1] > 16 {
				once.Do(func() { close(ahead) })
			}
		}
		cfg.Publisher = waiting{w, ahead}
		var rec recorder
		rec.attach(&cfg)
		if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t), Val: tasks(t)}); err != nil {
			t.Fatal(err)
		}
		if started[1] != 16*(1+staleness) {
			t.Errorf("staleness %d: %d rollouts were admitted before the first step, want %d", staleness, started[1], 16*(1+staleness))
		}
		oldest, rollouts := 0, 0
		for _, s := range rec.steps {
			oldest = max(oldest, s.Staleness.Max)
			rollouts += s.Rollouts
			if s.UnusedTokens != 0 || len(s.Dropped) != 0 || len(s.Masked) != 0 {
				t.Errorf("step %d wastes: %+v", s.Step, s)
			}
		}
		if oldest == 0 || oldest > staleness {
			t.Errorf("the oldest tokens were %d versions old, want 1 to %d", oldest, staleness)
		}
		page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil {
			t.Fatal(err)
		}
		trained := 0
		for _, r := range page.Items {
			if r.Mode == agl.ModeTrain {
				trained++
			}
		}
		if rollouts != 8*16 || trained != 8*16 {
			t.Errorf("%d rollouts were trained on and %d sampled, want 128 of each", rollouts, trained)
		}
	}
}

// waiting publishes the weights of the first step only when sampling is ahead, which a synchronous run would never be.
type waiting struct {
	*world

	ahead <-chan struct{}
}

func (p waiting) Publish(ctx context.Context, publication algorithm.Publication) error {
	if strings.HasSuffix(publication.Snapshot, "step-00000001") {
		select {
		case <-p.ahead:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return p.world.Publish(ctx, publication)
}

// TestAsyncKilled kills a run again and again, at random places, and expects the counts of a run that was left alone.
func TestAsyncKilled(t *testing.T) {
	t.Parallel()
	for _, minibatches := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d minibatches", minibatches), func(t *testing.T) {
			t.Parallel()
			testAsyncKilled(t, minibatches)
		})
	}
}

func testAsyncKilled(t *testing.T, minibatches int) {
	t.Helper()
	st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	kills := 0
	process := func(kill bool) (*grpo.GRPO, error) {
		w := newWorld(t, weights, st)
		cfg := w.config(out)
		cfg.Steps, cfg.CheckpointEvery, cfg.ValidateEvery = 24, 1, 5
		cfg.Minibatches, cfg.Async = minibatches, grpo.Async{MaxStaleness: 2, OnStale: admission.Wait, Minibatches: minibatches}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if kill {
			var mu sync.Mutex
			left := 1 + random.IntN(20)
			w.onRollout = func(agl.Task) {
				mu.Lock()
				defer mu.Unlock()
				if left--; left == 0 {
					cancel()
				}
			}
		}
		g := newGRPO(t, cfg)
		return g, w.run(ctx, t, g, agl.AlgorithmInput{Train: tasks(t), Val: tasks(t, task{Digit: 1})})
	}
	for kills < 20 {
		_, err := process(true)
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		kills++
	}
	g, err := process(false)
	if err != nil {
		t.Fatal(err)
	}
	if kills < 20 {
		t.Errorf("the run was killed %d times only", kills)
	}
	s := g.Summary()
	validations := map[int]int{0: 1, 5: 1, 10: 1, 15: 1, 20: 1, 24: 1} // by step, of one task
	if s.Step != 24 || s.Totals.Rollouts != 24*16+len(validations) || s.Totals.Tokens != 24*16*2 || len(s.Totals.Masked) != 0 {
		t.Errorf("after %d kills: %+v, want 24 steps of 16 rollouts and 32 tokens, and %d validations", kills, s, len(validations))
	}
	steps, err := algorithm.ReadLines[grpo.StepReport](out + "/metrics.jsonl")
	if err != nil || len(steps) != 25 {
		t.Fatalf("%d lines of metrics (%v), want 25", len(steps), err)
	}
	for i, r := range steps {
		if r.Step != i || i > 0 && (r.Rollouts != 16 || r.Groups != 4 || r.Staleness.Max > 2) {
			t.Errorf("line %d: %+v", i, r)
		}
		if r.Validation != nil {
			validations[r.Step]--
		}
		if r.Beside != nil {
			validations[r.Beside.Step]--
		}
	}
	for step, missing := range validations {
		if missing != 0 {
			t.Errorf("the validation of step %d is in %d lines, want 1", step, 1-missing)
		}
	}
}

// TestKilledDuringValidation kills a run while it validates the weights of an earlier step, which are in a checkpoint for that. The validation
// is made again, and counted once.
func TestKilledDuringValidation(t *testing.T) {
	t.Parallel()
	st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
	process := func(kill bool) (*grpo.GRPO, error) {
		w := newWorld(t, weights, st)
		cfg := w.config(out)
		w.workers = 12 // more than wait
		cfg.Steps, cfg.CheckpointEvery, cfg.ValidateEvery, cfg.Async.MaxStaleness = 12, 12, 5, 1
		cfg.Progress.OnStart = func(s algorithm.Start) {
			if want := 5; !kill && s.Step != want {
				t.Errorf("the run resumes after step %d, want %d", s.Step, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if kill {
			w.do = func(ctx context.Context, task agl.Task) (agl.Result, error) {
				var tag algorithm.Tag
				if err := rawjson.Unmarshal(task.Rollout.Metadata, &tag); err != nil {
					return agl.Result{}, err
				}
				switch {
				case task.Rollout.Mode == agl.ModeVal && tag.Step == 5:
					<-ctx.Done()
					return agl.Result{}, ctx.Err()
				case tag.Step >= 8: // at least seven steps are done; fast ones may pass over a number
					cancel()
				}
				return w.agent(ctx, task)
			}
		}
		g := newGRPO(t, cfg)
		return g, w.run(ctx, t, g, agl.AlgorithmInput{Train: tasks(t), Val: tasks(t)})
	}
	if _, err := process(true); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	g, err := process(false)
	if err != nil {
		t.Fatal(err)
	}
	if s := g.Summary(); s.Totals.Rollouts != 12*16+4*digits {
		t.Errorf("%d rollouts, want those of 12 steps and 4 validations", s.Totals.Rollouts)
	}
	steps, err := algorithm.ReadLines[grpo.StepReport](out + "/metrics.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var validated []int
	for i, r := range steps {
		if i > 0 && r.Spans != steps[1].Spans { // the learner's own spans, such as those of the steps that were lost, do not count
			t.Errorf("step %d: %d spans, want %d", r.Step, r.Spans, steps[1].Spans)
		}
		if r.Beside != nil {
			validated = append(validated, r.Beside.Step)
		}
		if r.Validation != nil {
			validated = append(validated, r.Step)
		}
	}
	if !slices.Equal(validated, []int{0, 5, 10, 12}) {
		t.Errorf("the steps %v were validated", validated)
	}
}

// TestNoTaskIsStarved: tasks of log-normal duration are trained on as often as they are offered. Where stale groups are dropped instead,
// the slow ones are starved, which the same measure shows.
func TestNoTaskIsStarved(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of other tests")
	}
	const (
		each  = 10 // tasks of a digit; the larger the digit, the longer they take
		train = 100 * time.Millisecond
		seen  = 45 // steps that are looked at, when slow tasks of later steps are under way
		limit = 15.09
	)
	var list []task
	for i := range digits * each {
		list = append(list, task{Digit: int32(i / each)})
	}
	// The quantiles of a log-normal distribution with median 50 ms and σ = 1.2.
	duration := func(i int) time.Duration {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(list))-1)
		return time.Duration(float64(50*time.Millisecond) * math.Exp(1.2*z))
	}
	for _, policy := range []admission.OnStale{admission.Train, admission.Wait, admission.Drop} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", nil)
			w.workers = 32
			w.onRollout = func(t agl.Task) {
				var tag algorithm.Tag
				if rawjson.Unmarshal(t.Rollout.Metadata, &tag) == nil {
					time.Sleep(duration(tag.Index))
				}
			}
			cfg := w.config("")
			cfg.Steps, cfg.GroupSize = seen+15, 2
			cfg.Async = grpo.Async{MaxStaleness: 2, OnStale: policy}
			cfg.Publisher = slowly{w, train}
			cfg.Form = func(raw jsontext.Value) string {
				var one task
				if err := rawjson.Unmarshal(raw, &one); err != nil {
					t.Error(err)
				}
				return strconv.Itoa(int(one.Digit))
			}
			var rec recorder
			rec.attach(&cfg)
			if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, list...)}); err != nil {
				t.Fatal(err)
			}
			if policy == admission.Drop {
				stale := 0
				for _, s := range rec.steps {
					stale += s.Dropped[admission.Stale]
				}
				checkNoted(t, w, "stale", 2*stale)
			}
			trained, oldest := make([]int, digits), 0
			for _, s := range rec.steps[:seen] {
				oldest = max(oldest, s.Staleness.Max)
				for form, rate := range s.Forms {
					digit, err := strconv.Atoi(form)
					if err != nil {
						t.Fatal(err)
					}
					trained[digit] += rate.N / cfg.GroupSize
				}
			}
			offered := float64(seen*cfg.PromptsPerStep) / digits
			chi := 0.0
			for _, n := range trained {
				chi += (float64(n) - offered) * (float64(n) - offered) / offered
			}
			// The 0.99 quantile of χ² with 5 degrees of freedom.
			if starved := chi > limit; starved != (policy == admission.Drop) || oldest == 0 {
				t.Errorf("on_stale %s: groups by duration %v, want %.0f of each: χ² is %.2f (p = 0.01 at %.2f); the oldest tokens are of %d versions ago",
					policy, trained, offered, chi, limit, oldest)
			}
		})
	}
}

// slowly publishes after a time, as long as training takes.
type slowly struct {
	*world

	takes time.Duration
}

func (s slowly) Publish(ctx context.Context, p algorithm.Publication) error {
	time.Sleep(s.takes)
	return s.world.Publish(ctx, p)
}

// TestAsyncNewestOnly: an engine whose snapshots change is trained synchronously, and people are told.
func TestAsyncNewestOnly(t *testing.T) {
	t.Parallel()
	r := newRemote(t, tinkertest.EngineConfig{NewestOnly: true}, server.Config{}, client.Config{Engine: &engines.Engine{}}, nil)
	var warnings []algorithm.Warning
	_, steps, err := r.process(t, memorytest.Open(t), "", func(c *grpo.Config, _ *speller) {
		c.Async.MaxStaleness = 2
		c.Progress.OnWarning = func(w algorithm.Warning) { warnings = append(warnings, w) }
	})
	if err != nil {
		t.Fatal(err)
	}
	if list := r.engine.Violations(); len(list) > 0 {
		t.Error(list)
	}
	for _, s := range steps {
		if s.Staleness != (grpo.Staleness{}) {
			t.Errorf("step %d: staleness %+v", s.Step, s.Staleness)
		}
	}
	if !slices.ContainsFunc(warnings, func(w algorithm.Warning) bool { return w.Kind == grpo.WarnSynchronous }) {
		t.Errorf("warnings %v", warnings)
	}
}

// TestCorrectionsTrain: each correction trains on samples of older weights, and says how far these are. In a synchronous run on an
// engine whose sampler and trainer agree, none changes anything.
func TestCorrectionsTrain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of other tests")
	}
	run := func(kind grpo.CorrectionKind, staleness int) ([]grpo.StepReport, [][]float32) {
		w := newWorld(t, "", nil)
		cfg := w.config(t.TempDir())
		cfg.Async = grpo.Async{MaxStaleness: staleness, OnStale: admission.Wait}
		cfg.Correction.Kind = kind
		var rec recorder
		rec.attach(&cfg)
		g := newGRPO(t, cfg)
		if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t)}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		return rec.steps, probe(t, w.service, g.Summary().Weights)
	}
	_, plain := run("", 0)
	for _, kind := range grpo.CorrectionKinds() {
		steps, weights := run(kind, 0)
		for _, s := range steps {
			if s.Drift != nil && (s.Drift.KL != 0 || s.Drift.Rejected != 0 || s.Drift.Ratio != [5]float64{1, 1, 1, 1, 1}) {
				t.Errorf("%s, step %d: drift %+v on policy", kind, s.Step, *s.Drift)
			}
		}
		if diff := cmp.Diff(plain, weights); diff != "" {
			t.Errorf("%s: weights (-without +with):\n%s", kind, diff)
		}
		drifted := false
		steps, _ = run(kind, 2)
		for _, s := range steps {
			drifted = drifted || s.Drift != nil && s.Drift.KL > 0 && s.Drift.Ratio[0] < 1
		}
		if !drifted {
			t.Errorf("%s: no step has tokens of other weights", kind)
		}
	}
}
