package algorithm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Flusher makes sure that what was recorded about rollouts is in the store. The
// LLM proxy is one.
type Flusher interface {
	// Flush returns when every model call begun for the rollouts is stored.
	Flush(ctx context.Context, rolloutIDs []string) error
}

// Batch is rollouts to run: see [Rollouts].
type Batch struct {
	// Store is where the rollouts are run. Required.
	Store agl.Store
	// Rollouts are enqueued together, in order.
	Rollouts []agl.EnqueueRollout
	// GroupSize is how many consecutive rollouts are waited for, flushed and read
	// together; zero means 1. The last group may be smaller.
	GroupSize int
	// Flusher is called for each group before its spans are read; nil does nothing.
	Flusher Flusher
	// Logger gets what goes wrong while rollouts are being cancelled; nil discards it.
	Logger *slog.Logger
}

// Group is a group of a [Batch] whose rollouts have all finished.
type Group struct {
	// Index counts the batch's groups from 0.
	Index int
	// Episodes are the group's rollouts, in the order of the batch.
	Episodes []Episode
}

// Episode is a finished rollout as an algorithm sees it.
type Episode struct {
	Rollout agl.Rollout
	// Attempt is the latest attempt; nil when the rollout was never claimed or is gone.
	Attempt *agl.Attempt
	// Outcome is how the latest attempt ended; cancelled when the rollout was, or
	// is gone from the store.
	Outcome agl.Outcome
	// Spans are those of the latest attempt, by sequence id.
	Spans []agl.Span
	// Evicted is true when the spans had to make room in the store.
	Evicted bool
}

// cancelTimeout bounds the cancelling of rollouts that nobody waits for any more.
const cancelTimeout = 10 * time.Second

// Rollouts enqueues a batch and yields each group as soon as the group's last
// rollout has finished, in the order in which groups finish. It ends at the
// first error, which it yields. However the iteration ends, rollouts that were
// not yielded are cancelled in the store, even when ctx is what ended, and no
// goroutine is left.
func Rollouts(ctx context.Context, b Batch) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		if len(b.Rollouts) == 0 {
			return
		}
		queued, err := b.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: b.Rollouts})
		if err != nil {
			yield(Group{}, fmt.Errorf("enqueue rollouts: %w", err))
			return
		}
		groups := b.split(queued)
		open := make(map[int][]string, len(groups))
		for i, ids := range groups {
			open[i] = ids
		}
		results, stop := b.readAll(ctx, groups)
		defer func() {
			stop()
			b.cancel(ctx, open)
		}()
		for range groups {
			res := <-results
			if res.err != nil {
				yield(Group{}, res.err)
				return
			}
			delete(open, res.group.Index)
			if !yield(res.group, nil) {
				return
			}
		}
	}
}

// split cuts the ids of the enqueued rollouts into groups.
func (b Batch) split(queued []agl.Rollout) [][]string {
	size := max(b.GroupSize, 1)
	var groups [][]string
	for i, r := range queued {
		if i%size == 0 {
			groups = append(groups, make([]string, 0, size))
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], r.RolloutID)
	}
	return groups
}

type groupResult struct {
	group Group
	err   error
}

// readAll reads every group in a goroutine of its own. stop ends those that
// still wait and returns when all have ended.
func (b Batch) readAll(ctx context.Context, groups [][]string) (results <-chan groupResult, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan groupResult, len(groups)) // room for all: no sender ever blocks
	var wg sync.WaitGroup
	for i, ids := range groups {
		wg.Go(func() {
			episodes, err := Await(ctx, b.Store, b.Flusher, ids)
			out <- groupResult{Group{Index: i, Episodes: episodes}, err}
		})
	}
	return out, func() {
		cancel()
		wg.Wait()
	}
}

// Await waits until the rollouts have finished, flushes what was recorded about
// them (a nil flusher does nothing), and reads them, in the order of the ids. A
// rollout of which calls were lost gets the outcome setup_error and costs the
// caller no other; a flusher that is away (agl.ErrUnavailable) is an error.
func Await(ctx context.Context, store agl.Store, flusher Flusher, ids []string) ([]Episode, error) {
	if _, err := store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: ids}); err != nil {
		return nil, fmt.Errorf("wait for rollouts: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("wait for rollouts: %w", err)
	}
	lost, err := flush(ctx, flusher, ids)
	if err != nil {
		return nil, fmt.Errorf("flush recorded calls: %w", err)
	}
	page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: ids})
	if err != nil {
		return nil, fmt.Errorf("read rollouts: %w", err)
	}
	found := make(map[string]agl.AttemptedRollout, len(ids))
	for _, r := range page.Items {
		found[r.RolloutID] = r
	}
	episodes := make([]Episode, len(ids))
	for i, id := range ids {
		r, ok := found[id]
		if !ok {
			episodes[i] = Episode{
				Rollout: agl.Rollout{RolloutID: id, Status: agl.RolloutCancelled},
				Outcome: agl.Outcome{Kind: agl.OutcomeCancelled, Message: "the rollout is gone from the store"},
			}
			continue
		}
		if episodes[i], err = Read(ctx, store, r); err != nil {
			return nil, err
		}
		if failure := lost[id]; failure != nil && !episodes[i].Outcome.Kind.Masked() {
			episodes[i].Outcome = agl.Outcome{Kind: agl.OutcomeSetupError, Message: "its model calls are not all recorded: " + failure.Error()}
		}
	}
	return episodes, nil
}

// flush flushes all rollouts at once or, when that fails, one by one, and says
// of which of them something was lost.
func flush(ctx context.Context, flusher Flusher, ids []string) (lost map[string]error, err error) {
	if flusher == nil {
		return nil, nil
	}
	away := func(err error) bool { return ctx.Err() != nil || errors.Is(err, agl.ErrUnavailable) }
	if err := flusher.Flush(ctx, ids); err == nil || away(err) {
		return nil, err
	}
	lost = map[string]error{}
	for _, id := range ids {
		if err := flusher.Flush(ctx, []string{id}); err != nil {
			if away(err) {
				return nil, err
			}
			lost[id] = err
		}
	}
	return lost, nil
}

// NewEpisode is a finished rollout whose spans are not read yet.
func NewEpisode(r agl.AttemptedRollout) Episode {
	return Episode{Rollout: r.Rollout, Attempt: r.Attempt, Outcome: outcomeOf(r)}
}

// Read reads the spans of one finished rollout.
func Read(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (Episode, error) {
	e := NewEpisode(r)
	if r.Attempt == nil {
		return e, nil
	}
	page, err := store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID})
	switch {
	case errors.Is(err, agl.ErrEvicted):
		e.Evicted = true
	case err != nil:
		return Episode{}, fmt.Errorf("read spans of rollout %s: %w", r.RolloutID, err)
	}
	e.Spans = page.Items
	if e.Outcome.Kind == agl.OutcomeAgentError {
		// The runner of a program does not see its calls.
		if kind := adapter.CallOutcome(e.Spans); kind != "" {
			e.Outcome.Kind = kind
		}
	}
	return e, nil
}

// outcomeOf reads the outcome of a finished rollout. One whose status was set by
// hand while its attempt was live gets the kind that the status implies.
func outcomeOf(r agl.AttemptedRollout) agl.Outcome {
	if r.Status == agl.RolloutCancelled {
		return agl.Outcome{Kind: agl.OutcomeCancelled, Message: "the rollout was cancelled"}
	}
	if r.Attempt != nil {
		if outcome, ok := r.Attempt.Outcome(); ok {
			return outcome
		}
	}
	if r.Status == agl.RolloutSucceeded {
		return agl.Outcome{Kind: agl.OutcomeOK}
	}
	return agl.Outcome{Kind: agl.OutcomeAgentError, Message: "the rollout was set to " + string(r.Status)}
}

// cancel cancels the rollouts of the groups that are still open.
func (b Batch) cancel(ctx context.Context, open map[int][]string) {
	var ids []string
	for _, group := range open {
		ids = append(ids, group...)
	}
	if err := Cancel(ctx, b.Store, ids); err != nil && b.Logger != nil {
		b.Logger.WarnContext(ctx, "cancel outstanding rollouts", "error", err)
	}
}

// Cancel cancels rollouts, even when ctx has ended, within 10 s. Those that have
// finished stay as they are, those that are gone are passed over.
func Cancel(ctx context.Context, store agl.Store, ids []string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer done()
	var errs []error
	for _, id := range ids {
		_, err := store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: id})
		if err != nil && !errors.Is(err, agl.ErrNotFound) {
			errs = append(errs, fmt.Errorf("cancel rollout %s: %w", id, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
