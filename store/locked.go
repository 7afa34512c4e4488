package store

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Locked makes a store safe for concurrent use that is not: it calls s from one goroutine at a time. Waiting does not
// hold the lock: DequeueRollouts and WaitForRollouts poll s after each write through the returned store, and every
// 100 ms in case somebody else writes. Events is ErrUnimplemented, because a waiting stream would hold the lock.
// Capabilities are those of s. Methods of s beyond agl.Store, such as those of agl.DocumentStore, are hidden.
func Locked(s agl.Store) agl.Store { return &locked{inner: s, changed: make(chan struct{})} }

// lockedPoll is how often a waiting call polls.
const lockedPoll = 100 * time.Millisecond

type locked struct {
	inner agl.Store

	mu      sync.Mutex    // held while inner is called
	changed chan struct{} // closed by the next write
}

var _ agl.Store = (*locked)(nil)

// get calls a method that changes nothing.
func get[T any](l *locked, call func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return call()
}

// set calls a method that may change something, and wakes the calls that wait.
func set[T any](l *locked, call func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		close(l.changed)
		l.changed = make(chan struct{})
	}()
	return call()
}

// do is set for a method without a result.
func (l *locked) do(call func() error) error {
	_, err := set(l, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// until calls ask until it has an answer or d has passed; a negative d waits for ever.
func until[T any](ctx context.Context, l *locked, d time.Duration, ask func() (answer T, done bool, err error)) (T, error) {
	deadline := time.Now().Add(d)
	for {
		l.mu.Lock()
		answer, done, err := ask()
		changed := l.changed
		l.mu.Unlock()
		wait := lockedPoll
		if d >= 0 {
			wait = min(wait, time.Until(deadline))
		}
		if done || err != nil || wait <= 0 {
			return answer, err
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
	}
}

func (l *locked) Capabilities() agl.Capabilities { return l.inner.Capabilities() }

func (l *locked) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	wait := p.Wait
	p.Wait = 0
	return until(ctx, l, max(wait, 0), func() (agl.DequeueResult, bool, error) {
		result, err := l.inner.DequeueRollouts(ctx, p)
		return result, len(result.Rollouts) > 0 || result.Closed, err
	})
}

func (l *locked) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	wait := time.Duration(-1)
	if p.Timeout.Valid {
		wait = max(p.Timeout.V, 0)
	}
	p.Timeout = agl.Some(time.Duration(0))
	return until(ctx, l, wait, func() ([]agl.Rollout, bool, error) {
		finished, err := l.inner.WaitForRollouts(ctx, p)
		if err != nil {
			return nil, false, err
		}
		done, err := l.allFinished(ctx, p.RolloutIDs, finished)
		return finished, done, err
	})
}

// allFinished reports whether none of the other rollouts exists. It is called with mu held.
func (l *locked) allFinished(ctx context.Context, ids []string, finished []agl.Rollout) (bool, error) {
	known := make(map[string]struct{}, len(finished))
	for i := range finished {
		known[finished[i].RolloutID] = struct{}{}
	}
	for _, id := range ids {
		if _, found := known[id]; found {
			continue
		}
		if _, err := l.inner.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id}); !errors.Is(err, agl.ErrNotFound) {
			return false, err
		}
		known[id] = struct{}{}
	}
	return true, nil
}

func (l *locked) Events(context.Context, agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		yield(agl.Event{}, agl.Errorf(agl.CodeUnimplemented, "a store behind store.Locked has no Events: a stream that waits would hold its lock"))
	}
}

func (l *locked) Ready(ctx context.Context) error {
	_, err := get(l, func() (struct{}, error) { return struct{}{}, l.inner.Ready(ctx) })
	return err
}

func (l *locked) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return set(l, func() ([]agl.Rollout, error) { return l.inner.EnqueueRollouts(ctx, p) })
}

func (l *locked) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	return set(l, func() (agl.AttemptedRollout, error) { return l.inner.StartRollout(ctx, p) })
}

func (l *locked) CreateRollouts(ctx context.Context, p agl.CreateRolloutsParams) ([]agl.AttemptedRollout, error) {
	return set(l, func() ([]agl.AttemptedRollout, error) { return l.inner.CreateRollouts(ctx, p) })
}

func (l *locked) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) error {
	return l.do(func() error { return l.inner.ReturnClaims(ctx, p) })
}

func (l *locked) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error) {
	return set(l, func() (agl.AttemptedRollout, error) { return l.inner.StartAttempt(ctx, p) })
}

func (l *locked) UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (agl.Rollout, error) {
	return set(l, func() (agl.Rollout, error) { return l.inner.UpdateRollout(ctx, p) })
}

func (l *locked) ReviseRollout(ctx context.Context, p agl.ReviseRolloutParams) (agl.AttemptedRollout, error) {
	return set(l, func() (agl.AttemptedRollout, error) { return l.inner.ReviseRollout(ctx, p) })
}

func (l *locked) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	return set(l, func() (agl.Attempt, error) { return l.inner.UpdateAttempt(ctx, p) })
}

func (l *locked) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return set(l, func() (agl.Rollout, error) { return l.inner.CancelRollout(ctx, p) })
}

func (l *locked) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) error {
	return l.do(func() error { return l.inner.DeleteRollout(ctx, p) })
}

func (l *locked) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return get(l, func() (agl.AttemptedRollout, error) { return l.inner.GetRollout(ctx, p) })
}

func (l *locked) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	return get(l, func() (agl.Page[agl.AttemptedRollout], error) { return l.inner.QueryRollouts(ctx, p) })
}

func (l *locked) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	return get(l, func() (agl.Page[agl.Attempt], error) { return l.inner.QueryAttempts(ctx, p) })
}

func (l *locked) GetLatestAttempt(ctx context.Context, p agl.GetLatestAttemptParams) (agl.Attempt, error) {
	return get(l, func() (agl.Attempt, error) { return l.inner.GetLatestAttempt(ctx, p) })
}

func (l *locked) AddResources(ctx context.Context, p agl.AddResourcesParams) (agl.ResourcesUpdate, error) {
	return set(l, func() (agl.ResourcesUpdate, error) { return l.inner.AddResources(ctx, p) })
}

func (l *locked) UpdateResources(ctx context.Context, p agl.UpdateResourcesParams) (agl.ResourcesUpdate, error) {
	return set(l, func() (agl.ResourcesUpdate, error) { return l.inner.UpdateResources(ctx, p) })
}

func (l *locked) GetResources(ctx context.Context, p agl.GetResourcesParams) (agl.ResourcesUpdate, error) {
	return get(l, func() (agl.ResourcesUpdate, error) { return l.inner.GetResources(ctx, p) })
}

func (l *locked) GetLatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	return get(l, func() (agl.ResourcesUpdate, error) { return l.inner.GetLatestResources(ctx) })
}

func (l *locked) QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	return get(l, func() (agl.Page[agl.ResourcesUpdate], error) { return l.inner.QueryResources(ctx, p) })
}

func (l *locked) UpdateWorker(ctx context.Context, p agl.UpdateWorkerParams) (agl.Worker, error) {
	return set(l, func() (agl.Worker, error) { return l.inner.UpdateWorker(ctx, p) })
}

func (l *locked) GetWorker(ctx context.Context, p agl.GetWorkerParams) (agl.Worker, error) {
	return get(l, func() (agl.Worker, error) { return l.inner.GetWorker(ctx, p) })
}

func (l *locked) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	return get(l, func() (agl.Page[agl.Worker], error) { return l.inner.QueryWorkers(ctx, p) })
}

func (l *locked) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return set(l, func() (agl.AddSpansResult, error) { return l.inner.AddSpans(ctx, p) })
}

func (l *locked) AddSpansJSON(ctx context.Context, p agl.AddSpansJSONParams) (agl.AddSpansResult, error) {
	return set(l, func() (agl.AddSpansResult, error) { return l.inner.AddSpansJSON(ctx, p) })
}

func (l *locked) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	return get(l, func() (agl.Page[agl.Span], error) { return l.inner.QuerySpans(ctx, p) })
}

func (l *locked) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	return get(l, func() (agl.Page[jsontext.Value], error) { return l.inner.QuerySpansJSON(ctx, p) })
}

func (l *locked) QueryShortSpans(ctx context.Context, p agl.QueryShortSpansParams) (agl.ShortSpans, error) {
	return get(l, func() (agl.ShortSpans, error) { return l.inner.QueryShortSpans(ctx, p) })
}

func (l *locked) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	return set(l, func() (int64, error) { return l.inner.ReserveSequenceIDs(ctx, p) })
}

func (l *locked) ReserveSequenceIDsOf(ctx context.Context, p []agl.ReserveSequenceIDsParams) ([]int64, error) {
	return set(l, func() ([]int64, error) { return l.inner.ReserveSequenceIDsOf(ctx, p) })
}

func (l *locked) CloseQueue(ctx context.Context) error {
	return l.do(func() error { return l.inner.CloseQueue(ctx) })
}

func (l *locked) OpenQueue(ctx context.Context) error {
	return l.do(func() error { return l.inner.OpenQueue(ctx) })
}

func (l *locked) Statistics(ctx context.Context) (agl.Statistics, error) {
	return get(l, func() (agl.Statistics, error) { return l.inner.Statistics(ctx) })
}
