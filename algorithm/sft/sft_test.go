package sft_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/tinkertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a whole system around a algo: store, runners, and an agent that shows the model a digit and is rewarded
// when it names the next one, or one that is 4 or 8 off.
type world struct {
	store   *store.Store
	service *policy.Service
	// bare says of a sample of a task that a call is recorded as text alone: its only one, or a second one.
	bare func(sample int) (only, second bool)
	// judged adds a call of another model to each rollout, whose token ids are not those of the model in training.
	judged bool

	mu    sync.Mutex
	model tinker.SamplingClient
	runs  int
}

func newWorld(t *testing.T, dir string, st *store.Store) *world {
	t.Helper()
	if st == nil {
		st = memorytest.Open(t)
	}
	return &world{store: st, service: newService(t, dir)}
}

// Publish implements algorithm.Publisher.
func (w *world) Publish(ctx context.Context, p algorithm.Publication) error {
	model, err := w.service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: p.Snapshot})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model = model
	return nil
}

func (w *world) agent(ctx context.Context, t agl.Task) (agl.Result, error) {
	var digit int32
	if err := t.DecodeInput(&digit); err != nil {
		return agl.Result{}, err
	}
	var place struct {
		Seed   uint64 `json:"seed"`
		Sample int    `json:"sample"`
	}
	if err := rawjson.Unmarshal(t.Rollout.Metadata, &place); err != nil {
		return agl.Result{}, err
	}
	w.mu.Lock()
	model := w.model
	w.runs++
	w.mu.Unlock()
	res, err := model.Sample(ctx, tinker.SampleParams{Prompt: []int32{digit}, MaxTokens: 1, Temperature: 1, Seed: &place.Seed})
	if err != nil {
		return agl.Result{}, err
	}
	reply, reward := res.Sequences[0], 0.0
	if reply.Tokens[0]%4 == (digit+1)%4 {
		reward = 1
	}
	rewards, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: reward})
	if err != nil {
		return agl.Result{}, err
	}
	var only, second bool
	if w.bare != nil {
		only, second = w.bare(place.Sample)
	}
	attrs := []agl.Attr{
		{Key: agl.AttrGenAIResponseID, Value: t.Attempt.AttemptID},
		{Key: agl.AttrModelVersion, Value: t.Rollout.ResourcesID.V}, {Key: agl.AttrGenAIRequestModel, Value: "policy"},
		{Key: agl.AttrPromptTokenIDs, Value: []int{int(digit)}},
		{Key: agl.AttrResponseTokenIDs, Value: []int{int(reply.Tokens[0])}},
		{Key: agl.AttrLogprobsContent, Value: fmt.Sprintf(`[{"token":"d","logprob":%g}]`, reply.Logprobs[0])},
	}
	if only {
		attrs = attrs[:1]
	}
	call, err := span(t, 1, agl.SpanLiteLLMRequest, attrs...)
	if err != nil {
		return agl.Result{}, err
	}
	spans := []agl.Span{call}
	if second {
		other, err := span(t, 3, agl.SpanLiteLLMRequest, agl.Attr{Key: agl.AttrGenAIResponseID, Value: t.Attempt.AttemptID + "-2"})
		if err != nil {
			return agl.Result{}, err
		}
		spans = append(spans, other)
	}
	if w.judged {
		judge, err := span(t, 4, agl.SpanLiteLLMRequest, agl.Attr{Key: agl.AttrGenAIResponseID, Value: t.Attempt.AttemptID + "-judge"},
			agl.Attr{Key: agl.AttrGenAIRequestModel, Value: "judge"}, agl.Attr{Key: agl.AttrModelVersion, Value: "2026-01"},
			agl.Attr{Key: agl.AttrPromptTokenIDs, Value: []int{90_000}}, agl.Attr{Key: agl.AttrResponseTokenIDs, Value: []int{90_001}})
		if err != nil {
			return agl.Result{}, err
		}
		spans = append(spans, judge)
	}
	verdict, err := span(t, 2, agl.SpanAnnotation, rewards...)
	return agl.Result{Spans: append(spans, verdict)}, err
}

func span(t agl.Task, n int, name string, attrs ...agl.Attr) (agl.Span, error) {
	now := agl.TimestampOf(time.Now())
	attributes, err := agl.NewAttributes(attrs...)
	return agl.Span{
		RolloutID: t.Rollout.RolloutID, AttemptID: t.Attempt.AttemptID, TraceID: "trace", SpanID: "span-" + strconv.Itoa(n),
		Name: name, Attributes: attributes, StartTime: agl.Some(now), EndTime: agl.Some(now),
	}, err
}

// run runs a algo beside runners and stops these afterwards.
func (w *world) run(ctx context.Context, t *testing.T, cfg sft.Config) (sft.Summary, error) {
	t.Helper()
	algo, err := sft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	workers, err := runner.New(runner.Config{
		Store: w.store, Agent: agl.AgentFunc(w.agent), Workers: 4, HeartbeatInterval: 5 * time.Second, GracePeriod: 5 * time.Second,
		Snapshot: func(context.Context) (jsontext.Value, error) { return jsontext.Value("{}"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := workers.Run(working); err != nil {
			t.Errorf("runner: %v", err)
		}
	})
	var tasks agl.Tasks
	for digit := range vocab {
		tasks = append(tasks, jsontext.Value(strconv.Itoa(digit)))
	}
	err = algo.Run(ctx, agl.AlgorithmInput{Store: w.store, Train: tasks, Val: append(tasks, tasks...)})
	stop()
	wg.Wait()
	return algo.Summary(), err
}

// rejection makes rollouts of its own and learns from the best.
func (w *world) rejection(out string) sft.Config {
	return sft.Config{
		RunConfig: algorithm.RunConfig{Seed: 1, OutDir: out},
		TrainingConfig: algorithm.TrainingConfig{
			Service: w.service, Model: tinker.CreateModelParams{Seed: 3}, Publisher: w,
			Schedule: algorithm.Schedule{Peak: 2e-2, Warmup: 5, Floor: 5e-3},
		},
		Filter: sft.Filter{MinReward: agl.Some(1.0), Best: 2}, Rounds: 5, Samples: 16, Steps: 20, Batch: 12,
	}
}

// A model gets better by the best of what it does itself.
func TestImproves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.rejection(t.TempDir())
	var reports []sft.Report
	cfg.OnStep = func(r sft.Report) { reports = append(reports, r) }
	s, err := w.run(t.Context(), t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.Before.PassRate > 0.45 || s.After.PassRate < 0.9 || s.Step != 100 || s.Resumed {
		t.Errorf("pass rate %v before and %v after, step %d; want at most 0.45, at least 0.9, 100", s.Before.PassRate, s.After.PassRate, s.Step)
	}
	if want := 5*16*vocab + 6*2*vocab; s.Totals.Rollouts != want || w.runs != want {
		t.Errorf("%d rollouts, of which %d were run, want %d", s.Totals.Rollouts, w.runs, want)
	}
	first, last := reports[0].Selected, s.Selected
	if first == nil || first.Rollouts != 16*vocab || first.KeptMean != 1 || first.Kept > 2*vocab || first.Kept+first.Rejected != first.Rollouts || first.Tokens != first.Kept {
		t.Errorf("the first round chose %+v", first)
	}
	if last.Tasks != vocab || last.Kept != 2*vocab || last.RewardMean < 0.8 {
		t.Errorf("the last round chose %+v, want 2 of each of %d tasks", last, vocab)
	}
	for i, r := range reports {
		if (r.Selected != nil) != (i%20 == 0) || (r.Validation != nil) != (i%20 == 19) || r.Step != i+1 || r.Round != i/20+1 || r.Updates != 1 {
			t.Fatalf("report %d: %+v", i, r)
		}
	}
	if reports[2].LearningRate >= reports[4].LearningRate || reports[99].LearningRate > 6e-3 {
		t.Errorf("learning rates %v, %v … %v are not one curve over all rounds", reports[2].LearningRate, reports[4].LearningRate, reports[99].LearningRate)
	}
	// The rollouts that were learned from say what has become of their tokens.
	want, got, likelier := 0, 0, 0
	for _, r := range reports {
		if r.Selected != nil {
			want += r.Selected.Kept
		}
	}
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		spans, err := w.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID, Name: agl.SpanTraining})
		if err != nil {
			t.Fatal(err)
		}
		for i := range spans.Items {
			attrs := spans.Items[i].Attributes
			text, _ := attrs.GetString(agl.AttrTrainingCalls)
			step, _ := attrs.GetFloat(agl.AttrTrainingStep)
			round, _ := agl.Attributes(r.Metadata).GetFloat("round")
			var calls []algorithm.TrainedCall
			if err := json.Unmarshal([]byte(text), &calls); err != nil || len(calls) != 1 || calls[0].SpanID != "span-1" || calls[0].LogRatios == nil || step <= 20*(round-1) || step > 20*round {
				t.Fatalf("rollout %s of round %v says %s of step %v (%v), want the ratio of its call in a step of its round", r.RolloutID, round, text, step, err)
			}
			got++
			if first, err := base64.StdEncoding.DecodeString(calls[0].LogRatios.Data); err == nil && int8(first[1]) > 0 {
				likelier++
			}
		}
	}
	if got != want || likelier < want/2 {
		t.Errorf("%d rollouts say what was computed, %d of them that their token has become likelier; want %d, at least half", got, likelier, want)
	}
}

// The calls of a judge are not learned from, whatever their token ids are, also by a process that goes on with the rollouts of a round.
func TestLearnsFromItsOwnCalls(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "policy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, out := t.TempDir(), t.TempDir()
			st := memorytest.Open(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			for i, ctx := range []context.Context{ctx, t.Context()} {
				w := newWorld(t, dir, st)
				w.judged = true
				cfg := w.rejection(out)
				cfg.ModelName, cfg.Rounds = name, 1
				cfg.OnStep = func(r sft.Report) {
					if i == 0 && r.Step == 3 {
						interrupt()
					}
				}
				s, err := w.run(ctx, t, cfg)
				if c := s.Selected; c == nil || c.Masked != nil || c.Tasks != vocab || c.Tokens != c.Kept || (err == nil) != (i == 1) {
					t.Fatalf("process %d chose %+v, error %v", i, c, err)
				}
				if i == 1 && (s.Step != 20 || w.runs != 2*vocab) { // of the validation
					t.Errorf("the second process ran %d rollouts and came to step %d", w.runs, s.Step)
				}
			}
		})
	}
}

// Another model learns from the rollouts that the first one left in its store.
func TestDistils(t *testing.T) {
	t.Parallel()
	teacher := newWorld(t, "", nil)
	if _, err := teacher.run(t.Context(), t, teacher.rejection("")); err != nil {
		t.Fatal(err)
	}
	made := teacher.runs
	student := newWorld(t, "", nil)
	cfg := sft.Config{
		RunConfig: algorithm.RunConfig{Seed: 2},
		TrainingConfig: algorithm.TrainingConfig{
			Service: student.service, Model: tinker.CreateModelParams{Seed: 9}, Publisher: student,
			Schedule: algorithm.Schedule{Peak: 2e-2, Warmup: 5, Decay: algorithm.Linear},
		},
		From: sft.Stored(teacher.store), Filter: sft.Filter{MinReward: agl.Some(0.5)}, Steps: 60, Batch: 16,
	}
	s, err := student.run(t.Context(), t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.Before.PassRate > 0.45 || s.After.PassRate < 0.9 {
		t.Errorf("pass rate %v before and %v after, want at most 0.45 and at least 0.9", s.Before.PassRate, s.After.PassRate)
	}
	// Validation's rollouts are not learned from, and no new ones are made.
	if n := s.Selected.Rollouts; n != 5*16*vocab || s.Selected.Kept+s.Selected.Rejected != n || teacher.runs != made || student.runs != 4*vocab {
		t.Errorf("chose %+v, and %d rollouts were made; want %d looked at and %d made", s.Selected, student.runs, 5*16*vocab, 4*vocab)
	}
	cfg.Filter.MinReward = agl.Some(2.0)
	_, err = student.run(t.Context(), t, cfg)
	want := fmt.Sprintf("sft: no stored rollout can be learned from: of %d that succeeded, %[1]d are rejected for their rewards, and these cannot be used: none", 5*16*vocab)
	if !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Of stored rollouts, too, the calls of a judge are not learned from, if the run's model has the name of the one that made them. All calls
// of a teacher of another name are read.
func TestDistilsCallsOfTheModel(t *testing.T) {
	t.Parallel()
	made := newWorld(t, "", nil)
	made.judged = true
	cfg := made.rejection("")
	cfg.Rounds = 1
	if _, err := made.run(t.Context(), t, cfg); err != nil {
		t.Fatal(err)
	}
	student := newWorld(t, "", nil)
	for name, masked := range map[string]map[algorithm.Mask]int{"policy": nil, "other": {algorithm.MaskMalformed: 16 * vocab}} {
		cfg := student.rejection("")
		cfg.ModelName, cfg.From, cfg.Filter, cfg.Rounds = name, sft.Stored(made.store), sft.Filter{}, 1
		s, err := student.run(t.Context(), t, cfg)
		if masked != nil {
			if err == nil || !strings.Contains(err.Error(), algorithm.DescribeMasked(masked)) {
				t.Errorf("%s: error %v, want %v", name, err, masked)
			}
			continue
		}
		if c := s.Selected; err != nil || c.Masked != nil || c.Kept != 16*vocab || c.Tokens != c.Kept {
			t.Errorf("%s: chose %+v, error %v", name, c, err)
		}
	}
}

// probe describes weights by what they say of a sequence.
func probe(t *testing.T, service tinker.Service, path string) [][]float32 {
	t.Helper()
	model, err := service.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
		t.Fatal(err)
	}
	res, err := model.Forward(t.Context(), tinker.ForwardParams{Data: counting(), Loss: tinker.Loss{Name: tinker.CrossEntropy}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Logprobs
}

// A rollout of which a part was recorded is no demonstration, and a round of which nothing was ends the run.
func TestNeedsTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	w.bare = func(sample int) (only, second bool) { return sample == 0, sample == 1 }
	cfg := w.rejection("")
	cfg.Rounds, cfg.Steps, cfg.Filter = 1, 1, sft.Filter{MinReward: agl.Some(0.0)}
	s, err := w.run(t.Context(), t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[algorithm.Mask]int{algorithm.MaskNoTokens: vocab, algorithm.MaskMalformed: vocab}, s.Selected.Masked); diff != "" || s.Selected.Kept != 14*vocab {
		t.Errorf("kept %d, masked (-want +got):\n%s", s.Selected.Kept, diff)
	}
	w.bare = func(int) (only, second bool) { return true, false }
	_, err = w.run(t.Context(), t, cfg)
	want := fmt.Sprintf("sft: round 1: all %d model calls of the round were recorded without token ids", 16*vocab)
	if !errors.Is(err, agl.ErrIllegalState) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("no call has tokens: %v", err)
	}
	w.bare = func(int) (only, second bool) { return false, true }
	_, err = w.run(t.Context(), t, cfg)
	want = fmt.Sprintf("sft: round 1: no rollout of %d counts: malformed_trace %[1]d", 16*vocab)
	if !errors.Is(err, agl.ErrIllegalState) || err.Error() != want {
		t.Errorf("no rollout counts: %v", err)
	}
}

// An engine that cannot learn from demonstrations is found out before there is any rollout.
func TestRefusesEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	cfg := w.rejection("")
	engine, err := tinkertest.NewEngine(tinkertest.EngineConfig{Service: w.service, Losses: []tinker.LossName{tinker.PPO}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Service = engine
	if _, err := w.run(t.Context(), t, cfg); !errors.Is(err, agl.ErrUnimplemented) || w.runs > 0 {
		t.Errorf("error %v after %d rollouts", err, w.runs)
	}
}

func TestRejectsConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(*sft.Config)
		want string
	}{
		{"no service", func(c *sft.Config) { c.Service = nil }, "sft: Service is nil; an engine is required"},
		{"no steps", func(c *sft.Config) { c.Steps = 0 }, "sft: Steps is 0, must be at least 1"},
		{"rounds", func(c *sft.Config) { c.Rounds = -1 }, "sft: Rounds is -1, must be at least 1"},
		{"batch", func(c *sft.Config) { c.Batch = math.MaxInt }, "sft: Batch is 9223372036854775807, must be at most 1000000"},
		{"samples", func(c *sft.Config) { c.Samples = 1_000_000_000 }, "sft: Samples is 1000000000, must be at most 10000000"},
		{"steps of all rounds", func(c *sft.Config) { c.Rounds, c.Steps = math.MaxInt, 2 }, "sft: Rounds (9223372036854775807) times Steps (2) is 18446744073709551616, must be at most 9007199254740992"},
		{"best", func(c *sft.Config) { c.Filter.Best = -1 }, "sft: Filter.Best is -1, must be at least 0"},
		{"all of its own", func(c *sft.Config) { c.Filter = sft.Filter{} }, "sft: Filter is empty; without From it needs MinReward or Best, as training on all of its own rollouts improves no model"},
		{"best of as many", func(c *sft.Config) { c.Filter = sft.Filter{Best: 16} }, "sft: Filter.Best is 16 of 16 Samples, which rejects none; lower it or set MinReward"},
		{"stored in rounds", func(c *sft.Config) { c.From = sft.Stored(agl.UnimplementedStore{}) }, "sft: Rounds is 5; with existing rollouts (From) it must be 1"},
		{"decay", func(c *sft.Config) { c.Schedule.Decay = "stairs" }, `sft: Schedule.Decay is "stairs"; allowed are ["cosine" "linear"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := newWorld(t, "", nil).rejection("")
			tc.edit(&cfg)
			if _, err := sft.New(cfg); !errors.Is(err, agl.ErrInvalid) || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
