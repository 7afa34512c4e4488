package algorithm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Flusher stores the calls that are recorded but not stored yet. The LLM proxy is one.
type Flusher interface {
	// Flush returns when every model call that has begun for the rollouts is stored.
	Flush(ctx context.Context, rolloutIDs []string) error
}

// RolloutsParams are the arguments of [Rollouts].
type RolloutsParams struct {
	// Store runs the rollouts. Required.
	Store agl.Store
	// Rollouts are enqueued together, in order.
	Rollouts []agl.EnqueueRollout
	// GroupSize is the number of consecutive rollouts that are awaited, flushed and
	// read together; zero means 1. The last group may be smaller.
	GroupSize int
	// Flusher is called for each group before its spans are read; nil does nothing.
	Flusher Flusher
	// Read reads the episodes; nil is [Read].
	Read Reader
	// Logger gets failures to cancel rollouts; nil discards them.
	Logger *slog.Logger
}

// Group is consecutive rollouts that have all finished.
type Group struct {
	// Index counts the groups from 0.
	Index int
	// Episodes are the rollouts, in the order in which they were enqueued.
	Episodes []Episode
}

// Rollouts enqueues rollouts and yields each group as soon as its last rollout has finished, in the order in which groups
// finish. It stops at the first error, which it yields. When the iteration ends, for whatever reason, rollouts that were not
// yielded are cancelled in the store and no goroutine is left.
func Rollouts(ctx context.Context, p RolloutsParams) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		if len(p.Rollouts) == 0 {
			return
		}
		queued, err := p.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: p.Rollouts})
		if err != nil {
			yield(Group{}, fmt.Errorf("enqueue rollouts: %w", err))
			return
		}
		outstanding := map[int][]string{}
		for group := range slices.Chunk(queued, max(p.GroupSize, 1)) {
			ids := make([]string, len(group))
			for i, r := range group {
				ids[i] = r.RolloutID
			}
			outstanding[len(outstanding)] = ids
		}
		results, stop := p.await(ctx, outstanding)
		defer func() {
			stop()
			ids := slices.Concat(slices.Collect(maps.Values(outstanding))...)
			if err := Cancel(ctx, p.Store, ids); err != nil && p.Logger != nil {
				p.Logger.WarnContext(ctx, "cancel outstanding rollouts", "error", err)
			}
		}()
		for len(outstanding) > 0 {
			result := <-results
			if result.err != nil {
				yield(Group{}, result.err)
				return
			}
			delete(outstanding, result.group.Index)
			if !yield(result.group, nil) {
				return
			}
		}
	}
}

type groupResult struct {
	group Group
	err   error
}

// await reads every group in a goroutine of its own. stop ends those that still wait and returns when all have ended.
func (p RolloutsParams) await(ctx context.Context, groups map[int][]string) (results <-chan groupResult, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan groupResult, len(groups)) // never blocks a sender
	var wg sync.WaitGroup
	for i, ids := range groups {
		wg.Go(func() {
			episodes, err := Await(ctx, p.Store, p.Flusher, p.Read, ids)
			out <- groupResult{Group{Index: i, Episodes: episodes}, err}
		})
	}
	return out, func() {
		cancel()
		wg.Wait()
	}
}

// Await waits until rollouts have finished, flushes their calls (a nil flusher does nothing), and reads them (a nil read is [Read]), in the
// order of the ids. A rollout that has lost calls gets the outcome setup_error; the others are not affected. A flusher that is unavailable
// (agl.ErrUnavailable) is an error.
func Await(ctx context.Context, store agl.Store, flusher Flusher, read Reader, ids []string) ([]Episode, error) {
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
	if read == nil {
		read = Read
	}
	episodes := make([]Episode, len(ids))
	for i, id := range ids {
		r, ok := found[id]
		if !ok {
			episodes[i] = Episode{
				Rollout: agl.Rollout{RolloutID: id, Status: agl.RolloutCancelled},
				Outcome: agl.Outcome{Kind: agl.OutcomeCancelled, Message: "the rollout was deleted from the store"},
			}
			continue
		}
		if episodes[i], err = read(ctx, store, r); err != nil {
			return nil, err
		}
		if failure := lost[id]; failure != nil && !episodes[i].Outcome.Kind.Masked() {
			episodes[i].Outcome = agl.Outcome{Kind: agl.OutcomeSetupError, Message: "not all of its model calls are recorded: " + failure.Error()}
		}
	}
	return episodes, nil
}

// flush flushes all rollouts together or, if that fails, one by one, and returns those that have lost calls.
func flush(ctx context.Context, flusher Flusher, ids []string) (lost map[string]error, err error) {
	if flusher == nil {
		return nil, nil
	}
	fatal := func(err error) bool { return ctx.Err() != nil || errors.Is(err, agl.ErrUnavailable) }
	if err := flusher.Flush(ctx, ids); err == nil || fatal(err) {
		return nil, err
	}
	lost = map[string]error{}
	for _, id := range ids {
		if err := flusher.Flush(ctx, []string{id}); err != nil {
			if fatal(err) {
				return nil, err
			}
			lost[id] = err
		}
	}
	return lost, nil
}

// cancelTimeout limits the cancelling of rollouts whose results nobody needs.
const cancelTimeout = 10 * time.Second

// Cancel cancels rollouts within 10 s, even if ctx has ended. Rollouts that have finished or were deleted are left alone.
func Cancel(ctx context.Context, store agl.Store, ids []string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer done()
	return cancelAll(ctx, store, ids)
}

// cancelsAtOnce is how many rollouts are cancelled together.
const cancelsAtOnce = 32

func cancelAll(ctx context.Context, store agl.Store, ids []string) error {
	errs := make([]error, len(ids))
	var group errgroup.Group
	group.SetLimit(cancelsAtOnce)
	for i, id := range ids {
		group.Go(func() error {
			errs[i] = cancelOne(ctx, store, id)
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	failed, first := 0, 0
	for i, err := range errs {
		if err != nil {
			if failed++; failed == 1 {
				first = i
			}
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("cancel %d of %d rollouts, such as %s: %w", failed, len(ids), ids[first], errs[first])
}

func cancelOne(ctx context.Context, store agl.Store, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: id})
	if errors.Is(err, agl.ErrUnimplemented) { // the rollout ends, though its agent may run on
		_, err = store.UpdateRollout(ctx, agl.UpdateRolloutParams{RolloutID: id, Status: new(agl.RolloutCancelled)})
	}
	if errors.Is(err, agl.ErrNotFound) {
		return nil
	}
	return err
}

// CancelRun cancels the rollouts that an earlier process of a run left unfinished:
// those whose metadata have the run's name as the member "run".
func CancelRun(ctx context.Context, store agl.Store, run string) error {
	page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}})
	if err != nil {
		return fmt.Errorf("find rollouts of the interrupted run: %w", err)
	}
	var ids []string
	for _, rollout := range page.Items {
		var tag Tag
		if rawjson.Unmarshal(rollout.Metadata, &tag) == nil && tag.Run == run {
			ids = append(ids, rollout.RolloutID)
		}
	}
	if err := cancelAll(ctx, store, ids); err != nil {
		return fmt.Errorf("cancel rollouts of the interrupted run: %w", err)
	}
	return nil
}
