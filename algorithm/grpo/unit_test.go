package grpo

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

func TestAdvantages(t *testing.T) {
	t.Parallel()
	const eps = 1e-4
	third := math.Sqrt(2.0 / 9) // std of one 1 among two 0s
	for _, tc := range []struct {
		name    string
		rewards []float64
		plain   bool
		want    []float64 // nil is none
	}{
		{"none", nil, false, nil},
		{"one", []float64{1}, false, nil},
		{"all right", []float64{1, 1, 1}, false, nil},
		{"all wrong", []float64{0, 0}, false, nil},
		{"equal, not representable", []float64{0.1, 0.1, 0.1}, false, nil},
		{"half", []float64{1, 0}, false, []float64{0.5 / (0.5 + eps), -0.5 / (0.5 + eps)}},
		{"a third", []float64{0, 1, 0}, false, []float64{-1.0 / 3 / (third + eps), 2.0 / 3 / (third + eps), -1.0 / 3 / (third + eps)}},
		{"plain", []float64{0, 1, 0}, true, []float64{-1.0 / 3, 2.0 / 3, -1.0 / 3}},
		{"negative", []float64{-2, 2}, false, []float64{-2 / (2 + eps), 2 / (2 + eps)}},
		{"tiny spread stays bounded", []float64{1, 1 + 1e-9}, false, []float64{-5e-10 / eps, 5e-10 / eps}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ok := advantages(tc.rewards, GroupMean, tc.plain)
			if ok != (tc.want != nil) || len(got) != len(tc.want) {
				t.Fatalf("got %v, %v, want %v", got, ok, tc.want)
			}
			for i := range got {
				if math.Abs(got[i]-tc.want[i]) > 1e-5*math.Max(1e-3, math.Abs(tc.want[i])) {
					t.Errorf("rollout %d: %v, want %v", i, got[i], tc.want[i])
				}
			}
		})
	}
}

// Each rollout against the mean of the others, and nothing divides.
func TestLeaveOneOut(t *testing.T) {
	t.Parallel()
	rewards := []float64{0, 1, 0.25, 1}
	for _, plain := range []bool{false, true} {
		got, ok := advantages(rewards, LeaveOneOut, plain)
		if !ok {
			t.Fatal("no advantage")
		}
		for i, r := range rewards {
			others := 0.0
			for j, o := range rewards {
				if j != i {
					others += o / 3
				}
			}
			if math.Abs(got[i]-(r-others)) > 1e-12 {
				t.Errorf("rollout %d: %v, want %v", i, got[i], r-others)
			}
		}
	}
	if _, ok := advantages([]float64{1, 1}, LeaveOneOut, false); ok {
		t.Error("equal rewards have an advantage")
	}
}

func TestPenalize(t *testing.T) {
	t.Parallel()
	data := []tinker.Datum{
		{Weights: []float32{0, 0.5, 0.5}, Logprobs: []float32{0, -1, -2}, Advantages: []float32{0, 1, 1}},
		{Weights: []float32{0.5}, Logprobs: []float32{-0.5}, Advantages: []float32{-1}},
	}
	// d is 0.5, -1 and 2: likelier, less likely and much likelier than before.
	kl, err := subtractPenalty(data, [][]float32{{-7, -1.5, -1}, {-2.5}}, 0.1)
	if err != nil || math.Abs(kl-0.5) > 1e-6 {
		t.Fatalf("KL %v (%v), want 0.5", kl, err)
	}
	for k, want := range [][]float32{{0, 1, 1.15}, {-1.15}} {
		for i := range want {
			if got := data[k].Advantages[i]; math.Abs(float64(got-want[i])) > 1e-6 {
				t.Errorf("datum %d, position %d: advantage %v, want %v", k, i, got, want[i])
			}
		}
	}
	if _, err := subtractPenalty(data, [][]float32{{-7, -1.5}, {-2.5}}, 0.1); err == nil {
		t.Error("too few log-probabilities are no error")
	}
}

// trajectory has two replies of the model, with an observation between them.
func trajectory() adapter.Trajectory {
	return adapter.Trajectory{
		TokenIDs: []int32{1, 2, 3, 4, 5, 6},
		Mask:     []bool{false, false, true, false, true, true},
		Logprobs: []float32{0, 0, -0.3, 0, -0.5, -0.6},
		Replies:  []adapter.Reply{{Start: 2, End: 3}, {Start: 4, End: 6}},
	}
}

// TestDatum checks that both turns are in one datum and that only what the
// model wrote has a weight.
func TestDatum(t *testing.T) {
	t.Parallel()
	got, ok := datum(trajectory(), 0.25, []float32{-2, -2})
	want := tinker.Datum{
		Input:      []int32{1, 2, 3, 4, 5},
		Targets:    []int32{2, 3, 4, 5, 6},
		Weights:    []float32{0, 0.25, 0, 0.25, 0.25},
		Logprobs:   []float32{0, -0.3, 0, -0.5, -0.6},
		Advantages: []float32{0, -2, 0, -2, -2},
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("datum, %v (-want +got):\n%s", ok, diff)
	}
	if err := got.Validate(tinker.ImportanceSampling, 7); err != nil {
		t.Errorf("the datum is not valid: %v", err)
	}
	for name, nothing := range map[string]adapter.Trajectory{
		"one token": {TokenIDs: []int32{1}, Mask: []bool{true}, Logprobs: []float32{-1}},
		"unsampled": {TokenIDs: []int32{1, 2}, Mask: []bool{false, false}, Logprobs: []float32{0, 0}},
	} {
		if d, ok := datum(nothing, 1, make([]float32, len(nothing.Replies))); ok {
			t.Errorf("%s: there is nothing to train on, got %v", name, d)
		}
	}
}

// TestAssemble checks weights, masks, skipped groups and the fixed divisor.
func TestAssemble(t *testing.T) {
	t.Parallel()
	rollout := func(reward float64) sample {
		return sample{reward: reward, spans: 3, calls: 2, continued: 1, form: "f", sequences: []adapter.Trajectory{trajectory()}}
	}
	failed := func(mask algorithm.Mask) sample {
		return sample{mask: mask, spans: 1, sequences: []adapter.Trajectory{trajectory()}}
	}
	long := rollout(0) // its agent began anew in the middle
	long.sequences = append(long.sequences, trajectory())
	groups := []taskGroup{
		{rollout(1), long},
		{rollout(1), rollout(1)},
		{rollout(1), failed("timeout")},
		{failed("timeout"), failed(algorithm.MaskMissingReward)},
	}
	// 5 rollouts count and have 18 sampled tokens, so the 8 would have 28.8.
	for _, tc := range []struct {
		name    string
		cfg     Config
		weights [3]float64 // of the data: the first rollout's and two of the long one's
	}{
		{"tokens alike", Config{}, [3]float64{1 / 28.8, 1 / 28.8, 1 / 28.8}},
		{"rollouts alike", Config{LengthNormalization: true}, [3]float64{1.0 / (8 * 3), 1.0 / (8 * 6), 1.0 / (8 * 6)}},
		{"two minibatches", Config{Minibatches: 2}, [3]float64{2 / 28.8, 2 / 28.8, 2 / 28.8}},
		{"a minibatch of four", Config{Async: Async{Minibatches: 4}}, [3]float64{1 / 115.2, 1 / 115.2, 1 / 115.2}},
		{"a minibatch of four for two steps", Config{Minibatches: 2, Async: Async{Minibatches: 4}}, [3]float64{2 / 115.2, 2 / 115.2, 2 / 115.2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var report StepReport
			cfg := tc.cfg.withDefaults()
			data := assemble(cfg, groups, &report)
			countSamples(groups, cfg.PassReward, &report)
			if len(data) != 3 {
				t.Fatalf("%d data, want the 3 of the first group", len(data))
			}
			adv := 0.5 / (0.5 + 1e-4)
			for i, want := range []float64{adv, -adv, -adv} {
				weight, advantage := float64(data[i].Weights[1]), float64(data[i].Advantages[1])
				if math.Abs(weight-tc.weights[i]) > 1e-7 || math.Abs(advantage-want) > 1e-6 {
					t.Errorf("datum %d: weight %v and advantage %v, want %v and %v", i, weight, advantage, tc.weights[i], want)
				}
			}
			want := StepReport{
				RewardMean: 0.8, PassRate: 0.8, Forms: map[string]algorithm.Rate{"f": algorithm.NewRate(4, 5)},
				Rollouts: 8, Masked: map[algorithm.Mask]int{"timeout": 2, "missing_reward": 1},
				Groups: 4, GroupsUsed: 1, GroupsSkipped: 3, Sequences: 3, PromptTokens: 18, ResponseTokens: 18,
				Calls: 10, ContinuedCalls: 5, Spans: 18, UnusedTokens: 9,
			}
			if diff := cmp.Diff(want, report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	healthy := StepReport{Step: 7, Groups: 4, GroupsUsed: 3, Sequences: 12, Rollouts: 20, Calls: 120, ContinuedCalls: 95, PrefixMismatches: 5, LogprobGap: Gap{Mean: 0.05}}
	healthy.Masked = map[algorithm.Mask]int{"timeout": 4} // 20 %, not more
	for _, tc := range []struct {
		name string
		edit func(*StepReport)
		want []algorithm.Warning
	}{
		{"at every limit", func(*StepReport) {}, nil},
		{"nothing happened", func(r *StepReport) { *r = StepReport{Sequences: 1} }, nil},
		{"no variance", func(r *StepReport) { r.GroupsUsed, r.Sequences = 0, 0; r.RewardMean = 0.5 }, []algorithm.Warning{{Kind: WarnNoVariance, Step: 7, Message: "step 7: nothing was learned: in all 4 groups the rewards are equal (mean 0.5) or too few to compare; the tasks may be too easy or too hard for the model, or the reward is constant"}}},
		{"no success", func(r *StepReport) { r.GroupsUsed, r.Sequences = 0, 0 }, []algorithm.Warning{{Kind: WarnNoVariance, Step: 7, Message: "step 7: nothing was learned: every reward of the 20 rollouts is 0, and a model learns only what it already does now and then; give it demonstrations (warm_start), easier tasks, or a reward for a part of the task"}}},
		{"no rewards", func(r *StepReport) {
			r.GroupsUsed, r.Sequences = 0, 0
			r.Masked = map[algorithm.Mask]int{"missing_reward": 20}
		}, []algorithm.Warning{{Kind: WarnMasked, Step: 7, Message: "step 7: 20 of 20 rollouts (100 %) are masked: missing_reward 20"}}},
		{"no calls", func(r *StepReport) { r.Sequences, r.Calls = 0, 0 }, []algorithm.Warning{{Kind: WarnNoVariance, Step: 7, Message: "step 7: nothing was learned: no model call was recorded in 20 rollouts; the agent must call the model at the address that it is given"}}},
		{"no agent ends well", func(r *StepReport) { r.Sequences, r.Calls, r.Failed = 0, 0, 16 }, []algorithm.Warning{{Kind: WarnNoVariance, Step: 7, Message: "step 7: nothing was learned: in all 16 rollouts that count the agent ended with an error"}}},
		{"truncated", func(r *StepReport) { r.Truncated = 16 }, []algorithm.Warning{{Kind: WarnTruncated, Step: 7, Message: "step 7: every rollout has a reply that was cut off at its length limit; raise max_tokens in the agent, or the model's context"}}},
		{"all masked as truncated", func(r *StepReport) { r.Sequences, r.Truncated = 0, 15 }, []algorithm.Warning{{Kind: WarnNoVariance, Step: 7, Message: "step 7: nothing was learned: mask_truncated leaves out every reply that was cut off, which are those of all 3 groups whose rewards differ"}}},
		{"all passed at once", func(r *StepReport) { r.Step, r.GroupsUsed, r.Sequences, r.PassRate, r.RewardMean = 1, 0, 0, 1, 1 }, []algorithm.Warning{{Kind: WarnNoVariance, Step: 1, Message: "step 1: nothing was learned: in all 4 groups the rewards are equal (mean 1) or too few to compare; the tasks may be too easy or too hard for the model, or the reward is constant"}}},
		{"no variance, all done", func(r *StepReport) { r.GroupsUsed, r.Sequences = 0, 0; r.PassRate = 1 }, nil},
		{"masked", func(r *StepReport) { r.Masked = map[algorithm.Mask]int{"timeout": 4, "panic": 1} }, []algorithm.Warning{{Kind: WarnMasked, Step: 7, Message: "step 7: 5 of 20 rollouts (25 %) are masked: panic 1, timeout 4"}}},
		{"prefix", func(r *StepReport) { r.PrefixMismatches = 6; r.ContinuedCalls = 94 }, []algorithm.Warning{{Kind: WarnPrefix, Step: 7, Message: "step 7: 6 of 100 later calls (6.0 %) do not extend the prompt and reply of the call before; the agent begins other conversations, or it or the chat template rewrites what was said; each part is trained on alone"}}},
		{"gap", func(r *StepReport) { r.LogprobGap = Gap{Mean: 0.125, Max: 2} }, []algorithm.Warning{{Kind: WarnLogprobs, Step: 7, Message: "step 7: log-probabilities of sampler and trainer differ by 0.125 nats on average (at most 2) for the same weights; check that both run the same model, precision and temperature"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := healthy
			tc.edit(&r)
			if diff := cmp.Diff(tc.want, warnings(r, false)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// A role that has never earned anything is told apart from one that has become worse by its own dimension of the reward.
func TestWarningsOfRoles(t *testing.T) {
	t.Parallel()
	r := trainingRun{
		session: &algorithm.Session{Before: &algorithm.Report{RewardMean: 0.5, Dimensions: map[string]float64{"answer": 0.5, "verdict": 0}}},
		roles:   []*trainee{{name: "solver", reward: "answer"}, {name: "critic", reward: "verdict"}}, earned: map[string]bool{},
	}
	var said []string
	r.warned, r.cfg.Progress.OnWarning = map[string]bool{}, func(w algorithm.Warning) { said = append(said, w.Message) }
	nothing := StepReport{Step: 2, Groups: 1, GroupsSkipped: 1, Rollouts: 4, Calls: 4}
	both := nothing
	both.Role, both.Roles = "solver", map[string]StepReport{"critic": nothing}
	r.warn(both)
	r.warn(both) // each is said once
	for i, want := range [][2]string{{"role solver: ", "and earlier ones were not"}, {"role critic: ", "give it demonstrations"}} {
		if len(said) != 2 || !strings.HasPrefix(said[i], want[0]) || !strings.Contains(said[i], want[1]) {
			t.Fatalf("warnings %q, want one of each role, that of the %s with %q", said, want[0], want[1])
		}
	}
}

// TestLiveCoverage: a run that learns from users ends when as many rollouts as a step has were recorded without tokens, not by one of them.
func TestLiveCoverage(t *testing.T) {
	t.Parallel()
	l := liveFeeder{cfg: Config{Live: &Live{Rollouts: 3}, RunConfig: algorithm.RunConfig{Logger: slog.New(slog.DiscardHandler)}}}
	bare := algorithm.Coverage{RolloutID: "ro-1", Calls: 2, Missing: 2, What: "token ids"}
	for i, batch := range [][]algorithm.Coverage{{bare, bare}, {{Calls: 2, Missing: 1}}, {bare}, {{}}, {bare}} {
		if err := l.check(t.Context(), batch); err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	if err := l.check(t.Context(), []algorithm.Coverage{bare}); !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "all 6 model calls of the step were recorded without token ids") {
		t.Errorf("the third rollout in a row without tokens: %v", err)
	}
}

func TestLogprobGap(t *testing.T) {
	t.Parallel()
	d, _ := datum(trajectory(), 1, []float32{1, 1})
	got := logprobGap([]tinker.Datum{d}, [][]float32{{-9, -0.4, -9, -0.5, -0.8}})
	if math.Abs(got.Mean-0.1) > 1e-6 || math.Abs(got.Max-0.2) > 1e-6 {
		t.Errorf("got %+v, want mean 0.1 and max 0.2 over the sampled tokens", got)
	}
	if got := logprobGap(nil, nil); got != (Gap{}) {
		t.Errorf("no data: %+v", got)
	}
}

// TestMetricsForm pins the line that readers of metrics.jsonl depend on.
func TestMetricsForm(t *testing.T) {
	t.Parallel()
	line, err := json.Marshal(StepReport{
		Step: 2, Steps: 3, ResourcesID: "rs-1", RewardMean: 0.5, PassRate: 0.25,
		Forms:    map[string]algorithm.Rate{"plus": {Passed: 1, N: 4, PassRate: 0.25, CI95: [2]float64{0.125, 0.5}}},
		Rollouts: 5, Masked: map[algorithm.Mask]int{"timeout": 1}, Groups: 2, GroupsUsed: 1, GroupsSkipped: 1,
		Sequences: 4, PromptTokens: 40, ResponseTokens: 20, Calls: 8, ContinuedCalls: 4, PrefixMismatches: 1, Spans: 12,
		Updates: 1, Loss: -0.5, GradNorm: 1.5, LearningRate: 0.001, LogprobGap: Gap{0.25, 0.75},
		Seconds: Seconds{1, 2, 3, 4, 5, 15}, TokensPerSecond: 20,
		Validation: &algorithm.Report{Rate: algorithm.Rate{Passed: 1, N: 1, PassRate: 1, CI95: [2]float64{0.25, 1}}, RewardMean: 1, Masked: map[algorithm.Mask]int{}},
	}, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "metrics_line.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(line)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestDatasetSource(t *testing.T) {
	t.Parallel()
	data := agl.Tasks{jsontext.Value("0"), jsontext.Value("1"), jsontext.Value("2"), jsontext.Value("3"), jsontext.Value("4")}
	open := func(seed uint64) Source {
		s, err := NewDatasetSource(data, seed)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	draw := func(s Source, n int) []string {
		tasks, err := s.Next(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, task := range tasks {
			if want := string(data[task.Index]); want != string(task.Input) {
				t.Errorf("task %s has index %d", task.Input, task.Index)
			}
			out = append(out, string(task.Input))
		}
		return out
	}
	whole := open(1)
	want := draw(whole, 12)

	parts := open(1)
	got := draw(parts, 7)
	state, err := parts.State()
	if err != nil {
		t.Fatal(err)
	}
	resumed := open(1)
	if err := resumed.Restore(state); err != nil {
		t.Fatal(err)
	}
	got = append(got, draw(resumed, 5)...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tasks (-whole +resumed):\n%s", diff)
	}
	if whole.Fingerprint() != resumed.Fingerprint() {
		t.Errorf("fingerprints %s and %s of the same data", whole.Fingerprint(), resumed.Fingerprint())
	}
	for _, bad := range []string{`{"next":-1}`, `{"next":"x"}`, `[`} {
		if err := resumed.Restore(jsontext.Value(bad)); agl.ErrorCode(err) != agl.CodeInvalid {
			t.Errorf("state %s: got %v, want an invalid argument", bad, err)
		}
	}
}
