package algorithm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
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

// echo gives the number in its input as the reward; other inputs are faults.
func echo(_ context.Context, task agl.Task) (agl.Result, error) {
	var reward float64
	if task.DecodeInput(&reward) == nil {
		return agl.RewardResult(reward), nil
	}
	switch string(task.Input()) {
	case `"silent"`:
		return agl.Result{}, nil
	case `"away"`:
		return agl.Result{}, &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: errors.New("no model")}
	}
	return agl.Result{}, errors.New("cannot do this")
}

func inputs(list ...string) []agl.EnqueueRollout {
	var out []agl.EnqueueRollout
	for _, in := range list {
		out = append(out, agl.EnqueueRollout{Input: jsontext.Value(in), Mode: agl.ModeTrain, ResourcesID: agl.Some("r")})
	}
	return out
}

// withResources makes the resources that inputs names.
func withResources(t *testing.T, st agl.Store) {
	t.Helper()
	if _, err := st.UpdateResources(t.Context(), agl.UpdateResourcesParams{ResourcesID: "r"}); err != nil {
		t.Fatal(err)
	}
}

type flushes struct {
	mu  sync.Mutex
	ids [][]string
	err error
}

func (f *flushes) Flush(_ context.Context, ids []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, ids)
	return f.err
}

func TestRollouts(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	withResources(t, st)
	serve(t, st, echo)
	var flushed flushes
	groups := map[int][]string{}
	for group, err := range algorithm.Rollouts(t.Context(), algorithm.RolloutsParams{
		Store: st, Rollouts: inputs("0", "1", `"silent"`, `"away"`, `"bad"`), GroupSize: 2, Flusher: &flushed,
	}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range group.Episodes {
			reward, mask := e.Score()
			groups[group.Index] = append(groups[group.Index], fmt.Sprintf("%s: %s %v %s", e.Rollout.Input, e.Outcome.Kind, reward, mask))
		}
	}
	want := map[int][]string{
		0: {"0: ok 0 ", "1: ok 1 "},
		1: {`"silent": ok 0 missing_reward`, `"away": model_error 0 model_error`},
		2: {`"bad": agent_error 0 `},
	}
	if diff := cmp.Diff(want, groups); diff != "" {
		t.Errorf("episodes (-want +got):\n%s", diff)
	}
	if len(flushed.ids) != 3 {
		t.Errorf("flushed %v, want one call for each group", flushed.ids)
	}
}

// TestRolloutsStream: a group is handed out while others are still running.
func TestRolloutsStream(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	withResources(t, st)
	release := make(chan struct{})
	serve(t, st, func(ctx context.Context, task agl.Task) (agl.Result, error) {
		if string(task.Input()) == `"slow"` {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return agl.RewardResult(1), nil
	})
	var order []int
	for group, err := range algorithm.Rollouts(t.Context(), algorithm.RolloutsParams{Store: st, Rollouts: inputs(`"slow"`, "1")}) {
		if err != nil {
			t.Fatal(err)
		}
		if group.Index == 1 {
			close(release) // the first group ends only after the second was handed out
		}
		order = append(order, group.Index)
	}
	if !slices.Equal(order, []int{1, 0}) {
		t.Errorf("groups came as %v, want 1 before 0", order)
	}
}

// TestRolloutsCancel: whatever ends the iteration, nothing is left in the queue.
func TestRolloutsCancel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(ctx context.Context, t *testing.T, b algorithm.RolloutsParams)
	}{
		{"break", func(ctx context.Context, t *testing.T, b algorithm.RolloutsParams) {
			t.Helper()
			b.Rollouts = append(b.Rollouts, inputs("1")...)
			b.Store = cancelling{b.Store, 3}
			for group, err := range algorithm.Rollouts(ctx, b) {
				if err != nil || group.Index != 2 {
					t.Errorf("group %d, %v; want the last one", group.Index, err)
				}
				break
			}
		}},
		{"context", func(ctx context.Context, t *testing.T, b algorithm.RolloutsParams) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			for _, err := range algorithm.Rollouts(ctx, b) {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want the context's error", err)
				}
			}
		}},
		{"the flusher is away", func(ctx context.Context, t *testing.T, b algorithm.RolloutsParams) {
			t.Helper()
			b.Flusher = &flushes{err: agl.Errorf(agl.CodeUnavailable, "not running")}
			b.Store = cancelling{b.Store, 2}
			for _, err := range algorithm.Rollouts(ctx, b) {
				if !errors.Is(err, agl.ErrUnavailable) {
					t.Errorf("got %v, want the flusher's error", err)
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			st := memorytest.Open(t)
			tc.end(t.Context(), t, algorithm.RolloutsParams{Store: st, Rollouts: inputs("1", "2")})
			page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Items {
				if !r.Status.Finished() {
					t.Errorf("rollout %s is left %s", r.RolloutID, r.Status)
				}
			}
		})
	}
}

// cancelling cancels the n-th rollout of each batch at once.
type cancelling struct {
	agl.Store

	n int
}

func (c cancelling) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	queued, err := c.Store.EnqueueRollouts(ctx, p)
	if err != nil {
		return nil, err
	}
	_, err = c.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: queued[c.n-1].RolloutID})
	return queued, err
}

// lossy has lost calls of one rollout.
type lossy struct{ id string }

func (l lossy) Flush(_ context.Context, ids []string) error {
	if slices.Contains(ids, l.id) {
		return agl.Errorf(agl.CodeInternal, "1 call record could not be stored")
	}
	return nil
}

func TestAwaitLost(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	withResources(t, st)
	serve(t, st, echo)
	queued, err := st.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: inputs("1", "1", `"away"`)})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{queued[0].RolloutID, queued[1].RolloutID, queued[2].RolloutID}
	for lost, want := range [][]string{
		{"setup_error", "ok", "model_error"},
		{"ok", "setup_error", "model_error"},
		{"ok", "ok", "model_error"}, // masked already, for a better reason
	} {
		episodes, err := algorithm.Await(t.Context(), st, lossy{ids[lost]}, nil, ids)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range episodes {
			got = append(got, string(e.Outcome.Kind))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls of rollout %d lost (-want +got):\n%s", lost, diff)
		}
	}
}

// meeting is a store that cancels nothing before two cancels have come.
type meeting struct {
	agl.Store

	came chan struct{}
	once sync.Once
	met  chan struct{}
}

func (m *meeting) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	select {
	case m.came <- struct{}{}: // the first
	default:
		m.once.Do(func() { close(m.met) })
	}
	select {
	case <-m.met:
	case <-ctx.Done():
		return agl.Rollout{}, ctx.Err()
	}
	return m.Store.CancelRollout(ctx, p)
}

// Rollouts are cancelled together, so that a slow store has time for all of them.
func TestCancelTogether(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	var all []string
	for range 100 {
		all = append(all, "1")
	}
	queued, err := st.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: inputs(all...)})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(queued))
	for i, r := range queued {
		ids[i] = r.RolloutID
	}
	m := &meeting{Store: st, came: make(chan struct{}, 1), met: make(chan struct{})}
	if err := algorithm.Cancel(t.Context(), m, ids); err != nil {
		t.Fatal(err)
	}
	page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutCancelled}})
	if err != nil || len(page.Items) != len(ids) {
		t.Errorf("%d of %d rollouts are cancelled (%v)", len(page.Items), len(ids), err)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "cancel 100 of 100 rollouts, such as " + ids[0] + ": the store is closed"
	if err := algorithm.Cancel(t.Context(), st, ids); !errors.Is(err, agl.ErrUnavailable) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Rollouts that nobody ran are masked by what became of them.
func TestAwaitStrays(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	queued, err := st.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: inputs("1", "2", "3", "4")})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"ro-nowhere"}
	for _, r := range queued {
		ids = append(ids, r.RolloutID)
	}
	if err := algorithm.Cancel(t.Context(), st, ids[:3]); err != nil { // an unknown one is no error
		t.Fatal(err)
	}
	for i, status := range []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed} {
		if _, err := st.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: ids[3+i], Status: &status}); err != nil {
			t.Fatal(err)
		}
	}
	episodes, err := algorithm.Await(t.Context(), st, nil, nil, ids)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range episodes {
		reward, mask := e.Score()
		got = append(got, fmt.Sprintf("%t %s %v %s", e.Rollout.RolloutID == ids[i], e.Outcome.Kind, reward, mask))
	}
	want := []string{
		"true cancelled 0 cancelled", "true cancelled 0 cancelled", "true cancelled 0 cancelled",
		"true ok 0 missing_reward", "true agent_error 0 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("episodes (-want +got):\n%s", diff)
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	reward := func(value any) agl.Span {
		attrs, err := agl.NewAttributes(agl.Attr{Key: "agentlightning.reward.0.name", Value: "primary"}, agl.Attr{Key: "agentlightning.reward.0.value", Value: value})
		if err != nil {
			t.Fatal(err)
		}
		return agl.Span{Name: agl.SpanAnnotation, Attributes: attrs}
	}
	for _, tc := range []struct {
		name    string
		episode algorithm.Episode
		reward  float64
		mask    algorithm.Mask
	}{
		{"last reward counts", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeOK}, Spans: []agl.Span{reward(0.25), reward(0.5)}}, 0.5, ""},
		{"no reward", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeOK}}, 0, algorithm.MaskMissingReward},
		{"not a number", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeOK}, Spans: []agl.Span{reward("NaN")}}, 0, algorithm.MaskMissingReward},
		{"agent error", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeAgentError}}, 0, ""},
		{"agent error after a reward", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeAgentError}, Spans: []agl.Span{reward(0.5)}}, 0.5, ""},
		{"timeout after a reward", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeTimeout}, Spans: []agl.Span{reward(0.5)}}, 0, "timeout"},
		{"evicted", algorithm.Episode{Outcome: agl.Outcome{Kind: agl.OutcomeOK}, Evicted: true}, 0, algorithm.MaskEvicted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if reward, mask := tc.episode.Score(); reward != tc.reward || mask != tc.mask {
				t.Errorf("got %v, %q, want %v, %q", reward, mask, tc.reward, tc.mask)
			}
		})
	}
}

// The runner of a program cannot know why it failed; the record of its last call
// can.
func TestFailedCallIsNoFailureOfTheAgent(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	var rollouts []string
	for _, outcome := range []string{"model_error", ""} {
		r, err := st.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
		if err != nil {
			t.Fatal(err)
		}
		attributes := `{"agentlightning.proxy.delivered":true}`
		if outcome != "" {
			attributes = `{"agentlightning.proxy.delivered":true,"agentlightning.proxy.outcome":"` + outcome + `"}`
		}
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: 1, TraceID: "t", SpanID: "s", Name: "call",
			Attributes: agl.Attributes(attributes),
		}
		if _, err := st.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
			t.Fatal(err)
		}
		failed := agl.WithOutcome(nil, agl.Outcome{Kind: agl.OutcomeAgentError, Message: "exit status 1"})
		if _, err := st.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: new(agl.AttemptFailed), Metadata: failed,
		}); err != nil {
			t.Fatal(err)
		}
		rollouts = append(rollouts, r.RolloutID)
	}
	for i, want := range []struct {
		mask    algorithm.Mask
		message string
	}{{algorithm.Mask(agl.OutcomeModelError), "exit status 1"}, {"", "exit status 1"}} {
		page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{RolloutIDIn: rollouts[i : i+1]})
		if err != nil || len(page.Items) != 1 {
			t.Fatal(page, err)
		}
		e, err := algorithm.Read(t.Context(), st, page.Items[0])
		if err != nil {
			t.Fatal(err)
		}
		if reward, mask := e.Score(); reward != 0 || mask != want.mask || e.Outcome.Message != want.message {
			t.Errorf("%d: %v, %q, %+v", i, reward, mask, e.Outcome)
		}
	}
}
