package runner_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faultyStore is a real store some of whose calls a test intercepts: a nil
// function lets the call pass, an error fails it.
type faultyStore struct {
	agl.Store
	dequeue       func() error
	updateAttempt func(p agl.UpdateAttemptParams) error
	addSpans      func(p agl.AddSpansParams) error
	getResources  func() error
	updateWorker  func(ctx context.Context) error
}

func (s *faultyStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	if s.dequeue != nil {
		if err := s.dequeue(); err != nil {
			return agl.DequeueResult{}, err
		}
	}
	return s.Store.DequeueRollouts(ctx, p)
}

func (s *faultyStore) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	if s.updateAttempt != nil {
		if err := s.updateAttempt(p); err != nil {
			return agl.Attempt{}, err
		}
	}
	return s.Store.UpdateAttempt(ctx, p)
}

func (s *faultyStore) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	if s.addSpans != nil {
		if err := s.addSpans(p); err != nil {
			return agl.AddSpansResult{}, err
		}
	}
	return s.Store.AddSpans(ctx, p)
}

func (s *faultyStore) UpdateWorker(ctx context.Context, p agl.UpdateWorkerParams) (agl.Worker, error) {
	if s.updateWorker != nil {
		if err := s.updateWorker(ctx); err != nil {
			return agl.Worker{}, err
		}
	}
	return s.Store.UpdateWorker(ctx, p)
}

func (s *faultyStore) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	if s.getResources != nil {
		if err := s.getResources(); err != nil {
			return agl.ResourcesUpdate{}, err
		}
	}
	return s.Store.GetLatestResources(ctx)
}

func openStore(t *testing.T) *faultyStore {
	t.Helper()
	return &faultyStore{Store: memorytest.Open(t)}
}

var someResources = agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: "{question}", Engine: agl.PromptFString}}}

func addResources(t *testing.T, s agl.Store, resources agl.Resources) {
	t.Helper()
	if _, err := s.AddResources(t.Context(), agl.AddResourcesParams{Resources: resources}); err != nil {
		t.Fatal(err)
	}
}

// enqueue adds resources and one rollout with the config.
func enqueue(t *testing.T, s agl.Store, config agl.RolloutConfig) string {
	t.Helper()
	addResources(t, s, someResources)
	rollouts, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{
		Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`{"question":"why?"}`), Config: &config}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rollouts[0].RolloutID
}

func newRunner(t *testing.T, cfg runner.Config) *runner.Runner {
	t.Helper()
	if cfg.Snapshot == nil {
		cfg.Snapshot = func(context.Context) (jsontext.Value, error) { return jsontext.Value(`{"host":"test"}`), nil }
	}
	r, err := runner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runOne executes one rollout from the queue.
func runOne(t *testing.T, cfg runner.Config) {
	t.Helper()
	cfg.MaxRollouts = 1
	if err := newRunner(t, cfg).Run(t.Context()); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// inBackground runs the runner until stop, which waits for it.
func inBackground(t *testing.T, r *runner.Runner) (cancel, wait func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return cancel, wg.Wait
}

func get(t *testing.T, s agl.Store, rolloutID string) agl.AttemptedRollout {
	t.Helper()
	rollout, err := s.GetRollout(context.WithoutCancel(t.Context()), agl.GetRolloutParams{RolloutID: rolloutID})
	if err != nil {
		t.Fatal(err)
	}
	return rollout
}

// checkEnd checks how a rollout and its latest attempt ended.
func checkEnd(t *testing.T, s agl.Store, rolloutID string, status agl.RolloutStatus, attempt agl.AttemptStatus, kind agl.OutcomeKind) agl.Outcome {
	t.Helper()
	rollout := get(t, s, rolloutID)
	if rollout.Attempt == nil {
		t.Fatalf("rollout is %s and was never claimed", rollout.Status)
	}
	outcome, _ := rollout.Attempt.Outcome()
	if rollout.Status != status || rollout.Attempt.Status != attempt || outcome.Kind != kind {
		t.Errorf("rollout is %s, attempt %s, outcome %s (%s); want %s, %s, %s",
			rollout.Status, rollout.Attempt.Status, outcome.Kind, outcome.Message, status, attempt, kind)
	}
	return outcome
}

func spansOf(t *testing.T, s agl.Store, rolloutID string) []agl.Span {
	t.Helper()
	page, err := s.QuerySpans(context.WithoutCancel(t.Context()), agl.QuerySpansParams{RolloutID: rolloutID, AttemptID: agl.LatestAttempt})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func spanNames(spans []agl.Span) []string {
	var names []string
	for _, s := range spans {
		names = append(names, s.Name)
	}
	return names
}

// untilDone is an agent that works until its context ends.
func untilDone(ctx context.Context, _ agl.Task) (agl.Result, error) {
	<-ctx.Done()
	return agl.Result{}, ctx.Err()
}

func seconds(s float64) agl.Null[float64] { return agl.Some(s) }

const grace = 3 * time.Second // the default
