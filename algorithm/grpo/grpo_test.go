package grpo_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tinker"
)

func newGRPO(t *testing.T, cfg grpo.Config) *grpo.GRPO {
	t.Helper()
	g, err := grpo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestLearns trains the toy task through the whole system.
func TestLearns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of other tests")
	}
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Steps, cfg.PromptsPerStep, cfg.GroupSize = 40, 12, 8
	cfg.Schedule = algorithm.Schedule{Peak: 5e-3, Floor: 5e-3}
	var rec recorder
	rec.attach(&cfg)
	cfg.ValidateEvery = 20
	g := newGRPO(t, cfg)
	val := slices.Concat(tasks(t), tasks(t), tasks(t), tasks(t))
	if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t), Val: val}); err != nil {
		t.Fatal(err)
	}
	s := g.Summary()
	if s.Before == nil || s.After == nil || s.Before.PassRate > 0.3 || s.After.PassRate < 0.8 {
		t.Fatalf("validation before %+v, after %+v; want a pass rate of at most 0.3 and at least 0.8", s.Before, s.After)
	}
	if s.Before.N != 24 || len(s.Before.Results) != 24 || s.After.Forms["odd"].N != 12 || s.After.Forms["even"].N != 12 {
		t.Errorf("validations %+v and %+v: want 24 tasks, 12 of each form", s.Before.Rate, s.After.Rate)
	}
	if want := 40*12*8 + 3*24; s.Totals.Rollouts != want || s.Step != 40 || s.Resumed || len(s.Totals.Masked) != 0 {
		t.Errorf("summary %+v: want %d rollouts in 40 steps, none masked", s, want)
	}
	for _, step := range []int{0, 20, 40} {
		if _, ok := rec.validations[step]; !ok {
			t.Errorf("no validation after step %d", step)
		}
	}
	for _, step := range rec.steps {
		if step.LogprobGap != (grpo.Gap{}) {
			t.Errorf("step %d: the gap between sampler and trainer is %v, want 0", step.Step, step.LogprobGap)
		}
		// Two calls merge into one sequence: digit, reply, mark, reply. The
		// tracer may add spans of its own.
		if step.Rollouts != 96 || step.Calls != 192 || step.ContinuedCalls != 96 || step.PrefixMismatches != 0 ||
			step.PromptTokens != 192 || step.ResponseTokens != 192 || step.Spans < 288 ||
			step.GroupsUsed+step.GroupsSkipped != 12 || step.Sequences != 8*step.GroupsUsed {
			t.Fatalf("step %d miscounts: %+v", step.Step, step)
		}
	}
}

// TestVersions checks that each rollout ran with the resources that stand for
// the model that served it, and that old snapshots go.
func TestVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	g := newGRPO(t, w.config(""))
	resources := agl.Resources{{Name: "llm", Resource: agl.LLM{Endpoint: "http://model", Model: "toy"}}}
	if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t), InitialResources: resources}); err != nil {
		t.Fatal(err)
	}
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]int{}
	for _, r := range page.Items {
		if r.Mode != agl.ModeTrain || r.ResourcesID.V != w.served[r.RolloutID] {
			t.Errorf("rollout %s of mode %q has resources %s and was served by %s", r.RolloutID, r.Mode, r.ResourcesID.V, w.served[r.RolloutID])
		}
		versions[r.ResourcesID.V]++
	}
	if len(page.Items) != 6*16 || len(versions) != 6 {
		t.Errorf("%d rollouts with %d versions, want 96 with 6 (one per step)", len(page.Items), len(versions))
	}
	if len(w.published) != 7 {
		t.Fatalf("%d snapshots were published, want 7", len(w.published))
	}
	for i, p := range w.published {
		_, err := w.service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: p.Snapshot})
		if kept := i >= len(w.published)-2; kept != (err == nil) {
			t.Errorf("snapshot %d of %d: kept is %v, error %v", i, len(w.published), kept, err)
		}
		bundle, err := w.store.GetResources(t.Context(), agl.GetResourcesParams{ResourcesID: p.Version})
		if err != nil || !bytes.Equal(bundle.Resources.AppendJSON(nil), resources.AppendJSON(nil)) {
			t.Errorf("resources %s: %v, %v; want the initial ones", p.Version, bundle.Resources, err)
		}
	}
	last := w.published[6]
	if s := g.Summary(); s.Snapshot != last.Snapshot || s.ResourcesID != last.Version {
		t.Errorf("summary %+v, want the last publication %+v", s, last)
	}
}

// TestFlush: spans that arrive late are there because they were flushed first.
func TestFlush(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	w.recordLate = true
	cfg := w.config("")
	cfg.Steps = 1
	var rec recorder
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	if len(w.flushed) != 4 || rec.steps[0].Calls != 32 {
		t.Errorf("%d flushes and %d calls, want one flush for each of 4 groups, and 32 calls", len(w.flushed), rec.steps[0].Calls)
	}
}

// TestMasks gives one rollout of each group a fault.
func TestMasks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault  string
		masked algorithm.Mask
	}{
		{"timeout", "timeout"},
		{"model_error", "model_error"},
		{"context_overflow", algorithm.MaskTooLong},
		{"panic", "panic"},
		{"silent", algorithm.MaskMissingReward},
		{"nan", algorithm.MaskMissingReward},
		{"text", algorithm.MaskMalformed},
		{"no_logprobs", algorithm.MaskMalformed},
		{"impossible", algorithm.MaskMalformed},
		{"base_model", algorithm.MaskVersion},
		{"swapped", algorithm.MaskVersion},
		{"hot", algorithm.MaskSampling},
		{"top_p", algorithm.MaskSampling},
		{"judge", ""},
		{"judge_text", ""},
		{"error", ""}, // the agent's own: reward 0
	} {
		t.Run(tc.fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			var list []task
			for d := range int32(digits) {
				list = append(list, task{Digit: d, Fault: tc.fault})
			}
			cfg := w.config("")
			var log strings.Builder
			cfg.Steps, cfg.Logger = 1, slog.New(slog.NewTextHandler(&log, nil))
			var rec recorder
			rec.attach(&cfg)
			if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, list...)}); err != nil {
				t.Fatal(err)
			}
			// A log that leaves out errors that are repeated has one line of all calls of a version.
			if n := strings.Count(log.String(), ` error="a call was answered by version `); (tc.masked == algorithm.MaskVersion) != (n == 4) {
				t.Errorf("%d calls are of another version:\n%s", n, &log)
			}
			step := rec.steps[0]
			want := map[algorithm.Mask]int{}
			if tc.masked != "" {
				want[tc.masked] = 4
			}
			if diff := cmp.Diff(want, step.Masked); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			healthy := 12
			if tc.masked == "" {
				healthy = 16
			}
			if n := step.Forms["even"].N + step.Forms["odd"].N; n != healthy || step.Rollouts != 16 {
				t.Errorf("%d of %d rollouts count, want %d of 16", n, step.Rollouts, healthy)
			}
			if total := step.RewardMean * float64(healthy) * 2; total != float64(int(total)) {
				t.Errorf("reward mean %v is not over %d rollouts", step.RewardMean, healthy)
			}
			if n := noted(t, w)[string(tc.masked)]; tc.masked != "" && n != 4 {
				t.Errorf("%d rollouts say that they were masked, want 4", n)
			}
			warned := slices.ContainsFunc(rec.warnings, func(w algorithm.Warning) bool { return w.Kind == grpo.WarnMasked })
			if warned != (tc.masked != "") {
				t.Errorf("warnings %v: masked share is %d of 16", rec.warnings, 16-healthy)
			}
		})
	}
}

// TestRefusesText: a step of which no call can be trained on ends the run, and
// says why.
func TestRefusesText(t *testing.T) {
	t.Parallel()
	for fault, what := range map[string]string{"text": "token ids", "no_logprobs": "log-probabilities", "impossible": "usable log-probabilities: the least is -9999, must be at least -50"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			err := w.run(t.Context(), t, newGRPO(t, w.config("")), agl.AlgorithmInput{Train: tasks(t, task{Fault: fault, Always: true})})
			if !errors.Is(err, agl.ErrIllegalState) {
				t.Fatalf("got %v, want ErrIllegalState", err)
			}
			if want := "all 32 model calls of the step were recorded without " + what; !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want …%s…", err, want)
			}
			noneLive(t, w)
		})
	}
}

// TestOtherModels: what a judge says is not trained on, with tokens or without, and does not break the policy's conversation.
func TestOtherModels(t *testing.T) {
	t.Parallel()
	run := func(fault string) (grpo.StepReport, [][]float32) {
		w := newWorld(t, "", nil)
		cfg := w.config(t.TempDir())
		cfg.Steps = 1
		var rec recorder
		rec.attach(&cfg)
		g := newGRPO(t, cfg)
		if err := w.run(t.Context(), t, g, agl.AlgorithmInput{Train: tasks(t, task{Digit: 1, Fault: fault, Always: true}, task{Digit: 2})}); err != nil {
			t.Fatal(err)
		}
		return rec.steps[0], probe(t, w.service, g.Summary().Weights)
	}
	alone, want := run("")
	for _, fault := range []string{"judge", "judge_text"} {
		step, got := run(fault)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: weights (-without a judge +with one):\n%s", fault, diff)
		}
		if step.Calls != alone.Calls || step.ContinuedCalls != alone.ContinuedCalls || step.ResponseTokens != alone.ResponseTokens || step.OtherCalls != 16 || len(step.Masked) != 0 {
			t.Errorf("%s: %+v, want the calls of %+v and 16 of the judge", fault, step, alone)
		}
	}
}

// TestRefusesOffPolicy: a run whose agents sample from something else ends, and says what.
func TestRefusesOffPolicy(t *testing.T) {
	t.Parallel()
	for fault, what := range map[string]string{"hot": "sampling, temperature=0.7", "top_p": "sampling, top_p=0.9", "base_model": `answered by version "base"`} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			cfg := w.config("")
			err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: fault, Always: true})})
			if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want ErrIllegalState, …%s…", err, what)
			}
			noneLive(t, w)
			if cfg.ProcessedLogprobs = true; fault == "base_model" {
				return
			}
			if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: fault, Always: true})}); err != nil {
				t.Errorf("with processed log-probabilities: %v", err)
			}
		})
	}
}

// TestRewrittenPrompts: an agent that changes the past falls into two sequences
// per rollout, and people hear of it once.
func TestRewrittenPrompts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Steps = 3
	var rec recorder
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Fault: "rewrites"})}); err != nil {
		t.Fatal(err)
	}
	for _, step := range rec.steps {
		if step.PrefixMismatches != 4 || step.ContinuedCalls != 12 {
			t.Errorf("step %d: %d mismatches and %d continued calls, want 4 and 12", step.Step, step.PrefixMismatches, step.ContinuedCalls)
		}
	}
	n := 0
	for _, w := range rec.warnings {
		if w.Kind == grpo.WarnPrefix {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d warnings about prompts in %v, want 1", n, rec.warnings)
	}
}

// TestCancel ends the context in the middle of a step.
func TestCancel(t *testing.T) {
	t.Parallel()
	w, out := newWorld(t, "", nil), t.TempDir()
	cfg := w.config(out)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress.OnRollouts = func(_ algorithm.Phase, step, _, _ int) {
		if step == 2 {
			cancel()
		}
	}
	g := newGRPO(t, cfg)
	if err := w.run(ctx, t, g, agl.AlgorithmInput{Train: tasks(t)}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	noneLive(t, w)
	if s := g.Summary(); s.Step != 1 {
		t.Errorf("summary %+v: want 1 step done", s)
	}
	files, err := os.ReadDir(filepath.Join(out, "checkpoints"))
	if err != nil || len(files) != 2 || files[1].Name() != "checkpoint-00000001.json" {
		t.Errorf("checkpoints %v, %v: want those of steps 0 and 1", files, err)
	}
}

func noneLive(t *testing.T, w *world) {
	t.Helper()
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		if !r.Status.Finished() {
			t.Errorf("rollout %s is left %s", r.RolloutID, r.Status)
		}
	}
}

// broken fails to publish from the n-th time on.
type broken struct {
	*world

	n int
}

var errBroken = errors.New("proxy on fire")

func (b *broken) Publish(ctx context.Context, p algorithm.Publication) error {
	if b.n--; b.n < 0 {
		return errBroken
	}
	return b.world.Publish(ctx, p)
}

func TestPublishFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Publisher = &broken{world: w, n: 1}
	err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)})
	if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "grpo: step 1: publish snapshot tinker://") {
		t.Errorf("got %v, want the publisher's error with step and snapshot", err)
	}
}

func TestRejectsInput(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		in   agl.AlgorithmInput
		want string
	}{
		{"no data", agl.AlgorithmInput{}, "grpo: the train dataset is empty; at least one task is required"},
		{"empty data", agl.AlgorithmInput{Train: agl.Tasks{}}, "grpo: the train dataset is empty; at least one task is required"},
		{"empty validation", agl.AlgorithmInput{Train: tasks(t), Val: agl.Tasks{}}, "grpo: the validation dataset is empty; leave it out or add tasks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			err := w.run(t.Context(), t, newGRPO(t, w.config("")), tc.in)
			if !errors.Is(err, agl.ErrInvalid) || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestRejectsConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(*grpo.Config)
		want string
	}{
		{"service", func(c *grpo.Config) { c.Service = nil }, "grpo: Service is nil; an engine is required"},
		{"steps", func(c *grpo.Config) { c.Steps = 0 }, "grpo: Steps is 0, must be at least 1"},
		{"prompts", func(c *grpo.Config) { c.PromptsPerStep = -1 }, "grpo: PromptsPerStep is -1, must be at least 1"},
		{"group", func(c *grpo.Config) { c.GroupSize = 1 }, "grpo: GroupSize is 1, must be at least 2"},
		{"largest group", func(c *grpo.Config) { c.MaxGroupSize = 3 }, "grpo: MaxGroupSize is 3, must be at least GroupSize (4)"},
		{"largest group that stops", func(c *grpo.Config) { c.MaxGroupSize, c.Async.Oversample = 8, 1 }, "grpo: MaxGroupSize is 8 with Async.Oversample 1; a group either grows or stops"},
		{"rollouts", func(c *grpo.Config) { c.Async.Oversample = math.MaxInt }, "grpo: PromptsPerStep (4) times GroupSize (4) and Async.Oversample (9223372036854775807) is 36893488147419103232 rollouts, must be at most 10000000"},
		{"open rollouts", func(c *grpo.Config) { c.Steps, c.Async.MaxStaleness = math.MaxInt, 1_000_000 }, "grpo: Async.MaxStaleness is 1000000, with which 16000016 rollouts may be open at once, must be at most 10000000; Async.Concurrency bounds the open groups"},
		{"validation", func(c *grpo.Config) { c.ValidateEvery = -1 }, "grpo: ValidateEvery is -1, must be at least 0"},
		{"loss", func(c *grpo.Config) { c.Loss.Name = tinker.CrossEntropy }, `grpo: Loss is "cross_entropy"; allowed are ["importance_sampling" "ppo" "cispo" "dro"]`},
		{"baseline", func(c *grpo.Config) { c.Baseline = "median" }, `grpo: Baseline is "median"; allowed are ["group_mean" "leave_one_out"]`},
		{"kl", func(c *grpo.Config) { c.KL.Coefficient = -1 }, "grpo: KL.Coefficient is -1, must be a finite number ≥ 0"},
		{"kl without", func(c *grpo.Config) { c.KL.Reference = "tinker://m/weights/a" }, `grpo: KL.Reference is "tinker://m/weights/a" without a Coefficient`},
		{"kl of a snapshot", func(c *grpo.Config) {
			c.KL = grpo.KL{Coefficient: 1, Reference: "tinker://m/sampler_weights/a"}
		}, `grpo: KL.Reference is "tinker://m/sampler_weights/a", must be a checkpoint, tinker://<model>/weights/<name>`},
		{"correction", func(c *grpo.Config) { c.Correction.High = 2 }, `grpo: Correction has bounds without a Kind; allowed are ["token_tis" "sequence_tis" "sequence_mis" "icepop" "gspo" "geometric" "dppo" "dual_clip"]`},
		{"overlong", func(c *grpo.Config) { c.Overlong.Limit = 8 }, "grpo: Overlong.Margin is 0, must be from 1 to Limit (8)"},
		{"anchor", func(c *grpo.Config) { c.Anchor = &grpo.Anchor{} }, "grpo: Anchor.Data is empty"},
		{"live", func(c *grpo.Config) { c.Live = &grpo.Live{} }, "grpo: Live.Collector is nil; it hands out the rollouts"},
		{"rollouts of a live step", func(c *grpo.Config) { c.Live = &grpo.Live{Rollouts: 1e9} }, "grpo: Live.Rollouts is 1000000000, must be at most 10000000"},
		{"dro", func(c *grpo.Config) { c.Loss.Name = tinker.DRO }, `grpo: Loss is "dro", which needs advantages without normalization: PlainAdvantage or the Baseline "leave_one_out"`},
		{"clip", func(c *grpo.Config) { c.Loss = tinker.Loss{Name: tinker.PPO, ClipLow: 2} }, "grpo: loss: clip_low_threshold 2 is outside [0, 1]"},
		{"clip of a loss without", func(c *grpo.Config) { c.Loss.ClipHigh = 1.5 }, `grpo: Loss.ClipLow and ClipHigh are 0 and 1.5; "importance_sampling" takes none`},
		{"beta of a loss without", func(c *grpo.Config) { c.Loss = tinker.Loss{Name: tinker.PPO, Beta: 0.5} }, `grpo: Loss.Beta is 0.5; "ppo" takes none`},
		{"learning rate", func(c *grpo.Config) { c.Schedule.Peak = -1 }, "grpo: Schedule.Peak is -1, must be a positive number"},
		{"rollout", func(c *grpo.Config) { c.Rollout.MaxAttempts = -1 }, "grpo: Rollout: config.max_attempts: got -1, must be at least 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := newWorld(t, "", nil).config("")
			tc.edit(&cfg)
			_, err := grpo.New(cfg)
			if !errors.Is(err, agl.ErrInvalid) || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// metricsLines reads metrics.jsonl without what depends on time.
func metricsLines(t *testing.T, out string) []jsontext.Value {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []jsontext.Value
	for line := range bytes.Lines(data) {
		var r grpo.StepReport
		if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		r.Seconds, r.TokensPerSecond, r.ResourcesID = grpo.Seconds{}, 0, ""
		for name, role := range r.Roles {
			role.Seconds, role.ResourcesID = grpo.Seconds{}, ""
			r.Roles[name] = role
		}
		timeless, err := json.Marshal(r, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, timeless)
	}
	return lines
}

// lossless is an engine that knows supervised training only.
type lossless struct{ tinker.Service }

func (l lossless) Capabilities(ctx context.Context) (tinker.Capabilities, error) {
	can, err := l.Service.Capabilities(ctx)
	can.Losses = []tinker.LossName{tinker.CrossEntropy}
	return can, err
}

func TestRefusesEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Service = lossless{w.service}
	err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)})
	want := `grpo: the engine has no loss "importance_sampling", only ["cross_entropy"]`
	if !errors.Is(err, agl.ErrUnimplemented) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestMinibatches takes two clipped steps per batch.
func TestMinibatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Steps, cfg.Minibatches, cfg.Loss.Name = 1, 2, tinker.PPO
	var rec recorder
	rec.attach(&cfg)
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	for _, step := range rec.steps {
		if step.Updates != 2 || step.GradNorm <= 0 || step.LogprobGap != (grpo.Gap{}) {
			t.Errorf("step %d: %d updates, norm %v, gap %v; want 2, a norm, and no gap before the first", step.Step, step.Updates, step.GradNorm, step.LogprobGap)
		}
	}
	// The rollouts say what the step has computed of them.
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	trained, moved := 0, 0
	for _, r := range page.Items {
		spans, err := w.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID, Name: agl.SpanTraining})
		if err != nil {
			t.Fatal(err)
		}
		if len(spans.Items) == 0 {
			continue // of a group of equal rewards
		}
		trained++
		calls, _ := spans.Items[0].Attributes.GetString(agl.AttrTrainingCalls)
		var list []struct {
			SpanID    string   `json:"span_id"`
			Advantage *float64 `json:"advantage"`
			LogRatios struct {
				Scale float64 `json:"scale"`
			} `json:"log_ratios"`
		}
		if err := rawjson.Unmarshal([]byte(calls), &list); err != nil || len(list) != 2 || list[0].SpanID != "span-0" || list[1].SpanID != "span-1" || list[1].Advantage == nil || *list[1].Advantage == 0 {
			t.Errorf("rollout %s says %s (%v), want two calls with an advantage", r.RolloutID, calls, err)
		} else if list[1].LogRatios.Scale != 0 {
			moved++
		}
	}
	if trained != rec.steps[0].Sequences || moved == 0 || moved == trained {
		t.Errorf("%d rollouts say what was computed of them, the step had %d; the ratios of %d are not 1, want those of the second minibatch", trained, rec.steps[0].Sequences, moved)
	}
}

// TestValidationSampling: validation runs with resources of its own.
func TestValidationSampling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.config("")
	cfg.Steps, cfg.Validation = 1, algorithm.Validation{N: 3, Sampling: jsontext.Value(`{"temperature":0}`)}
	in := agl.AlgorithmInput{
		Train: tasks(t), Val: tasks(t),
		InitialResources: agl.Resources{{Name: "llm", Resource: agl.LLM{Endpoint: "http://model", Model: "toy", SamplingParameters: jsontext.Value(`{"temperature":1}`)}}},
	}
	if err := w.run(t.Context(), t, newGRPO(t, cfg), in); err != nil {
		t.Fatal(err)
	}
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	temperatures := map[agl.Mode]map[string]int{agl.ModeTrain: {}, agl.ModeVal: {}}
	for _, r := range page.Items {
		bundle, err := w.store.GetResources(t.Context(), agl.GetResourcesParams{ResourcesID: r.ResourcesID.V})
		if err != nil {
			t.Fatal(err)
		}
		llm, err := bundle.Resources.LLM(r.RolloutID, "")
		if err != nil {
			t.Fatal(err)
		}
		temperatures[r.Mode][string(llm.SamplingParameters)]++
	}
	want := map[agl.Mode]map[string]int{agl.ModeTrain: {`{"temperature":1}`: 16}, agl.ModeVal: {`{"temperature":0}`: 6}}
	if diff := cmp.Diff(want, temperatures); diff != "" {
		t.Errorf("sampling parameters of rollouts (-want +got):\n%s", diff)
	}
}
