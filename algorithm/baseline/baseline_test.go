package baseline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/runnertest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs agents until the test is over.
func serve(t *testing.T, st agl.Store, agent agl.AgentFunc) {
	t.Helper()
	runnertest.Serve(t, runner.Config{Store: st, Agent: agent, Workers: 3, HeartbeatInterval: -1, GracePeriod: 5 * time.Second})
}

func newBaseline(t *testing.T, cfg baseline.Config) *baseline.Baseline {
	t.Helper()
	b, err := baseline.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func numbers(n int) agl.Tasks {
	var out agl.Tasks
	for i := range n {
		out = append(out, jsontext.Value(fmt.Sprint(i)))
	}
	return out
}

// resources has what the agent looks for.
func resources() agl.Resources {
	return agl.Resources{{Name: "p", Resource: agl.PromptTemplate{Template: "hello", Engine: agl.PromptFString}}}
}

// agent halves even numbers for a reward and stumbles over odd ones.
func agent(_ context.Context, task agl.Task) (agl.Result, error) {
	if _, err := task.Resources.PromptTemplate(); err != nil {
		return agl.Result{}, err
	}
	var n int
	if err := task.DecodeInput(&n); err != nil {
		return agl.Result{}, err
	}
	if n%2 == 1 {
		return agl.Result{}, errors.New("odd")
	}
	return agl.RewardResult(float64(n) / 2), nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	serve(t, st, agent)
	var text bytes.Buffer
	b := newBaseline(t, baseline.Config{Epochs: 2, RunConfig: algorithm.RunConfig{Logger: slog.New(slog.NewTextHandler(&text, nil))}})
	err := b.Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(5), Val: numbers(2), InitialResources: resources()})
	if err != nil {
		t.Fatal(err)
	}
	// Rewards 0, 1, 2 and twice 0 for an error of the agent; that in two epochs.
	want := baseline.Report{
		Train: baseline.Counts{
			Rollouts: 10, Attempts: 10, Outcomes: map[agl.OutcomeKind]int{agl.OutcomeOK: 6, agl.OutcomeAgentError: 4},
			Rewarded: 10, RewardMean: 0.6,
		},
		Val: baseline.Counts{
			Rollouts: 4, Attempts: 4, Outcomes: map[agl.OutcomeKind]int{agl.OutcomeOK: 2, agl.OutcomeAgentError: 2},
			Rewarded: 4, RewardMean: 0,
		},
	}
	got := b.Report()
	if got.Train.Spans < 6 || got.Val.Spans < 2 {
		t.Errorf("%d and %d spans, want at least those of the rewards", got.Train.Spans, got.Val.Spans)
	}
	got.Train.Spans, got.Val.Spans = 0, 0 // the tracer has its own besides
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	update, err := st.GetLatestResources(t.Context())
	if err != nil || update.ResourcesID != "default" || len(update.Resources) != 1 {
		t.Errorf("latest resources %+v, %v; want those given, as default", update, err)
	}
	for _, line := range []string{
		`msg="rollout finished"`, `status=succeeded outcome=ok`, `status=failed outcome=agent_error`, `reward=2`, `message=odd`,
		`msg=attempt`, `number=1 status=succeeded`, `msg=span`, `attributes="agentlightning.reward.0.name agentlightning.reward.0.value"`,
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the log does not say %s:\n%s", line, text.String())
		}
	}
}

// Each rollout has a seed of its own, the same in the next run: with one for all, a second epoch would repeat the first.
func TestSeeds(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) map[string]uint64 {
		st := memorytest.Open(t)
		serve(t, st, agent)
		b := newBaseline(t, baseline.Config{Epochs: 2, RunConfig: algorithm.RunConfig{RunID: "ru-1", Seed: seed}})
		if err := b.Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(3), Val: numbers(2), InitialResources: resources()}); err != nil {
			t.Fatal(err)
		}
		page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil {
			t.Fatal(err)
		}
		seeds, taken := map[string]uint64{}, map[uint64]bool{}
		for i := range page.Items {
			r := &page.Items[i]
			var tag algorithm.Tag
			if err := json.Unmarshal(r.Metadata, &tag); err != nil {
				t.Fatal(err)
			}
			if tag.Seed >= 1<<53 || taken[tag.Seed] {
				t.Errorf("seed %d of epoch %d, %s, task %d: want one below 2⁵³ that no other has", tag.Seed, tag.Step, r.Mode, tag.Index)
			}
			taken[tag.Seed] = true
			seeds[fmt.Sprint(tag.Step, r.Mode, tag.Index)] = tag.Seed
		}
		return seeds
	}
	first := run(math.MaxUint64)
	if diff := cmp.Diff(first, run(math.MaxUint64)); diff != "" || len(first) != 10 {
		t.Errorf("%d rollouts; two runs differ (-first +second):\n%s", len(first), diff)
	}
	for rollout, seed := range run(1) {
		if seed == first[rollout] {
			t.Errorf("rollout %s has the seed %d with both seeds of the run", rollout, seed)
		}
	}
}

// A run that goes on cancels what its killed process had enqueued, and nothing of other runs.
func TestLeftoversAreCancelled(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	var left []agl.EnqueueRollout
	for _, run := range []string{"ru-1", "ru-2"} {
		left = append(left, agl.EnqueueRollout{Input: jsontext.Value("0"), Metadata: fmt.Appendf(nil, `{"run": %q}`, run)})
	}
	queued, err := st.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: left})
	if err != nil {
		t.Fatal(err)
	}
	b := newBaseline(t, baseline.Config{RunConfig: algorithm.RunConfig{RunID: "ru-1"}})
	started := &startedStore{Store: st, start: func() { serve(t, st, agent) }}
	if err := b.Run(t.Context(), agl.AlgorithmInput{Store: started, Train: numbers(1), InitialResources: resources()}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		got, err := st.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: queued[i].RolloutID})
		if err != nil || (got.Status == agl.RolloutCancelled) != want {
			t.Errorf("the rollout of run %d: %s, %v; want cancelled %v", i+1, got.Status, err, want)
		}
	}
}

// startedStore starts the runners at the first task that is enqueued.
type startedStore struct {
	agl.Store

	start func()
	once  sync.Once
}

func (s *startedStore) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	s.once.Do(s.start)
	return s.Store.EnqueueRollouts(ctx, p)
}

// TestPanics: an adapter or a callback that panics fails the run, and not the process.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]baseline.Config{
		"adapter":  {Adapter: agl.AdapterFunc[[]adapter.Triplet](func([]agl.Span) ([]adapter.Triplet, error) { panic("boom") })},
		"callback": {OnTask: func(baseline.Finished) { panic("boom") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := memorytest.Open(t)
			serve(t, st, agent)
			err := newBaseline(t, cfg).Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(3), InitialResources: resources()})
			if err == nil || !strings.Contains(err.Error(), "panic: boom, at ") || !strings.Contains(err.Error(), "baseline_test.go:") {
				t.Errorf("got %v, want the panic and where it was", err)
			}
		})
	}
}

func TestSpanVerbosity(t *testing.T) {
	t.Parallel()
	for verbosity, want := range map[baseline.Verbosity]string{
		baseline.SpanKeyValues: `attributes="{\"agentlightning.reward.0.name\":\"primary\",\"agentlightning.reward.0.value\":0.0}"`,
		baseline.SpanNone:      "",
	} {
		t.Run(string(verbosity), func(t *testing.T) {
			t.Parallel()
			st := memorytest.Open(t)
			serve(t, st, agent)
			var text bytes.Buffer
			b := newBaseline(t, baseline.Config{SpanVerbosity: verbosity, RunConfig: algorithm.RunConfig{Logger: slog.New(slog.NewTextHandler(&text, nil))}})
			if err := b.Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(1), InitialResources: resources()}); err != nil {
				t.Fatal(err)
			}
			if want == "" && strings.Contains(text.String(), "msg=span") || !strings.Contains(text.String(), want) {
				t.Errorf("want %q in the log:\n%s", want, text.String())
			}
		})
	}
}

// deepest notes how long the queue was when a rollout was enqueued.
type deepest struct {
	agl.Store

	most atomic.Int64
}

func (d *deepest) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	queued, err := d.Store.EnqueueRollouts(ctx, p)
	if err != nil {
		return nil, err
	}
	page, err := d.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutQueuing}})
	if err != nil {
		return nil, err
	}
	d.most.Store(max(d.most.Load(), int64(page.Total)))
	return queued, nil
}

func TestQueueLength(t *testing.T) {
	t.Parallel()
	st := &deepest{Store: memorytest.Open(t)}
	serve(t, st.Store, agent)
	b := newBaseline(t, baseline.Config{MaxQueueLength: 2})
	if err := b.Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(60), InitialResources: resources()}); err != nil {
		t.Fatal(err)
	}
	if got := st.most.Load(); got < 1 || got > 2 || b.Report().Train.Rollouts != 60 {
		t.Errorf("the queue held %d rollouts at most, of %d; want 1 or 2, of 60", got, b.Report().Train.Rollouts)
	}
}

// TestCancel: with no runner at all, the end of the context ends the run and
// takes back what was enqueued.
func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memorytest.Open(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := newBaseline(t, baseline.Config{MaxQueueLength: 2}).Run(ctx, agl.AlgorithmInput{Store: st, Train: numbers(5)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil || len(page.Items) != 2 {
			t.Fatalf("%d rollouts were enqueued, %v; want 2", len(page.Items), err)
		}
		for _, r := range page.Items {
			if r.Status != agl.RolloutCancelled {
				t.Errorf("rollout %s is left %s", r.RolloutID, r.Status)
			}
		}
	})
}

// away fails after a while.
type away struct {
	agl.Store

	left atomic.Int64
}

var errAway = agl.Errorf(agl.CodeUnavailable, "the store is away")

func (a *away) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	if a.left.Add(-1) < 0 {
		return nil, errAway
	}
	return a.Store.EnqueueRollouts(ctx, p)
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	st := &away{Store: memorytest.Open(t)}
	st.left.Store(2)
	err := newBaseline(t, baseline.Config{}).Run(t.Context(), agl.AlgorithmInput{Store: st, Train: numbers(5)})
	if !errors.Is(err, errAway) || err.Error() != "baseline: enqueue a rollout: the store is away" {
		t.Errorf("got %v, want the store's error", err)
	}
}

func TestRejects(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]baseline.Config{
		"baseline: Epochs is -1, must be at least 1":                                    {Epochs: -1},
		"baseline: Epochs is 9223372036854775807, must be at most 1000000000":           {Epochs: math.MaxInt},
		"baseline: MaxQueueLength is -2, must be at least 1":                            {MaxQueueLength: -2},
		`baseline: SpanVerbosity is "all"; allowed are "keys", "key_values" and "none"`: {SpanVerbosity: "all"},
		"baseline: Rollout: config.max_attempts: got -1, must be at least 1":            {RunConfig: algorithm.RunConfig{Rollout: agl.RolloutConfig{MaxAttempts: -1}}},
	} {
		if _, err := baseline.New(cfg); !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	b := newBaseline(t, baseline.Config{})
	for want, in := range map[string]agl.AlgorithmInput{
		"baseline: the input has no store":                                {Train: numbers(1)},
		"baseline: the datasets are empty; at least one task is required": {Store: agl.UnimplementedStore{}, Train: agl.Tasks{}},
	} {
		if err := b.Run(t.Context(), in); !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
