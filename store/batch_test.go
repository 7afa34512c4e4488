package store_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/storetest"
)

// gate is a driver whose commits can be blocked and made to fail.
type gate struct {
	driver.Driver

	held    chan struct{} // a commit waits until it can send; nil never waits
	hold    atomic.Bool   // the next commit waits for release
	release chan struct{}
	away    atomic.Int64 // so many transactions do not begin
	fail    atomic.Pointer[error]
	panics  atomic.Int64 // so many commits panic
	lose    atomic.Int64 // so many commits happen and are reported to have failed
	commits atomic.Int64
	notices chan driver.Notice
}

func (g *gate) Capabilities() driver.Capabilities { return driver.Capabilities{Notices: g.notices} }

func (g *gate) Begin(ctx context.Context) (driver.Tx, error) {
	if g.away.Add(-1) >= 0 {
		return nil, agl.Errorf(agl.CodeUnavailable, "the database is away")
	}
	b, err := g.Driver.Begin(ctx)
	return gatedTx{b, g}, err
}

type gatedTx struct {
	driver.Tx

	gate *gate
}

func (b gatedTx) Apply(ctx context.Context, c *driver.Changes) error {
	if b.gate.held != nil {
		b.gate.held <- struct{}{}
	}
	if b.gate.hold.CompareAndSwap(true, false) {
		<-b.gate.release
	}
	if err := b.gate.fail.Load(); err != nil {
		return *err
	}
	if b.gate.panics.Add(-1) >= 0 {
		panic("the driver has a bug")
	}
	b.gate.commits.Add(1)
	err := b.Tx.Apply(ctx, c)
	if b.gate.lose.Add(-1) >= 0 {
		return errors.Join(err, agl.Errorf(agl.CodeUnavailable, "the connection was lost"))
	}
	return err
}

func openGate(t *testing.T, g *gate) *store.Store {
	t.Helper()
	d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	g.Driver = d
	return openDriver(t, g)
}

// openDriver opens a store over a driver. It is closed with the test.
func openDriver(t *testing.T, d driver.Driver) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestConcurrentCommandsShareACommit blocks the first commit: all commands that arrive
// meanwhile must be in the second.
func TestConcurrentCommandsShareACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{held: make(chan struct{})}
		s := openGate(t, g)
		const callers = 100
		var wg sync.WaitGroup
		firsts := make([]int64, callers)
		reserve := func(i int) {
			wg.Go(func() {
				var err error
				if firsts[i], err = s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "r"}); err != nil {
					t.Error(err)
				}
			})
		}
		reserve(0)
		synctest.Wait()
		for i := 1; i < callers; i++ {
			reserve(i)
		}
		synctest.Wait()
		<-g.held
		<-g.held
		wg.Wait()
		if got := g.commits.Load(); got != 2 {
			t.Errorf("%d commits for %d commands, want 2", got, callers)
		}
		seen := map[int64]bool{}
		for _, first := range firsts {
			seen[first] = true
		}
		if len(seen) != callers {
			t.Errorf("%d different ids for %d callers", len(seen), callers)
		}
	})
}

// TestFailingCommandCostsOnlyItself puts good and bad commands into one batch.
func TestFailingCommandCostsOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{held: make(chan struct{})}
		s := openGate(t, g)
		commit := func(call func()) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				call()
			}()
			<-g.held
			<-done
		}
		var r agl.AttemptedRollout
		commit(func() {
			var err error
			if r, err = s.StartRollout(t.Context(), agl.StartRolloutParams{}); err != nil {
				t.Error(err)
			}
		})
		var wg sync.WaitGroup
		errs := make([]error, 4)
		call := func(i int, f func() error) { wg.Go(func() { errs[i] = f() }) }
		add := func(attempt string, ids ...string) error {
			var p agl.AddSpansParams
			for _, id := range ids {
				p.Spans = append(p.Spans, agl.Span{RolloutID: r.RolloutID, AttemptID: attempt, SpanID: id, SequenceID: 1})
			}
			p.Spans[len(p.Spans)-1].AttemptID = attempt
			_, err := s.AddSpans(t.Context(), p)
			return err
		}
		call(0, func() error { return add(r.Attempt.AttemptID, "a") })
		synctest.Wait()
		call(1, func() error { return add("at-x", "b", "c") })
		call(2, func() error { return add(r.Attempt.AttemptID, "d") })
		call(3, func() error { return s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}) })
		synctest.Wait()
		<-g.held
		<-g.held
		wg.Wait()
		if errs[0] != nil || errs[2] != nil {
			t.Errorf("good commands failed: %v", errs)
		}
		if !errors.Is(errs[1], agl.ErrNotFound) || !errors.Is(errs[3], agl.ErrIllegalState) {
			t.Errorf("bad commands gave %v, want not found and illegal state", errs)
		}
		page, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil || page.Total != 2 {
			t.Errorf("%d spans, error %v, want 2", page.Total, err)
		}
	})
}

// TestFailedCommit checks that every command of a failed batch fails, that nothing of
// it is stored, and that blocked dequeues survive it.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		s := openGate(t, g)
		waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
		lost := agl.Errorf(agl.CodeUnavailable, "the database is away")
		g.fail.Store(&lost)
		_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1), IdempotencyKey: "k"})
		if !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("enqueue: error %v, want that of the commit", err)
		}
		late := arrived(t, "a dequeue meanwhile", block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, WorkerID: agl.Some("w")}))
		if !errors.Is(late.err, agl.ErrUnavailable) {
			t.Errorf("dequeue: error %v, want that of the commit", late.err)
		}
		blocked(t, "the first dequeue", waiting)
		g.fail.Store(nil)
		stats, err := s.Statistics(t.Context())
		if err != nil || stats.TotalRollouts != 0 || stats.TotalWorkers != 0 {
			t.Errorf("statistics %+v, error %v, want nothing", stats, err)
		}
		enqueue(t, s, 2, agl.RolloutConfig{})
		if got := arrived(t, "the first dequeue", waiting); len(got.result.Rollouts) != 1 || got.err != nil {
			t.Errorf("got %+v, want one rollout", got)
		}
		if got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 9}); err != nil || len(got.Rollouts) != 1 {
			t.Errorf("got %v, error %v, want the other rollout", got, err)
		}
	})
}

// TestPanicFailsItsBatch makes the driver panic under a batch of several callers: all
// of them fail, and the store keeps working.
func TestPanicFailsItsBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{held: make(chan struct{})}
		s := openGate(t, g)
		g.panics.Store(2)
		const callers = 3
		errs := make(chan error, callers+1)
		reserve := func() {
			_, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "r"})
			errs <- err
		}
		go reserve()
		synctest.Wait()
		for range callers {
			go reserve()
		}
		synctest.Wait()
		<-g.held
		<-g.held
		for range callers + 1 {
			if err := <-errs; agl.ErrorCode(err) != agl.CodeInternal || !strings.Contains(err.Error(), "the driver has a bug") {
				t.Errorf("error %v, want an internal one that tells of the panic", err)
			}
		}
		go reserve()
		<-g.held
		if err := <-errs; err != nil {
			t.Errorf("after the panics: %v", err)
		}
	})
}

// TestDeadlineSurvivesAFailedCommit lets the driver fail when a deadline fires.
func TestDeadlineSurvivesAFailedCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		s := openGate(t, g)
		r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
			Config: &agl.RolloutConfig{TimeoutSeconds: agl.Some(5.0)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		lost := agl.Errorf(agl.CodeUnavailable, "the database is away")
		g.fail.Store(&lost)
		time.Sleep(10 * time.Second)
		if _, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: r.RolloutID}); err != nil {
			t.Errorf("reading meanwhile: %v", err)
		}
		g.fail.Store(nil)
		time.Sleep(2 * time.Second)
		got, err := g.Rollouts(t.Context(), []string{r.RolloutID})
		if err != nil || got[0].Status != agl.RolloutFailed {
			t.Errorf("rollout is %v, error %v, want it failed", got, err)
		}
	})
}

// TestNotices changes the database behind the engine's back.
func TestNotices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{notices: make(chan driver.Notice)}
		s := openGate(t, g)
		r := enqueue(t, s, 2, agl.RolloutConfig{TimeoutSeconds: agl.Some(5.0)})
		waited := make(chan []agl.Rollout, 1)
		go func() {
			got, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{r[0].RolloutID}})
			if err != nil {
				t.Error(err)
			}
			waited <- got
		}()
		peer := reopen(t, g.Driver)
		defer func() {
			if err := peer.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		if _, err := peer.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 2}); err != nil {
			t.Fatal(err)
		}
		waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
		if _, err := peer.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: r[0].RolloutID}); err != nil {
			t.Fatal(err)
		}
		enqueue(t, peer, 1, agl.RolloutConfig{})
		synctest.Wait()
		g.notices <- driver.Notice{Queue: true, Rollouts: []string{r[0].RolloutID, r[1].RolloutID, "gone"}}
		if got := arrived(t, "the dequeue", waiting); len(got.result.Rollouts) != 1 {
			t.Errorf("got %+v, want what the peer enqueued", got)
		}
		if got := <-waited; len(got) != 1 || got[0].Status != agl.RolloutCancelled {
			t.Errorf("waited for %v, want what the peer cancelled", got)
		}
		close(g.notices)
		synctest.Wait()
	})
}

// counting observes how often the driver is called.
type counting struct {
	mu       sync.Mutex
	calls    map[string]int
	finished []agl.RolloutStatus
}

func (c *counting) ObserveStore(method string, err error, _ time.Duration) { c.count(method, err) }

func (c *counting) ObserveDriver(method string, err error, _ time.Duration) {
	c.count("driver."+method, err)
}

func (c *counting) ObserveRollout(status agl.RolloutStatus, _ agl.Mode, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished = append(c.finished, status)
}

func (c *counting) count(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		what += " failed"
	}
	c.calls[what]++
}

func TestObserver(t *testing.T) {
	t.Parallel()
	d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	seen := &counting{calls: map[string]int{}}
	s, err := store.New(t.Context(), store.Config{Driver: d, Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: "nope"}); err == nil {
		t.Error("cancelled nothing")
	}
	if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: r.RolloutID}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{
		"StartRollout": 1, "CancelRollout": 1, "CancelRollout failed": 1, "driver.Load": 3, "driver.Apply": 2,
	} {
		if got := seen.calls[what]; got != want {
			t.Errorf("%s was observed %d times, want %d", what, got, want)
		}
	}
	if len(seen.finished) != 1 || seen.finished[0] != agl.RolloutCancelled {
		t.Errorf("observed the ends %v, want one cancelled", seen.finished)
	}
}

// TestLongRolloutHasNoQuadraticStep counts what commits write and read instead of
// measuring time: one more span costs the same work, however many there are.
func TestLongRolloutHasNoQuadraticStep(t *testing.T) { //nolint:paralleltest // it counts allocations
	d, err := memory.New(memory.Config{CapacityBytes: 1 << 34})
	if err != nil {
		t.Fatal(err)
	}
	counter := &loadCounter{Driver: d}
	s := reopen(t, counter)
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	perSpan := func(from, n int) (rows int64, allocs float64) {
		before := counter.rows.Load()
		i := from
		allocs = testing.AllocsPerRun(n-1, func() {
			span := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: strconv.Itoa(i), SequenceID: int64(i)}
			i++
			if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
				t.Fatal(err)
			}
		})
		return (counter.rows.Load() - before) / int64(n), allocs
	}
	rows, allocs := perSpan(0, 1000)
	rowsLater, allocsLater := perSpan(10_000, 1000)
	if rowsLater > rows || allocsLater > allocs+2 {
		t.Errorf("a span takes %d rows and %.0f allocations, %d and %.0f at first", rowsLater, allocsLater, rows, allocs)
	}
	page := func(offset int) float64 {
		return testing.AllocsPerRun(10, func() {
			got, err := s.QuerySpansJSON(t.Context(), agl.QuerySpansParams{
				RolloutID: r.RolloutID, Paging: agl.Paging{Limit: 10, Offset: offset, SortBy: "sequence_id"},
			})
			if err != nil || len(got.Items) != 10 || got.Total != 2000 {
				t.Errorf("got %d of %d spans, error %v", len(got.Items), got.Total, err)
			}
		})
	}
	if first, last := page(0), page(1990); last > first {
		t.Errorf("a late page takes %.0f allocations, the first %.0f", last, first)
	}
}

// loadCounter counts the rows that batches load and write.
type loadCounter struct {
	driver.Driver

	rows atomic.Int64
}

func (c *loadCounter) Begin(ctx context.Context) (driver.Tx, error) {
	b, err := c.Driver.Begin(ctx)
	return countedTx{b, c}, err
}

type countedTx struct {
	driver.Tx

	counter *loadCounter
}

func (b countedTx) Load(ctx context.Context, want *driver.LoadParams, got *driver.Loaded) error {
	err := b.Tx.Load(ctx, want, got)
	b.counter.rows.Add(int64(len(got.Rollouts) + len(got.Attempts) + len(got.Workers) + len(got.Spans) + len(got.Sequences)))
	return err
}

func (b countedTx) Apply(ctx context.Context, c *driver.Changes) error {
	b.counter.rows.Add(int64(len(c.Rollouts) + len(c.Attempts) + len(c.Workers) + len(c.Spans) + len(c.Sequences) + len(c.Events)))
	return b.Tx.Apply(ctx, c)
}

// TestRewardOfAReturnedClaimInABatch posts a reward for an attempt while its claim is returned.
func TestRewardOfAReturnedClaimInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{release: make(chan struct{})}
		s := openGate(t, g)
		enqueue(t, s, 1, agl.RolloutConfig{})
		claimed, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
		if err != nil || len(claimed.Rollouts) != 1 {
			t.Fatalf("got %+v, %v", claimed, err)
		}
		g.hold.Store(true)
		var calls sync.WaitGroup
		for _, call := range []func() error{
			func() error { return s.CloseQueue(t.Context()) }, // its commit is held
			func() error {
				_, err := agl.AddReward(t.Context(), s, agl.AddRewardParams{
					RolloutID: claimed.Rollouts[0].RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 1}},
				})
				return err
			},
			func() error {
				return s.ReturnClaims(t.Context(), agl.ReturnClaimsParams{Claims: agl.ClaimsOf(claimed.Rollouts...)})
			},
		} {
			calls.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(g.release)
		calls.Wait()
		stats, err := s.Statistics(t.Context())
		if err != nil || stats.TotalAttempts != 0 || stats.TotalSpans != 0 {
			t.Errorf("got %d attempts and %d spans, %v, want none", stats.TotalAttempts, stats.TotalSpans, err)
		}
	})
}

// TestCreateAfterDeleteInABatch creates a rollout again while another caller deletes it.
func TestCreateAfterDeleteInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &gate{Driver: newMemory(t, storetest.OpenParams{}), release: make(chan struct{})}
		s := reopen(t, d)
		defer func() {
			if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		create := func(input string) ([]agl.AttemptedRollout, error) {
			return s.CreateRollouts(t.Context(), agl.CreateRolloutsParams{Rollouts: []agl.CreateRollout{
				{RolloutID: "chosen", EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(input)}},
			}})
		}
		if _, err := create("1"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: "chosen"}); err != nil {
			t.Fatal(err)
		}
		d.hold.Store(true)
		var calls sync.WaitGroup
		for _, call := range []func() error{
			func() error { return s.CloseQueue(t.Context()) }, // its commit is held
			func() error {
				return s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: "chosen"})
			},
			func() error {
				made, err := create("2")
				if err == nil && (made[0].RolloutID != "chosen" || string(made[0].Input) != "2") {
					t.Errorf("created %+v, want the rollout under the chosen id", made)
				}
				return err
			},
		} {
			calls.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(d.release)
		calls.Wait()
		if got, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: "chosen"}); err != nil || string(got.Input) != "2" {
			t.Errorf("got %+v, %v, want what was created last", got, err)
		}
	})
}
