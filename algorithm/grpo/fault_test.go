package grpo_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
	"github.com/agl-go/agl/tinker/wire"
)

var everyFault = flag.Bool("every-fault", false, "meet every fault at every request of a run, not at some")

const faultSteps = 20

// remote is a run of the algorithm on an engine behind HTTP, all in one process and without a socket.
type remote struct {
	service *policy.Service
	engine  *tinkertest.Engine // around service
	fake    *tinkertest.Server
	cfg     client.Config
}

func newRemote(t *testing.T, ec tinkertest.EngineConfig, sc server.Config, cc client.Config, fault func(tinkertest.Call) tinkertest.Fault) *remote {
	t.Helper()
	return newRemoteOn(t, ec, cc, tinkertest.Config{Server: sc, Fault: fault})
}

func newRemoteOn(t *testing.T, ec tinkertest.EngineConfig, cc client.Config, fc tinkertest.Config) *remote {
	t.Helper()
	service, err := policy.NewService(policy.Config{Vocab: vocab, Context: modelContext, Layers: 1, Dim: 16, Heads: 1, FF: 16, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	ec.Service = service
	r := &remote{service: service, cfg: cc}
	if r.engine, err = tinkertest.NewEngine(ec); err != nil {
		t.Fatal(err)
	}
	fc.NewService = func() (tinker.Service, error) { return r.engine, nil }
	if r.fake, err = tinkertest.New(fc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	r.cfg.URL, r.cfg.Transport = "http://tinker.invalid", chat.Transport{Handler: r.fake}
	return r
}

// process is one process of a run: it opens a client, and goes on from what the one before left in out.
func (r *remote) process(t *testing.T, st agl.Store, out string, edit func(*grpo.Config, *speller)) (summary algorithm.Summary, steps []grpo.StepReport, err error) {
	t.Helper()
	service, err := client.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	agent := &speller{service: service}
	var rec recorder
	cfg := grpo.Config{
		RunConfig: algorithm.RunConfig{Seed: 1, OutDir: out},
		TrainingConfig: algorithm.TrainingConfig{
			Service: service, Model: tinker.CreateModelParams{Seed: 1}, Publisher: agent,
			Schedule: algorithm.Schedule{Peak: 4e-3, Warmup: 3}, CheckpointEvery: 4,
		},
		Steps: faultSteps, PromptsPerStep: 2, GroupSize: 2,
	}
	rec.attach(&cfg)
	if edit != nil {
		edit(&cfg, agent)
	}
	workers, err := runner.New(runner.Config{
		Store: st, Agent: agl.AgentFunc(agent.run), HeartbeatInterval: time.Hour, GracePeriod: 5 * time.Second,
		Snapshot: func(context.Context) (jsontext.Value, error) { return jsontext.Value("{}"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- workers.Run(ctx) }()
	g := newGRPO(t, cfg)
	err = g.Run(t.Context(), agl.AlgorithmInput{Store: st, Train: tasks(t)})
	end()
	if err := errors.Join(<-done, service.Close()); err != nil {
		t.Error(err)
	}
	return g.Summary(), rec.steps, err
}

// speller is an agent that samples once and is rewarded for high tokens, the last ones most, so that hardly
// two rollouts have the same reward.
type speller struct {
	service tinker.Service
	model   tinker.SamplingClient // of the step; changed while no agent runs
	stop    []int32
	frozen  bool // samples what was published first, ever after
}

// Publish implements algorithm.Publisher.
func (s *speller) Publish(ctx context.Context, p algorithm.Publication) (err error) {
	if s.frozen && s.model != nil {
		return nil
	}
	s.model, err = s.service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: p.Snapshot})
	return err
}

func (s *speller) run(ctx context.Context, t agl.Task) (agl.Result, error) {
	var in task
	if err := t.DecodeInput(&in); err != nil {
		return agl.Result{}, err
	}
	var place struct {
		Seed uint64 `json:"seed"`
	}
	if err := rawjson.Unmarshal(t.Rollout.Metadata, &place); err != nil {
		return agl.Result{}, err
	}
	prompt := []int32{in.Digit}
	res, err := s.model.Sample(ctx, tinker.SampleParams{Prompt: prompt, MaxTokens: 3, Temperature: 1, Seed: new(place.Seed >> 22), Stop: s.stop})
	if err != nil {
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: err}
	}
	reply := res.Sequences[0]
	content, reward := []byte{'['}, 0.0
	for i, id := range reply.Tokens {
		if i > 0 {
			content = append(content, ',')
		}
		content = append(content, `{"logprob":`...)
		content = strconv.AppendFloat(content, float64(reply.Logprobs[i]), 'g', -1, 32)
		content = append(content, '}')
		reward = (reward + float64(id)) / vocab
	}
	call := newSpan(t, 1, agl.SpanLiteLLMRequest, []agl.Attr{
		{Key: agl.AttrGenAIResponseID, Value: t.Attempt.AttemptID},
		{Key: agl.AttrPromptTokenIDs, Value: toInts(prompt)},
		{Key: agl.AttrResponseTokenIDs, Value: toInts(reply.Tokens)},
		{Key: agl.AttrLogprobsContent, Value: string(append(content, ']'))},
		{Key: agl.AttrGenAICompletion + ".0.finish_reason", Value: string(reply.StopReason)},
	})
	attrs, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: reward})
	if err != nil {
		return agl.Result{}, err
	}
	return agl.Result{Spans: []agl.Span{call, newSpan(t, 2, agl.SpanAnnotation, attrs)}}, nil
}

// ending is what a run came to: the steps behind its weights and what these lead to.
type ending struct {
	History []tinkertest.Step
	Probe   [][]float32
}

func (r *remote) ending(t *testing.T, s algorithm.Summary) ending {
	t.Helper()
	history, ok := r.engine.History(s.Weights)
	if !ok {
		t.Fatalf("nobody saved the weights %q", s.Weights)
	}
	return ending{history, probe(t, r.service, s.Weights)}
}

// unseen are the faults after which a submit has run without its answer, where the order of sequence ids matters.
var unseen = []tinkertest.Fault{tinkertest.LoseAnswer, tinkertest.BadGateway, tinkertest.Repeat, tinkertest.Gone}

// TestFaults meets one fault of each kind at requests of a run of 20 steps, on engines that run a repeat once, that
// give results with the answers to submits, that are strict about the order, and that have the limits of SkyRL: a
// repeat runs twice, snapshots change, and nothing is said of any of it. A run ends as one without faults does; if it fails, it does so with a typed error and goes on
// from its last checkpoint to the same end.
func TestFaults(t *testing.T) {
	t.Parallel()
	var want ending
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, nil)
		summary, _, err := r.process(t, memorytest.Open(t), t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		want, calls = r.ending(t, summary), r.fake.Calls()
	})
	if len(want.History) != faultSteps || calls < 10*faultSteps {
		t.Fatalf("the run without faults made %d steps and %d requests, want %d steps", len(want.History), calls, faultSteps)
	}
	// A prime, so that all kinds of requests are met.
	stride := 151
	switch {
	case *everyFault:
		stride = 1
	case testing.Short():
		stride = 499
	}
	for _, e := range []faultyEngine{
		{name: "once", order: engines.Arrival}, {name: "early", order: engines.Arrival, early: true},
		{name: "strict", order: engines.Strict}, {name: "like SkyRL", order: engines.Ignored},
	} {
		for i, fault := range tinkertest.Faults() {
			if e.order == engines.Strict && !slices.Contains(unseen, fault) {
				continue // as on arrival
			}
			t.Run(e.name+"/"+string(fault), func(t *testing.T) {
				t.Parallel()
				tally := map[string]int{}
				runs := 0
				for n := (i + 1) % stride; n < calls; n += stride {
					synctest.Test(t, func(t *testing.T) { faultyRun(t, e, fault, n, want, tally) })
					runs++
				}
				t.Logf("%d runs, of which resumed: %v", runs, tally)
			})
		}
	}
}

// TestStepsAreQueued: the engine has the optimizer step before anybody waits for the gradient.
func TestStepsAreQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var paths []string
		r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, func(c tinkertest.Call) tinkertest.Fault {
			paths = append(paths, c.Path)
			return tinkertest.None
		})
		if _, _, err := r.process(t, memorytest.Open(t), t.TempDir(), func(c *grpo.Config, _ *speller) { c.Steps = 3 }); err != nil {
			t.Fatal(err)
		}
		steps := 0
		for i, path := range paths {
			if path == wire.ForwardBackward {
				steps++
				if paths[i+1] != wire.OptimStep {
					t.Errorf("request %d: %s follows a forward_backward, want optim_step", i, paths[i+1])
				}
			}
		}
		if steps != 3 {
			t.Errorf("%d steps, want 3", steps)
		}
	})
}

type faultyEngine struct {
	name  string
	order engines.Order
	early bool
}

// faultyRun is a run whose request n meets a fault.
func faultyRun(t *testing.T, e faultyEngine, fault tinkertest.Fault, n int, want ending, tally map[string]int) {
	t.Helper()
	path := ""
	limited := e.order == engines.Ignored
	engine, sc, cc := tinkertest.EngineConfig{NewestOnly: limited}, server.Config{Order: e.order, HideEngine: limited}, client.Config{}
	if limited {
		cc.Engine = &engines.Engine{Normalization: engines.Sum, Vocab: vocab, Context: modelContext}
	}
	r := newRemoteOn(t, engine, cc, tinkertest.Config{Server: sc, EarlyResults: e.early, Fault: func(c tinkertest.Call) tinkertest.Fault {
		if c.N != n {
			return tinkertest.None
		}
		path = c.Path
		if unnoticed := limited && fault == tinkertest.Repeat; unnoticed && slices.Contains([]string{wire.ForwardBackward, wire.OptimStep}, c.Path) {
			return tinkertest.None // a client cannot help what happens behind it
		}
		return fault
	}})
	st, out := memorytest.Open(t), t.TempDir()
	var failures []error
	for {
		summary, _, err := r.process(t, st, out, nil)
		if err == nil {
			if diff := cmp.Diff(want, r.ending(t, summary)); diff != "" {
				t.Errorf("%s at request %d (%s): another end after %v\n%s", fault, n, path, failures, diff)
			}
			break
		}
		if code := agl.ErrorCode(err); code == agl.CodeInternal || code == agl.CodeInvalid {
			t.Fatalf("%s at request %d (%s): an error without a type: %v", fault, n, path, err)
		}
		if failures = append(failures, err); len(failures) > 2 {
			t.Fatalf("%s at request %d (%s): %v", fault, n, path, errors.Join(failures...))
		}
	}
	if twice := r.engine.Twice(); twice > 0 {
		t.Errorf("%s at request %d (%s): %d gradients came twice", fault, n, path, twice)
	}
	if list := r.engine.Violations(); len(list) > 0 {
		t.Errorf("%s at request %d (%s): %v", fault, n, path, list)
	}
	// Where a repeat runs once, only a restart ends a process.
	if len(failures) > 0 {
		tally[path]++
		if !limited && fault != tinkertest.Restart {
			t.Errorf("%s at request %d (%s): %v", fault, n, path, failures)
		}
	}
}
