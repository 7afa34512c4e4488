package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/storetest"
)

// contended is a driver that another process interferes with at random, but never so
// often that the engine gives up.
type contended struct {
	driver.Driver

	mu      sync.Mutex
	random  *rand.Rand
	inARow  int
	retries atomic.Int64
}

// conflict says at random that another process is in the way.
func (c *contended) conflict(point string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inARow < 4 && c.random.IntN(16) == 0 {
		c.inARow++
		c.retries.Add(1)
		return agl.Errorf(agl.CodeUnavailable, "%s: deadlock: %w", point, driver.ErrRetry)
	}
	return nil
}

func (c *contended) Begin(ctx context.Context) (driver.Tx, error) {
	if err := c.conflict("begin"); err != nil {
		return nil, err
	}
	b, err := c.Driver.Begin(ctx)
	return contendedTx{b, c}, err
}

type contendedTx struct {
	driver.Tx

	driver *contended
}

// Load reads and then fails: what was read must be of no effect.
func (b contendedTx) Load(ctx context.Context, want *driver.LoadParams, got *driver.Loaded) error {
	return errors.Join(b.Tx.Load(ctx, want, got), b.driver.conflict("load"))
}

func (b contendedTx) Claim(ctx context.Context, limit int, got *driver.Loaded) ([]string, error) {
	claimed, err := b.Tx.Claim(ctx, limit, got)
	return claimed, errors.Join(err, b.driver.conflict("claim"))
}

func (b contendedTx) Apply(ctx context.Context, c *driver.Changes) error {
	if err := b.driver.conflict("apply"); err != nil {
		return err
	}
	err := b.Tx.Apply(ctx, c)
	b.driver.mu.Lock()
	defer b.driver.mu.Unlock()
	b.driver.inARow = 0
	return err
}

// TestContention runs the whole suite, including the model, on batches that run
// several times: nobody may notice.
func TestContention(t *testing.T) {
	t.Parallel()
	var opened atomic.Uint64
	storetest.Run(t, func(tb testing.TB, p storetest.OpenParams) storetest.Instance {
		tb.Helper()
		d := &contended{Driver: newMemory(tb, p), random: rand.New(rand.NewPCG(1, opened.Add(1)))}
		return overDriver(tb, d, storetest.NewManualClock(time.Unix(1_760_000_000, 0)))
	})
}

// vanishing is a driver in which a rollout is deleted just before a query.
type vanishing struct {
	driver.Driver

	before func()
}

func (v *vanishing) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	v.before()
	return v.Driver.QueryRollouts(ctx, p)
}

// A page behind a rollout that is deleted just before the query is refused: it would look like the end of the list.
func TestAfterAVanishedRollout(t *testing.T) {
	t.Parallel()
	d := &vanishing{Driver: newMemory(t, storetest.OpenParams{}), before: func() {}}
	s := openDriver(t, d)
	list, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 3)})
	if err != nil {
		t.Fatal(err)
	}
	cancelled := agl.RolloutCancelled
	if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: list[0].RolloutID, Status: &cancelled}); err != nil {
		t.Fatal(err)
	}
	after := agl.QueryRolloutsParams{After: list[0].RolloutID, Paging: agl.Paging{SortBy: "start_time", Order: agl.Ascending}}
	if page, err := s.QueryRollouts(t.Context(), after); err != nil || len(page.Items) != 2 {
		t.Fatalf("%d rollouts behind the first one of three, error %v", len(page.Items), err)
	}
	d.before = func() {
		if err := s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: list[0].RolloutID}); err != nil {
			t.Error(err)
		}
	}
	if page, err := s.QueryRollouts(t.Context(), after); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("%d rollouts behind one that is deleted, error %v, want it refused", len(page.Items), err)
	}
}

// TestRerunsAreBounded checks a batch that never succeeds.
func TestRerunsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		s := openGate(t, g)
		deadlock := fmt.Errorf("deadlock: %w", driver.ErrRetry)
		g.fail.Store(&deadlock)
		start := time.Now()
		_, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "r"})
		if !errors.Is(err, agl.ErrUnavailable) || !errors.Is(err, driver.ErrRetry) {
			t.Errorf("error %v, want unavailable", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("gave up after %v", took)
		}
		g.fail.Store(nil)
		if first, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "r"}); first != 1 || err != nil {
			t.Errorf("reserved from %d, error %v, want 1", first, err)
		}
	})
}

// doubtful is a driver whose connection breaks at random, before a commit or after it:
// a commit that was reported as failed may have happened.
type doubtful struct {
	driver.Driver

	mu     sync.Mutex
	random *rand.Rand
	lost   int // commits that happened and were reported to have failed
}

func (d *doubtful) Begin(ctx context.Context) (driver.Tx, error) {
	b, err := d.Driver.Begin(ctx)
	return doubtfulTx{b, d}, err
}

type doubtfulTx struct {
	driver.Tx

	driver *doubtful
}

func (b doubtfulTx) Apply(ctx context.Context, c *driver.Changes) error {
	b.driver.mu.Lock()
	defer b.driver.mu.Unlock()
	away := agl.Errorf(agl.CodeUnavailable, "the connection was lost")
	switch b.driver.random.IntN(4) {
	case 0:
		return away
	case 1:
		b.driver.lost++
		return errors.Join(b.Tx.Apply(ctx, c), away)
	default:
		return b.Tx.Apply(ctx, c)
	}
}

// persist repeats a call, as a client with an idempotency key does.
func persist[T any](t *testing.T, call func() (T, error)) T {
	for {
		v, err := call()
		if !errors.Is(err, agl.ErrUnavailable) {
			if err != nil {
				t.Error(err)
			}
			return v
		}
		time.Sleep(10 * time.Millisecond) // of a bubble
	}
}

// TestDoubtfulCommits runs clients with idempotency keys over a connection that breaks
// after commits: every rollout is created, claimed and finished once, and nobody waits
// forever.
func TestDoubtfulCommits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { workInDoubt(t, seed) })
		})
	}
}

func workInDoubt(t *testing.T, seed uint64) {
	const producers, rounds, runners = 3, 12, 6
	d := &doubtful{Driver: newMemory(t, storetest.OpenParams{}), random: rand.New(rand.NewPCG(seed, 0))}
	s := reopen(t, d)
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	var mu sync.Mutex
	owners := map[driver.AttemptKey]string{}
	var working sync.WaitGroup
	for n := range runners {
		working.Go(func() {
			worker := fmt.Sprint("w", n)
			for i := 0; ; i++ {
				p := agl.DequeueRolloutsParams{Limit: 2, Wait: time.Second, WorkerID: agl.Some(worker), IdempotencyKey: fmt.Sprint(worker, "-", i)}
				got := persist(t, func() (agl.DequeueResult, error) { return s.DequeueRollouts(t.Context(), p) })
				if got.Closed {
					return
				}
				for _, r := range got.Rollouts {
					mu.Lock()
					key := driver.AttemptKey{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
					if other, taken := owners[key]; taken {
						t.Errorf("attempt %v of %s was handed out to %s too", key, other, p.IdempotencyKey)
					}
					owners[key] = p.IdempotencyKey
					mu.Unlock()
					finish(t, s, &r)
				}
			}
		})
	}
	var producing sync.WaitGroup
	for n := range producers {
		producing.Go(func() {
			for i := range rounds {
				p := agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 2), IdempotencyKey: fmt.Sprint(n, "-", i)}
				made := persist(t, func() ([]agl.Rollout, error) { return s.EnqueueRollouts(t.Context(), p) })
				wait := agl.WaitForRolloutsParams{RolloutIDs: []string{made[0].RolloutID, made[1].RolloutID}}
				done := persist(t, func() ([]agl.Rollout, error) { return s.WaitForRollouts(t.Context(), wait) })
				if len(done) != 2 {
					t.Errorf("waited for %v, got %v", wait.RolloutIDs, done)
				}
			}
		})
	}
	producing.Wait()
	persist(t, func() (int, error) { return 0, s.CloseQueue(t.Context()) })
	working.Wait()
	checkDone(t, d, producers*rounds*2)
	if d.lost == 0 {
		t.Error("no commit was in doubt")
	}
}

// finish works on a claim as a runner does.
func finish(t *testing.T, s *store.Store, r *agl.AttemptedRollout) {
	span := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: "s", Attributes: agl.Attributes(`{}`)}
	persist(t, func() (agl.AddSpansResult, error) {
		return s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true})
	})
	succeeded := agl.AttemptSucceeded
	persist(t, func() (agl.Attempt, error) {
		return s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &succeeded})
	})
}

// checkDone wants n rollouts, each of one attempt with one span.
func checkDone(t *testing.T, d driver.Driver, n int) {
	t.Helper()
	page, err := d.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: agl.Paging{Limit: -1}})
	if err != nil || page.Total != n {
		t.Errorf("%d rollouts, error %v, want %d", page.Total, err, n)
	}
	for _, r := range page.Items {
		if r.Status != agl.RolloutSucceeded || r.Attempt == nil || r.Attempt.SequenceID != 1 {
			t.Errorf("rollout %s is %s with attempt %+v, want it succeeded at the first", r.RolloutID, r.Status, r.Attempt)
		}
		spans, err := d.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID, Paging: agl.Paging{Limit: -1}})
		if err != nil || len(spans.Items) != 1 {
			t.Errorf("rollout %s has %d spans, error %v, want one", r.RolloutID, len(spans.Items), err)
		}
	}
	stats, err := d.Statistics(t.Context())
	if err != nil || stats.TotalAttempts != n {
		t.Errorf("%d attempts, error %v, want %d", stats.TotalAttempts, err, n)
	}
}

// absent is a driver whose database can be unavailable.
type absent struct {
	driver.Driver

	away atomic.Bool
}

func (a *absent) Begin(ctx context.Context) (driver.Tx, error) {
	if a.away.Load() {
		return nil, agl.Errorf(agl.CodeUnavailable, "the database is away")
	}
	return a.Driver.Begin(ctx)
}

// TestLeaveWhileAway ends blocked dequeues while the database is unavailable, by
// timeout and by context: rollouts queued later go to those who still wait.
func TestLeaveWhileAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &absent{Driver: newMemory(t, storetest.OpenParams{})}
		s := reopen(t, d)
		defer func() {
			if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		impatient, cancel := context.WithCancel(t.Context())
		var leaving sync.WaitGroup
		for _, ctx := range []context.Context{t.Context(), impatient} {
			leaving.Go(func() {
				got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Second})
				if err == nil || len(got.Rollouts) > 0 {
					t.Errorf("got %v, %v from a database that is away", got, err)
				}
			})
		}
		synctest.Wait()
		d.away.Store(true)
		cancel()
		leaving.Wait()
		d.away.Store(false)
		if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)}); err != nil {
			t.Fatal(err)
		}
		got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
		if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].Attempt.SequenceID != 1 {
			t.Errorf("got %v, %v, want the rollout that was queued", got, err)
		}
	})
}

// rival lets another process commit a conflicting change before the next batch
// commits.
type rival struct {
	driver.Driver

	act func() // once, before the commit that it is in the way of
}

func (r *rival) Begin(ctx context.Context) (driver.Tx, error) {
	b, err := r.Driver.Begin(ctx)
	return rivalTx{b, r}, err
}

type rivalTx struct {
	driver.Tx

	rival *rival
}

func (b rivalTx) Apply(ctx context.Context, c *driver.Changes) error {
	if act := b.rival.act; act != nil {
		b.rival.act = nil
		act()
		return driver.ErrRetry
	}
	return b.Tx.Apply(ctx, c)
}

// TestRerunSeesTheRival runs commands whose second run finds other data than the
// first.
func TestRerunSeesTheRival(t *testing.T) {
	t.Parallel()
	type setup struct {
		*store.Store
		peer  *store.Store
		rival *rival
		r     agl.AttemptedRollout
	}
	spans := func(r *agl.AttemptedRollout, ids ...string) agl.AddSpansParams {
		p := agl.AddSpansParams{IssueSequenceIDs: true}
		for _, id := range ids {
			p.Spans = append(p.Spans, agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: id, Attributes: agl.Attributes(`{}`)})
		}
		return p
	}
	for name, test := range map[string]func(t *testing.T, s *setup){
		"spans get later sequence ids": func(t *testing.T, s *setup) {
			s.rival.act = func() {
				if _, err := s.peer.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: s.r.RolloutID, Count: 1000}); err != nil {
					t.Error(err)
				}
			}
			got, err := s.AddSpans(t.Context(), spans(&s.r, "a", "b"))
			if err != nil || len(got.Stored) != 2 || got.Stored[0].SequenceID != 1001 || got.Stored[1].SequenceID != 1002 {
				t.Fatalf("stored %+v, error %v, want two from 1001", got.Stored, err)
			}
			page, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: s.r.RolloutID})
			if err != nil || page.Total != 2 || page.Items[1].SequenceID != 1002 {
				t.Errorf("found %+v, error %v, want what was answered", page, err)
			}
		},
		"a span that is there meanwhile": func(t *testing.T, s *setup) {
			s.rival.act = func() {
				if _, err := s.peer.AddSpans(t.Context(), spans(&s.r, "b")); err != nil {
					t.Error(err)
				}
			}
			got, err := s.AddSpans(t.Context(), spans(&s.r, "a", "b", "c"))
			if err != nil || len(got.Stored) != 2 || got.Stored[0].SpanID != "a" || got.Stored[1].SpanID != "c" || got.Stored[1].SequenceID != 3 {
				t.Errorf("stored %+v, error %v, want a and c", got.Stored, err)
			}
		},
		"a span that is gone meanwhile": func(t *testing.T, s *setup) {
			if _, err := s.AddSpans(t.Context(), spans(&s.r, "a")); err != nil {
				t.Fatal(err)
			}
			s.rival.act = func() {
				if _, err := s.peer.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: s.r.RolloutID}); err != nil {
					t.Error(err)
				}
				if err := s.peer.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: s.r.RolloutID}); err != nil {
					t.Error(err)
				}
			}
			got, err := s.AddSpans(t.Context(), spans(&s.r, "a", "b"))
			if !errors.Is(err, agl.ErrNotFound) || len(got.Stored) > 0 {
				t.Errorf("stored %+v, error %v, want not found", got.Stored, err)
			}
		},
		"a claim of another's": func(t *testing.T, s *setup) {
			all := enqueue(t, s, 2, agl.RolloutConfig{})
			s.rival.act = func() {
				if got, err := s.peer.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil || len(got.Rollouts) != 1 {
					t.Errorf("the rival got %v, error %v", got, err)
				}
			}
			got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 2})
			if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != all[1].RolloutID {
				t.Errorf("got %v, error %v, want the second rollout", got, err)
			}
		},
		"work for one that was to wait": func(t *testing.T, s *setup) {
			s.rival.act = func() { enqueue(t, s.peer, 1, agl.RolloutConfig{}) }
			got := <-block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, WorkerID: agl.Some("w")})
			if got.err != nil || len(got.result.Rollouts) != 1 || got.took > time.Minute {
				t.Errorf("got %+v, want the rollout at once", got)
			}
			if late := enqueue(t, s, 1, agl.RolloutConfig{}); late[0].Status != agl.RolloutQueuing {
				t.Errorf("a rollout is %s", late[0].Status)
			}
			if got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 9}); err != nil || len(got.Rollouts) != 1 {
				t.Errorf("got %v, error %v, want the one that nobody waits for", got, err)
			}
		},
		"nothing for one that had a claim": func(t *testing.T, s *setup) {
			enqueue(t, s, 1, agl.RolloutConfig{})
			s.rival.act = func() {
				if _, err := s.peer.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil {
					t.Error(err)
				}
			}
			waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Second, WorkerID: agl.Some("w")})
			blocked(t, "the dequeue", waiting)
			if got := <-waiting; got.err != nil || len(got.result.Rollouts) != 0 || got.took < time.Second {
				t.Errorf("got %+v, want nothing after a second", got)
			}
		},
		"a queue that is closed and opened": func(t *testing.T, s *setup) {
			enqueue(t, s, 1, agl.RolloutConfig{})
			s.rival.act = func() {
				if err := s.peer.CloseQueue(t.Context()); err != nil {
					t.Error(err)
				}
			}
			p := agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w")}
			if got, err := s.DequeueRollouts(t.Context(), p); err != nil || !got.Closed || len(got.Rollouts) > 0 {
				t.Errorf("got %+v, error %v, want closed", got, err)
			}
			s.rival.act = func() {
				if err := s.peer.OpenQueue(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if got, err := s.DequeueRollouts(t.Context(), p); err != nil || got.Closed || len(got.Rollouts) != 1 {
				t.Errorf("got %+v, error %v, want the rollout", got, err)
			}
		},
		"a key that is used meanwhile": func(t *testing.T, s *setup) {
			p := agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 2), IdempotencyKey: "k"}
			var first []agl.Rollout
			s.rival.act = func() {
				var err error
				if first, err = s.peer.EnqueueRollouts(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			got, err := s.EnqueueRollouts(t.Context(), p)
			if err != nil || len(got) != 2 || got[0].RolloutID != first[0].RolloutID || got[1].RolloutID != first[1].RolloutID {
				t.Errorf("enqueued %v, error %v, want the rival's %v", got, err, first)
			}
		},
		"resources that are newer": func(t *testing.T, s *setup) {
			if _, err := s.UpdateResources(t.Context(), agl.UpdateResourcesParams{ResourcesID: "old"}); err != nil {
				t.Fatal(err)
			}
			s.rival.act = func() {
				if _, err := s.peer.UpdateResources(t.Context(), agl.UpdateResourcesParams{ResourcesID: "new"}); err != nil {
					t.Error(err)
				}
			}
			if got := enqueue(t, s, 1, agl.RolloutConfig{}); got[0].ResourcesID.V != "new" {
				t.Errorf("inherited %v, want the new ones", got[0].ResourcesID)
			}
			s.rival.act = func() {
				if _, err := s.peer.UpdateResources(t.Context(), agl.UpdateResourcesParams{ResourcesID: "new"}); err != nil {
					t.Error(err)
				}
			}
			if got, err := s.UpdateResources(t.Context(), agl.UpdateResourcesParams{ResourcesID: "new"}); err != nil || got.Version != 3 {
				t.Errorf("version %d, error %v, want 3", got.Version, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newMemory(t, storetest.OpenParams{})
				s := &setup{rival: &rival{Driver: d}, peer: reopen(t, d)}
				s.Store = reopen(t, s.rival)
				defer func() {
					for _, s := range []*store.Store{s.Store, s.peer} {
						if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
							t.Error(err)
						}
					}
				}()
				var err error
				if s.r, err = s.StartRollout(t.Context(), agl.StartRolloutParams{}); err != nil {
					t.Fatal(err)
				}
				test(t, s)
			})
		})
	}
}
