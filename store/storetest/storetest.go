// Package storetest is the suite that every [agl.Store] must pass: the engine over each
// driver, and the HTTP client.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB, p storetest.OpenParams) storetest.Instance {
//			return storetest.Instance{Store: openEmpty(tb)}
//		})
//	}
//
// It uses the store through that interface only, and must not know what is behind it.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Open opens an empty store for one test and closes it by tb.Cleanup.
type Open func(tb testing.TB, p OpenParams) Instance

// OpenParams says which kind of store a test needs.
type OpenParams struct {
	// SpanBytes, if not 0, asks for a store that evicts spans above this size, down to
	// SafeSpanBytes. A store that does not keep spans in memory ignores them.
	SpanBytes     int64
	SafeSpanBytes int64
}

// Instance is a store under test. Only Store is required. Tests that need a missing field are
// skipped.
type Instance struct {
	Store agl.Store
	// Advance moves the store's clock. Without it, tests of deadlines are skipped.
	Advance func(d time.Duration)
	// Evicts reports that the store honours SpanBytes.
	Evicts bool
	// Restart closes the store and opens another one over the same data and clock, as a
	// restarted server would. The cleanup of Open closes the last one. Without Restart,
	// tests of restarts are skipped.
	Restart func() agl.Store
	// Close closes the store; the cleanup of Open closes it again. Without it, tests of
	// closed stores are skipped.
	Close func() error
}

// Closer is a store that can be closed; it may be closed several times.
type Closer interface {
	agl.Store
	Close(ctx context.Context) error
}

// Restartable returns an instance whose Restart calls open again, which must open a store over
// the same data. The cleanup of tb closes it.
func Restartable(tb testing.TB, open func() Closer) Instance {
	tb.Helper()
	current := open()
	closeCurrent := func() error { return current.Close(context.WithoutCancel(tb.Context())) }
	tb.Cleanup(func() {
		if err := closeCurrent(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return Instance{Store: current, Close: closeCurrent, Restart: func() agl.Store {
		if err := closeCurrent(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
		current = open()
		return current
	}}
}

// Run runs the suite, one sub-test for each behaviour, in parallel.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, subject := range []struct {
		name  string
		tests func(*area)
	}{
		{"lifecycle", lifecycleTests},
		{"update", updateTests},
		{"deadlines", deadlineTests},
		{"queue", queueTests},
		{"sequence", sequenceTests},
		{"spans", spanTests},
		{"conversation", conversationTests},
		{"query", queryTests},
		{"rewards", rewardTests},
		{"labels", labelTests},
		{"resources", resourcesTests},
		{"workers", workerTests},
		{"wait", waitTests},
		{"cancel", cancelTests},
		{"revise", reviseTests},
		{"idempotency", idempotencyTests},
		{"documents", documentTests},
		{"runs", runTests},
		{"utf8", utf8Tests},
		{"events", eventTests},
		{"eviction", evictionTests},
		{"bulk", bulkTests},
		{"restart", restartTests},
		{"close", closeTests},
		{"concurrent", concurrentTests},
		{"ids", idTests},
		{"model", modelTests},
	} {
		t.Run(subject.name, func(t *testing.T) {
			t.Parallel()
			subject.tests(&area{t, open})
		})
	}
}

// area runs the tests of one subject.
type area struct {
	t    *testing.T
	open Open
}

// test runs one test against a store of its own.
func (a *area) test(name string, f func(h *harness)) {
	a.testWith(name, OpenParams{}, f)
}

func (a *area) testWith(name string, p OpenParams, f func(h *harness)) {
	a.t.Run(name, func(t *testing.T) {
		t.Parallel()
		instance := a.open(t, p)
		f(&harness{T: t, Instance: instance, ctx: t.Context()})
	})
}

// harness calls the store and ends the test on an error that it does not
// expect.
type harness struct {
	*testing.T
	Instance

	ctx context.Context //nolint:containedctx // a test's own, for all of its calls
}

func (h *harness) needClock() {
	h.Helper()
	if h.Advance == nil {
		h.Skip("the store's clock cannot be moved")
	}
}

// tick moves the store's clock by a second, if it can be moved.
func (h *harness) tick() {
	if h.Advance != nil {
		h.Advance(time.Second)
	}
}

// must takes the results of a call, and returns a function that ends the test if there is an error:
// must(h.Store.Statistics(h.ctx))(h).
func must[T any](v T, err error) func(h *harness) T {
	return func(h *harness) T {
		h.Helper()
		h.ok(err)
		return v
	}
}

// errorOf takes the results of a call of which only the error matters.
func errorOf[T any](_ T, err error) error { return err }

// ok ends the test if there is an error.
func (h *harness) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("unexpected error: %v", err)
	}
}

// background runs a call in another goroutine and returns a channel with its result.
func background[T any](h *harness, call func() (T, error)) <-chan T {
	done := make(chan T, 1)
	go func() {
		got, err := call()
		if err != nil {
			h.Error(err)
		}
		done <- got
	}()
	return done
}

// advanced moves the clock again and again until the result is there: the call may begin after the first move.
func advanced[T any](h *harness, done <-chan T) T {
	for {
		h.Advance(time.Minute)
		select {
		case got := <-done:
			return got
		case <-time.After(time.Millisecond):
		}
	}
}

// together makes n calls at once.
func (h *harness) together(n int, call func(i int) error) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := call(i); err != nil {
				h.Error(err)
			}
		})
	}
	group.Wait()
}

// wantCancelled checks that a call ends with its context.
func (h *harness) wantCancelled(call func(ctx context.Context) error) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.ctx)
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		h.Errorf("got error %v, want that of the context", err)
	}
}

// wantError checks an error's kind and, unless it is empty, its message.
func (h *harness) wantError(err, kind error, message string) {
	h.Helper()
	if !errors.Is(err, kind) {
		h.Fatalf("got error %v, want %v", err, kind)
	}
	if message != "" && err.Error() != message {
		h.Errorf("got message %q, want %q", err, message)
	}
}

// equal reports a difference.
func equal[T comparable](h *harness, what string, got, want T) {
	h.Helper()
	if got != want {
		h.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func config(c agl.RolloutConfig) agl.EnqueueRollout {
	return agl.EnqueueRollout{Input: jsontext.Value(`{"task":1}`), Config: &c}
}

func retry(most int, on ...agl.AttemptStatus) agl.RolloutConfig {
	return agl.RolloutConfig{MaxAttempts: most, RetryCondition: on}
}

func (h *harness) enqueue(rollouts ...agl.EnqueueRollout) []agl.Rollout {
	h.Helper()
	got := must(h.Store.EnqueueRollouts(h.ctx, agl.EnqueueRolloutsParams{Rollouts: rollouts}))(h)
	if len(got) != len(rollouts) {
		h.Fatalf("enqueued %d rollouts, got %d back", len(rollouts), len(got))
	}
	return got
}

func (h *harness) enqueueOne() agl.Rollout {
	h.Helper()
	return h.enqueue(agl.EnqueueRollout{Input: jsontext.Value(`1`)})[0]
}

func (h *harness) start(e agl.EnqueueRollout, worker string) agl.AttemptedRollout {
	h.Helper()
	return must(h.Store.StartRollout(h.ctx, agl.StartRolloutParams{EnqueueRollout: e, WorkerID: workerID(worker)}))(h)
}

func workerID(id string) agl.Null[string] {
	if id == "" {
		return agl.Null[string]{}
	}
	return agl.Some(id)
}

func (h *harness) startAttempt(rolloutID, worker string) agl.AttemptedRollout {
	h.Helper()
	return must(h.Store.StartAttempt(h.ctx, agl.StartAttemptParams{RolloutID: rolloutID, WorkerID: workerID(worker)}))(h)
}

func (h *harness) dequeue(limit int, worker string) []agl.AttemptedRollout {
	h.Helper()
	return must(h.Store.DequeueRollouts(h.ctx, agl.DequeueRolloutsParams{Limit: limit, WorkerID: workerID(worker)}))(h).Rollouts
}

// dequeueOne claims the rollout that must be next.
func (h *harness) dequeueOne(worker, rolloutID string) agl.AttemptedRollout {
	h.Helper()
	got := h.dequeue(1, worker)
	if len(got) != 1 || got[0].RolloutID != rolloutID || got[0].Attempt == nil {
		h.Fatalf("dequeued %v, want rollout %s with an attempt", got, rolloutID)
	}
	return got[0]
}

func (h *harness) get(rolloutID string) agl.AttemptedRollout {
	h.Helper()
	return must(h.Store.GetRollout(h.ctx, agl.GetRolloutParams{RolloutID: rolloutID}))(h)
}

func (h *harness) attempts(rolloutID string) []agl.Attempt {
	h.Helper()
	return must(h.Store.QueryAttempts(h.ctx, agl.QueryAttemptsParams{RolloutID: rolloutID}))(h).Items
}

func (h *harness) worker(id string) agl.Worker {
	h.Helper()
	return must(h.Store.GetWorker(h.ctx, agl.GetWorkerParams{WorkerID: id}))(h)
}

func (h *harness) report(rolloutID, attemptID string, status agl.AttemptStatus) agl.Attempt {
	h.Helper()
	return must(h.Store.UpdateAttempt(h.ctx, agl.UpdateAttemptParams{RolloutID: rolloutID, AttemptID: attemptID, Status: &status}))(h)
}

func (h *harness) setStatus(rolloutID string, status agl.RolloutStatus) agl.Rollout {
	h.Helper()
	return must(h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{RolloutID: rolloutID, Status: &status}))(h)
}

func (h *harness) cancel(rolloutID string) agl.Rollout {
	h.Helper()
	return must(h.Store.CancelRollout(h.ctx, agl.CancelRolloutParams{RolloutID: rolloutID}))(h)
}

// span returns a span with every member that clients may send.
func span(rolloutID, attemptID, spanID string, sequence int64) agl.Span {
	return agl.Span{
		RolloutID: rolloutID, AttemptID: attemptID, SpanID: spanID, SequenceID: sequence,
		TraceID: "0af7651916cd43dd8448eb211c80319c", Name: "span " + spanID,
		Status:     agl.SpanStatus{Code: agl.StatusOK},
		Attributes: agl.Attributes(`{"n":1.0,"big":12345678901234567890}`),
		Resource:   agl.SpanResource{Attributes: agl.Attributes(`{}`)},
	}
}

func (h *harness) addSpans(spans ...agl.Span) agl.AddSpansResult {
	h.Helper()
	return must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: spans}))(h)
}

// touch stores a span for an attempt.
func (h *harness) touch(a *agl.Attempt) {
	h.Helper()
	first := must(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: a.RolloutID, AttemptID: a.AttemptID}))(h)
	h.addSpans(span(a.RolloutID, a.AttemptID, "touch-"+strconv.FormatInt(first, 10), first))
}

func (h *harness) spans(p agl.QuerySpansParams) agl.Page[agl.Span] {
	h.Helper()
	return must(h.Store.QuerySpans(h.ctx, p))(h)
}

// wantStatus checks a rollout's and its latest attempt's status.
func (h *harness) wantStatus(rolloutID string, rollout agl.RolloutStatus, attempt agl.AttemptStatus) agl.AttemptedRollout {
	h.Helper()
	got := h.get(rolloutID)
	equal(h, "rollout status", got.Status, rollout)
	var status agl.AttemptStatus
	if got.Attempt != nil {
		status = got.Attempt.Status
	}
	equal(h, "attempt status", status, attempt)
	equal(h, "rollout has an end time", got.EndTime.Valid, rollout.Finished())
	return got
}

// wantEmptyQueue checks that nothing can be claimed.
func (h *harness) wantEmptyQueue() {
	h.Helper()
	if got := h.dequeue(10, ""); len(got) > 0 {
		h.Errorf("dequeued %d rollouts, want none", len(got))
	}
}

// ids joins the ids of items by spaces; none gives "-".
func ids[T any](items []T, id func(*T) string) string {
	var out []string
	for i := range items {
		out = append(out, id(&items[i]))
	}
	return cmp.Or(strings.Join(out, " "), "-")
}
