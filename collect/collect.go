package collect

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// Store is what a collector needs. Package store's engine implements it.
type Store interface {
	agl.Store
	agl.DocumentStore
	// ReadEvents returns the events after since without waiting for more, see store.Store.
	ReadEvents(ctx context.Context, since string, limit int) ([]agl.Event, error)
}

// Config configures a [Collector]. Store is required.
type Config struct {
	Store Store
	// RewardWindow is how long a finished rollout without a reward waits for one, unless its metadata says otherwise.
	// By default it is ready at once.
	RewardWindow time.Duration
	Logger       *slog.Logger // default discards
}

// Collector implements [agl.Collector]. Its methods are safe for concurrent use. It starts
// no goroutine.
type Collector struct {
	store  Store
	window time.Duration
	log    *slog.Logger

	turn chan struct{} // holds a token while a call writes the log
	// behind saves reading events again that changed nothing in the log: while the head has this version, they have
	// been read up to event.
	behind struct {
		version int64
		event   string
	}
}

var _ agl.Collector = (*Collector)(nil)

// New returns a collector.
func New(config Config) (*Collector, error) {
	switch {
	case config.Store == nil:
		return nil, agl.Errorf(agl.CodeInvalid, "collect: Store: got nil, must be a store")
	case config.RewardWindow < 0:
		return nil, agl.Errorf(agl.CodeInvalid, "collect: RewardWindow: got %s, must not be negative", config.RewardWindow)
	}
	return &Collector{
		store: config.Store, window: config.RewardWindow, log: cmp.Or(config.Logger, slog.New(slog.DiscardHandler)), turn: make(chan struct{}, 1),
	}, nil
}

// defaultMax is the default of CollectParams.Max.
const defaultMax = 1000

// Collect implements [agl.Collector].
func (c *Collector) Collect(ctx context.Context, p agl.CollectParams) (agl.Collection, error) {
	if p.Min < 0 || p.Max < 0 || p.MaxWait < 0 {
		return agl.Collection{}, agl.Errorf(agl.CodeInvalid, "min, max and wait: got %d, %d and %s, must not be negative", p.Min, p.Max, p.MaxWait)
	}
	p.Max = cmp.Or(p.Max, defaultMax)
	p.Min = min(max(p.Min, 1), p.Max)
	until := time.Now().Add(p.MaxWait)
	b := batch{Collection: agl.Collection{Rollouts: []agl.CollectedRollout{}, Corrections: []agl.RewardCorrection{}, Next: p.Since}, p: &p}
	for {
		h, err := c.update(ctx)
		if err != nil {
			return agl.Collection{}, err
		}
		if b.last, err = h.place(b.Next); err != nil {
			return agl.Collection{}, err
		}
		if err := c.read(ctx, &b); err != nil {
			return agl.Collection{}, err
		}
		b.Next = h.cursor(b.last)
		wake, pending, err := c.pending(ctx)
		if err != nil {
			return agl.Collection{}, err
		}
		if len(b.Rollouts) >= p.Min || !time.Now().Before(until) {
			b.Pending = pending
			return b.Collection, nil
		}
		if pending == 0 || until.Before(wake) {
			wake = until
		}
		if err := c.wait(ctx, h.Event, wake); err != nil {
			return agl.Collection{}, err
		}
	}
}

// pace is the shortest time between two looks of a waiting call at a busy store.
const pace = 50 * time.Millisecond

// wait returns when the store has an event after the given one, or at the given time.
func (c *Collector) wait(ctx context.Context, event string, until time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for _, err := range c.store.Events(waiting, agl.EventsParams{Since: event}) {
		if err != nil && waiting.Err() == nil {
			return err
		}
		if err == nil {
			_ = backoff.Sleep(waiting, pace) // the return below reports the end of ctx
		}
		break
	}
	return ctx.Err()
}

// batch is what one call has read from the log.
type batch struct {
	agl.Collection

	p    *agl.CollectParams
	last int64 // the number of the last entry that was read
}

// readPage is the number of entries in one query.
const readPage = 256

// read adds the entries after the last one, at most as many as were asked for.
func (c *Collector) read(ctx context.Context, b *batch) error {
	for {
		page, err := c.store.QueryDocuments(ctx, agl.QueryDocumentsParams{
			Kind: kindEntry, Parent: agl.Some(parentLog), From: agl.Some(b.last + 1), Limit: readPage,
		})
		if err != nil || len(page.Items) == 0 {
			return err
		}
		entries, err := agl.DecodeDocuments[entry](page.Items)
		if err != nil {
			return err
		}
		ids := make([]string, 0, len(entries))
		for i := range entries {
			if !slices.Contains(ids, entries[i].RolloutID) {
				ids = append(ids, entries[i].RolloutID)
			}
		}
		rollouts, err := c.rollouts(ctx, ids)
		if err != nil {
			return err
		}
		for i := range entries {
			if len(b.Rollouts) == b.p.Max {
				return nil
			}
			b.last = page.Items[i].Sequence
			if r, found := rollouts[entries[i].RolloutID]; found && b.p.Filter.Matches(&r.Rollout) {
				b.add(&entries[i], r)
			}
		}
	}
}

func (b *batch) add(e *entry, r agl.AttemptedRollout) {
	if e.Correction {
		b.Corrections = append(b.Corrections, agl.RewardCorrection{Rollout: r, Reward: e.Reward, Previous: e.Previous, Rewards: e.Rewards})
		return
	}
	b.Rollouts = append(b.Rollouts, agl.CollectedRollout{Rollout: r, Reward: e.Reward, Rewards: e.Rewards})
}

// rollouts returns those of the rollouts that exist, by id.
func (c *Collector) rollouts(ctx context.Context, ids []string) (map[string]agl.AttemptedRollout, error) {
	page, err := c.store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: ids, Paging: agl.Paging{Limit: -1}})
	if err != nil {
		return nil, err
	}
	found := make(map[string]agl.AttemptedRollout, len(page.Items))
	for i := range page.Items {
		found[page.Items[i].RolloutID] = page.Items[i]
	}
	return found, nil
}

// head is the document that every write of the log replaces.
type head struct {
	Epoch string `json:"epoch"` // distinguishes the logs of different stores
	Last  int64  `json:"last"`  // the number of the last entry
	Event string `json:"event"` // the last event that was looked at
	// Earlier has the number of the last entry that the database had when it was restored or copied, by the epoch until then: what
	// the log got behind it elsewhere is not in this one.
	Earlier map[string]int64 `json:"earlier,omitzero"`

	version int64
}

// cursor returns the cursor after an entry.
func (h *head) cursor(last int64) string { return h.Epoch + "-" + strconv.FormatInt(last, 10) }

func newEpoch() string { return strings.ToLower(rand.Text()[:10]) }

// renew begins an epoch if the last event was one of another database, of which this one is a copy. It reports whether it has.
func (h *head) renew(now string) bool {
	database := func(event string) string { return event[:max(strings.LastIndexByte(event, '-'), 0)] }
	if was := database(h.Event); was == "" || was == database(now) {
		return false
	}
	if h.Earlier == nil {
		h.Earlier = map[string]int64{}
	}
	h.Earlier[h.Epoch] = h.Last
	h.Epoch = newEpoch()
	return true
}

// place returns the number of the entry before a cursor.
func (h *head) place(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	epoch, number, _ := strings.Cut(cursor, "-")
	last, err := strconv.ParseInt(number, 10, 64)
	if end, ok := h.Earlier[epoch]; ok && err == nil && last >= 0 {
		return min(last, end), nil
	}
	if err != nil || epoch != h.Epoch || last < 0 || last > h.Last {
		return 0, agl.Errorf(agl.CodeInvalid, "since: got %.100q, must be the cursor of an earlier batch of this store, or empty", cursor)
	}
	return last, nil
}

// load reads the head of the log, or returns a new one.
func (c *Collector) load(ctx context.Context) (h head, err error) {
	h, version, err := agl.ReadDocument[head](ctx, c.store, kindHead, idHead)
	if errors.Is(err, agl.ErrNotFound) {
		return head{Epoch: newEpoch(), Event: "none"}, nil
	}
	if h.version = version; version == c.behind.version {
		h.Event = c.behind.event
	}
	return h, err
}
