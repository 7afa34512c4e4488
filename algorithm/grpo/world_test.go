package grpo_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The toy task: the model is shown a digit, is to name the next one, is shown a
// mark, and is to say 0. Both right is reward 1, one is 0.5.
const (
	digits       = 6
	mark         = digits
	vocab        = digits + 1
	modelContext = 8
	modelName    = "toy" // that the agent asks for
)

// task is the input of a rollout of the toy task.
type task struct {
	Digit int32 `json:"digit"`
	// Fault makes the agent misbehave in every fourth sample.
	Fault string `json:"fault,omitzero"`
	// Always makes it so in every sample.
	Always bool `json:"always,omitzero"`
	// Fails is how many samples have reward 0, whatever they are; the others then have 1.
	Fails int `json:"fails,omitzero"`
}

func tasks(t *testing.T, list ...task) agl.Tasks {
	t.Helper()
	if list == nil {
		for d := range int32(digits) {
			list = append(list, task{Digit: d})
		}
	}
	var out agl.Tasks
	for _, one := range list {
		raw, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}

// world is a whole system around an algorithm: store, runners, the agent of the
// toy task, and the model that it calls.
type world struct {
	store   *store.Store
	service *policy.Service

	mu         sync.Mutex
	model      tinker.SamplingClient
	version    string
	published  []algorithm.Publication
	flushed    [][]string
	late       map[string][]agl.Span // spans that Flush stores
	recordLate bool
	served     map[string]string // version that served each rollout
	onRollout  func(t agl.Task)  // nil does nothing
	do         agl.AgentFunc     // instead of the toy task; nil does that
	workers    int               // rollouts at once; 0 means 4
}

// newWorld starts a world whose engine keeps checkpoints in dir. The store is
// new unless one is given.
func newWorld(t *testing.T, dir string, st *store.Store) *world {
	t.Helper()
	if st == nil {
		st = memorytest.Open(t)
	}
	service, err := policy.NewService(policy.Config{
		Vocab: vocab, Context: modelContext, Layers: 1, Dim: 16, Heads: 1, FF: 32, Workers: 1, Dir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &world{store: st, service: service, late: map[string][]agl.Span{}, served: map[string]string{}}
}

// run runs the algorithm beside runners and stops these afterwards.
func (w *world) run(ctx context.Context, t *testing.T, algo agl.Algorithm, in agl.AlgorithmInput) error {
	t.Helper()
	agent := agl.AgentFunc(w.agent)
	if w.do != nil {
		agent = w.do
	}
	workers, err := runner.New(runner.Config{
		Store: w.store, Agent: agent, Workers: cmp.Or(w.workers, 4), HeartbeatInterval: 5 * time.Second, GracePeriod: 5 * time.Second,
		Snapshot: func(context.Context) (jsontext.Value, error) { return jsontext.Value("{}"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	runnerCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := workers.Run(runnerCtx); err != nil {
			t.Errorf("runner: %v", err)
		}
	})
	in.Store = w.store
	err = algo.Run(ctx, in)
	stop()
	wg.Wait()
	return err
}

// config trains the toy task.
func (w *world) config(out string) grpo.Config {
	return grpo.Config{
		RunConfig: algorithm.RunConfig{Flusher: w, Seed: 1, OutDir: out},
		TrainingConfig: algorithm.TrainingConfig{
			Service: w.service, Model: tinker.CreateModelParams{Seed: 1}, Publisher: w, ModelName: modelName,
			Schedule: algorithm.Schedule{Peak: 2e-2, Floor: 2e-2}, CheckpointEvery: 3, Form: formOf,
		},
		Steps: 6, PromptsPerStep: 4, GroupSize: 4,
	}
}

func formOf(raw jsontext.Value) string {
	var one task
	if rawjson.Unmarshal(raw, &one) != nil || one.Digit%2 == 0 {
		return "even"
	}
	return "odd"
}

// Publish implements algorithm.Publisher.
func (w *world) Publish(ctx context.Context, p algorithm.Publication) error {
	model, err := w.service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: p.Snapshot})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model, w.version = model, p.Version
	if n := len(w.published); n == 0 || w.published[n-1].Version != p.Version { // else only what is pinned has changed
		w.published = append(w.published, p)
	}
	return nil
}

// Flush implements algorithm.Flusher.
func (w *world) Flush(ctx context.Context, rolloutIDs []string) error {
	w.mu.Lock()
	w.flushed = append(w.flushed, slices.Clone(rolloutIDs))
	var spans []agl.Span
	for _, id := range rolloutIDs {
		spans = append(spans, w.late[id]...)
		delete(w.late, id)
	}
	w.mu.Unlock()
	if len(spans) == 0 {
		return nil
	}
	_, err := w.store.AddSpans(ctx, agl.AddSpansParams{Spans: spans, IssueSequenceIDs: true})
	return err
}

// agent plays the toy task with the model that is published.
func (w *world) agent(ctx context.Context, t agl.Task) (agl.Result, error) {
	var in task
	if err := t.DecodeInput(&in); err != nil {
		return agl.Result{}, err
	}
	var place struct {
		Sample int    `json:"sample"`
		Index  int    `json:"index"`
		Seed   uint64 `json:"seed"`
	}
	if err := rawjson.Unmarshal(t.Rollout.Metadata, &place); err != nil {
		return agl.Result{}, err
	}
	if w.onRollout != nil {
		w.onRollout(t)
	}
	w.mu.Lock()
	model, version := w.model, w.version
	w.served[t.Rollout.RolloutID] = version
	late := w.recordLate
	w.mu.Unlock()

	fault := ""
	if t.Rollout.Mode == agl.ModeTrain && (place.Sample%4 == 3 || in.Always) {
		fault = in.Fault
	}
	conversation := []int32{in.Digit}
	var spans []agl.Span
	reward := 0.0
	for turn, want := range []int32{(in.Digit + 1) % digits, 0} {
		seed := place.Seed + uint64(turn)
		res, err := model.Sample(ctx, tinker.SampleParams{Prompt: conversation, MaxTokens: 1, Temperature: 1, Seed: &seed})
		if err != nil {
			return agl.Result{}, err
		}
		reply := res.Sequences[0]
		span, err := callSpan(t, version, turn, conversation, reply, fault)
		if err != nil {
			return agl.Result{}, err
		}
		spans = append(spans, span)
		spans = append(spans, judgeSpans(t, turn, conversation, reply, fault)...)
		if reply.Tokens[0] == want {
			reward += 0.5
		}
		conversation = append(conversation, reply.Tokens[0], mark)
		if fault == "rewrites" {
			conversation[0] = mark
		}
	}
	if in.Fails > 0 {
		reward = 0
		if place.Sample >= in.Fails {
			reward = 1
		}
	}
	if fault == "hang" {
		<-ctx.Done()
		return agl.Result{}, ctx.Err()
	}
	if late {
		w.mu.Lock()
		w.late[t.Rollout.RolloutID] = spans
		w.mu.Unlock()
		spans = nil
	}
	return misbehave(t, fault, spans, reward)
}

// misbehave ends the agent's run as the fault says.
func misbehave(t agl.Task, fault string, spans []agl.Span, reward float64) (agl.Result, error) {
	switch fault {
	case "error":
		return agl.Result{}, errors.New("the agent stumbled")
	case "panic":
		panic("the agent fell")
	case "model_error", "timeout", "context_overflow":
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeKind(fault), Err: errors.New("as asked")}
	case "silent":
		return agl.Result{Spans: spans}, nil
	}
	attrs, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: reward})
	if err != nil {
		return agl.Result{}, err
	}
	if fault == "nan" {
		attrs[1].Value = "NaN"
	}
	return agl.Result{Spans: append(spans, newSpan(t, 2, agl.SpanAnnotation, attrs))}, nil
}

// judgeSpans are the call of another model, with tokens that continue the policy's, or without tokens.
func judgeSpans(t agl.Task, turn int, prompt []int32, reply tinker.Sequence, fault string) []agl.Span {
	attrs := []agl.Attr{
		{Key: agl.AttrGenAIResponseID, Value: fmt.Sprintf("%s-judge-%d", t.Attempt.AttemptID, turn)},
		{Key: agl.AttrGenAIRequestModel, Value: "judge"},
		{Key: "gen_ai.request.temperature", Value: 0},
		{Key: agl.AttrModelVersion, Value: "judge-7"},
	}
	switch fault {
	case "judge":
		prompt := append(toInts(prompt), int(reply.Tokens[0]), mark)
		attrs = append(attrs, agl.Attr{Key: agl.AttrPromptTokenIDs, Value: prompt}, agl.Attr{Key: agl.AttrResponseTokenIDs, Value: []int{1, 2}},
			agl.Attr{Key: agl.AttrLogprobsContent, Value: `[{"logprob":-1},{"logprob":-1}]`})
	case "judge_text":
	default:
		return nil
	}
	return []agl.Span{newSpan(t, 100+turn, agl.SpanLiteLLMRequest, attrs)}
}

func callSpan(t agl.Task, version string, turn int, prompt []int32, reply tinker.Sequence, fault string) (agl.Span, error) {
	type logprob struct {
		Logprob float32 `json:"logprob"`
	}
	content, err := json.Marshal([]logprob{{reply.Logprobs[0]}})
	if err != nil {
		return agl.Span{}, err
	}
	attrs := []agl.Attr{
		{Key: agl.AttrGenAIResponseID, Value: fmt.Sprintf("%s-%d", t.Attempt.AttemptID, turn)},
		{Key: agl.AttrGenAIRequestModel, Value: modelName},
		{Key: agl.AttrModelVersion, Value: version},
		{Key: agl.AttrPromptTokenIDs, Value: toInts(prompt)},
		{Key: agl.AttrResponseTokenIDs, Value: toInts(reply.Tokens)},
		{Key: agl.AttrLogprobsContent, Value: string(content)},
	}
	switch fault {
	case "text":
		attrs = attrs[:3]
	case "no_logprobs":
		attrs = attrs[:5]
	case "impossible":
		attrs[5].Value = `[{"logprob":-9999}]`
	case "base_model":
		attrs[2].Value = "base"
	case "swapped":
		attrs = append(attrs, agl.Attr{Key: agl.AttrModelVersionEnd, Value: "base"})
	case "hot":
		attrs = append(attrs, agl.Attr{Key: "gen_ai.request.temperature", Value: 0.7})
	case "top_p":
		attrs = append(attrs, agl.Attr{Key: "gen_ai.request.temperature", Value: 1}, agl.Attr{Key: "gen_ai.request.top_p", Value: 0.9})
	}
	return newSpan(t, turn, agl.SpanLiteLLMRequest, attrs), nil
}

func newSpan(t agl.Task, n int, name string, attrs []agl.Attr) agl.Span {
	now := agl.TimestampOf(time.Now())
	attributes, err := agl.NewAttributes(attrs...)
	if err != nil {
		panic(err)
	}
	return agl.Span{
		RolloutID: t.Rollout.RolloutID, AttemptID: t.Attempt.AttemptID, TraceID: "trace", SpanID: "span-" + strconv.Itoa(n),
		Name: name, Attributes: attributes, StartTime: agl.Some(now), EndTime: agl.Some(now),
	}
}

func toInts(ids []int32) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out
}

// recorder records what an algorithm reports.
type recorder struct {
	starts      []algorithm.Start
	steps       []grpo.StepReport
	validations map[int]algorithm.Report
	warnings    []algorithm.Warning
	onRollouts  func(phase algorithm.Phase, step, done, total int)
}

// attach makes the recorder hear the runs of a config.
func (r *recorder) attach(cfg *grpo.Config) {
	r.validations = map[int]algorithm.Report{}
	cfg.OnStep = func(s grpo.StepReport) { r.steps = append(r.steps, s) }
	cfg.Progress = algorithm.Progress{
		OnStart:      func(s algorithm.Start) { r.starts = append(r.starts, s) },
		OnWarning:    func(w algorithm.Warning) { r.warnings = append(r.warnings, w) },
		OnValidation: func(step int, v algorithm.Report) { r.validations[step] = v },
		OnRollouts:   r.onRollouts,
	}
}
