package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

// terminal is the log of rollouts that have ended, in the order in which they ended. The store has this order: the
// commit that ends a rollout puts its number into the metadata. terminal is an index of the numbers. It follows the
// store's events, so it includes rollouts that other servers or the store's runners have ended.
type terminal struct {
	store agl.Store

	mu  sync.Mutex
	ids []string // of rollouts in the store, at index number-1; empty if not known
	// gaps is the number of empty ids that may belong to rollouts that are not known yet.
	gaps  int
	known map[string]struct{}
	// issued is above the numbers that the store had issued when it was asked last.
	issued int
	// changed is closed and replaced when the log grows.
	changed chan struct{}
}

// start reads the numbers in the store, and follows its events.
func (t *terminal) start(ctx context.Context, background *sync.WaitGroup, log *slog.Logger) error {
	if err := t.scan(ctx); err != nil {
		return err
	}
	report := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "the terminal log lags behind", "operation", what, "error", err)
		}
	}
	background.Go(func() {
		// Events between the scan and the first read of the stream are missed.
		if backoff.Sleep(ctx, time.Second) == nil {
			report("scan", t.scan(ctx))
		}
	})
	background.Go(func() {
		for ctx.Err() == nil {
			report("follow", t.follow(ctx))
			if backoff.Sleep(ctx, time.Second) == nil {
				report("scan", t.scan(ctx))
			}
		}
	})
	return nil
}

// follow adds rollouts that end from now on, until the stream of events ends.
func (t *terminal) follow(ctx context.Context) error {
	for event, err := range t.store.Events(ctx, agl.EventsParams{}) {
		switch {
		case err != nil:
			return err
		case event.Kind == agl.EventReset:
			if err := t.scan(ctx); err != nil {
				return err
			}
		case event.Kind == agl.EventRollout && agl.RolloutStatus(event.Status).Finished() && !t.has(event.RolloutID):
			stored, err := t.store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: event.RolloutID})
			if agl.ErrorCode(err) == agl.CodeNotFound {
				continue
			}
			if err == nil {
				err = t.include(ctx, stored)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// scan reads the numbers of all rollouts.
func (t *terminal) scan(ctx context.Context) error {
	t.mu.Lock()
	complete := len(t.ids) // these numbers were issued before the scan
	t.mu.Unlock()
	var late []agl.AttemptedRollout
	for stored, err := range storedIn(ctx, t.store, []State{StateSucceeded, StateFailed}) {
		if err != nil {
			return err
		}
		if _, ok := rolloutOf(*stored); !ok {
			continue
		}
		n, err := t.numberOf(ctx, &stored.Rollout)
		if err != nil {
			return err
		}
		if n == 0 {
			late = append(late, *stored)
		}
		t.add(n, stored.RolloutID)
	}
	slices.SortFunc(late, func(a, b agl.AttemptedRollout) int { return cmp.Compare(a.EndTime.V, b.EndTime.V) })
	for _, stored := range late {
		if err := t.include(ctx, stored); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gaps = 0
	for _, id := range t.ids[min(complete, len(t.ids)):] {
		if id == "" {
			t.gaps++
		}
	}
	return nil
}

// include adds a rollout that has ended, and gives it a number if it has none because no controller of this API ended
// it.
func (t *terminal) include(ctx context.Context, stored agl.AttemptedRollout) error {
	for {
		r, ok := rolloutOf(stored)
		if !ok {
			return nil
		}
		n, err := t.numberOf(ctx, &stored.Rollout)
		if err != nil || n > 0 {
			t.add(n, stored.RolloutID)
			return err
		}
		if r.DeletedAt != 0 || !r.Status.Finished() {
			return nil
		}
		stored, err = t.store.ReviseRollout(ctx, agl.ReviseRolloutParams{
			RolloutID: r.storeID(), IfMetadata: r.Metadata, Metadata: r.Metadata, NumberKey: keyNumber, NumberMin: t.next(),
		})
		if agl.ErrorCode(err) == agl.CodeConflict {
			stored, err = t.store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: r.storeID()})
		}
		if agl.ErrorCode(err) == agl.CodeNotFound {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// number returns the number in the metadata of a rollout; 0 if there is none.
func number(r *agl.Rollout) int {
	raw, _ := rawjson.Get(r.Metadata, keyNumber)
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// maxAhead is how far a number may be ahead of the log before the store is asked whether it has issued it.
const maxAhead = 1000

// numberOf returns the number of a rollout in the log; 0 if it has none. Clients of the store can write metadata, and the log is
// as long as its greatest number, so it takes a number that is far ahead from the store only.
func (t *terminal) numberOf(ctx context.Context, r *agl.Rollout) (int, error) {
	n := number(r)
	t.mu.Lock()
	plausible := n < max(t.issued, len(t.ids)+maxAhead)
	t.mu.Unlock()
	if plausible {
		return n, nil
	}
	// This issues a number, which stays unused.
	next, err := t.store.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{RolloutID: keyNumber})
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.issued = int(next); n >= t.issued {
		return 0, nil
	}
	return n, nil
}

// add adds a rollout with its number; 0 adds none.
func (t *terminal) add(n int, rolloutID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ids) < n {
		t.ids = append(t.ids, "")
		t.gaps++
	}
	if n > 0 && t.ids[n-1] == "" {
		t.ids[n-1] = rolloutID
		t.known[rolloutID] = struct{}{}
		t.gaps = max(t.gaps-1, 0)
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// length returns the length of the log, and a channel that is closed when it grows.
func (t *terminal) length() (total int, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ids), t.changed
}

func (t *terminal) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.known[id]
	return ok
}

// next returns the lowest number that the next rollout may get.
func (t *terminal) next() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.ids)) + 1
}

// slice returns up to limit ids after an index, and the length of the log.
func (t *terminal) slice(ctx context.Context, after, limit int) (ids []string, total int, err error) {
	t.mu.Lock()
	gaps := t.gaps
	t.mu.Unlock()
	if gaps > 0 { // another server issued numbers whose events have not arrived yet
		if err := t.scan(ctx); err != nil {
			return nil, 0, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	total = len(t.ids)
	from := min(after, total)
	return slices.Clone(t.ids[from:min(from+min(limit, total), total)]), total, nil
}

// listPage is the number of rollouts in one query.
const listPage = 1000
