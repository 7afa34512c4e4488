package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres"
)

// patience bounds what must happen soon.
const patience = 30 * time.Second

// two starts two engines on one new database. They hear of each other by
// notifications alone: nothing is polled while a test runs.
func two(t *testing.T) (a, b *store.Store) {
	t.Helper()
	config := postgres.Config{URL: server.Database(t), MaxConns: 4, PollInterval: time.Hour}
	return engine(t, config), engine(t, config)
}

func numbered(n int) []agl.EnqueueRollout {
	out := make([]agl.EnqueueRollout, n)
	for i := range out {
		out[i].Input = jsontext.Value(strconv.Itoa(i))
	}
	return out
}

func enqueue(t *testing.T, s *store.Store, p agl.EnqueueRolloutsParams) []agl.Rollout {
	t.Helper()
	got, err := s.EnqueueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func start(t *testing.T, s *store.Store, p agl.StartRolloutParams) agl.AttemptedRollout {
	t.Helper()
	got, err := s.StartRollout(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func setStatus(ctx context.Context, s *store.Store, a *agl.Attempt, status agl.AttemptStatus) error {
	_, err := s.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: a.RolloutID, AttemptID: a.AttemptID, Status: &status})
	return err
}

// TestClaimsOnce has 64 dequeues on two servers compete for rollouts.
func TestClaimsOnce(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	const rollouts, dequeues = 300, 64
	enqueue(t, a, agl.EnqueueRolloutsParams{Rollouts: numbered(rollouts)})
	var (
		mu      sync.Mutex
		claimed = map[string]int{}
		workers sync.WaitGroup
	)
	for i := range dequeues {
		s := []*store.Store{a, b}[i%2]
		workers.Go(func() {
			for {
				got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1 + i%3, WorkerID: agl.Some("w" + strconv.Itoa(i))})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range got.Rollouts {
					claimed[r.RolloutID]++
				}
				done := len(claimed) == rollouts
				mu.Unlock()
				// Rows that the other server looks at are passed over, so that an empty
				// answer does not mean an empty queue.
				if done {
					return
				}
			}
		})
	}
	workers.Wait()
	for id, n := range claimed {
		if n != 1 {
			t.Errorf("rollout %s was claimed %d times", id, n)
		}
	}
	stats, err := b.Statistics(t.Context())
	if err != nil || stats.TotalAttempts != rollouts || stats.TotalWorkers != dequeues {
		t.Errorf("statistics %+v, error %v, want %d attempts and %d workers", stats, err, rollouts, dequeues)
	}
}

// TestWakesTheOtherServer blocks calls on one server and ends them on the other.
func TestWakesTheOtherServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// block is a call that is blocked; end makes it return.
		block func(ctx context.Context, s *store.Store, r agl.AttemptedRollout) error
		end   func(ctx context.Context, s *store.Store, r agl.AttemptedRollout) error
	}{
		{
			"a dequeue by an enqueue",
			func(ctx context.Context, s *store.Store, _ agl.AttemptedRollout) error {
				got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: patience})
				return want(len(got.Rollouts) == 1, err, "no claim")
			},
			func(ctx context.Context, s *store.Store, _ agl.AttemptedRollout) error {
				_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
				return err
			},
		},
		{
			"a dequeue by the closing of the queue",
			func(ctx context.Context, s *store.Store, _ agl.AttemptedRollout) error {
				got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: patience})
				return want(got.Closed, err, "the queue is not closed")
			},
			func(ctx context.Context, s *store.Store, _ agl.AttemptedRollout) error { return s.CloseQueue(ctx) },
		},
		{
			"a wait by the end of the rollout",
			func(ctx context.Context, s *store.Store, r agl.AttemptedRollout) error {
				got, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}, Timeout: agl.Some(patience)})
				return want(len(got) == 1, err, "not finished")
			},
			func(ctx context.Context, s *store.Store, r agl.AttemptedRollout) error {
				return setStatus(ctx, s, r.Attempt, agl.AttemptSucceeded)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := two(t)
			r := start(t, a, agl.StartRolloutParams{})
			done := make(chan error, 1)
			go func() { done <- tc.block(t.Context(), b, r) }()
			// The blocked call returns, in whatever order the two run.
			if err := tc.end(t.Context(), a, r); err != nil {
				t.Error(err)
			}
			begin := time.Now()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if d := time.Since(begin); d >= patience {
				t.Errorf("it took %v", d)
			}
		})
	}
}

func want(ok bool, err error, message string) error {
	if err == nil && !ok {
		err = agl.Errorf(agl.CodeInternal, "%s", message)
	}
	return err
}

// TestDocumentsOnTwoServers counts in one document through both servers: no write is lost,
// and only one of two creates it.
func TestDocumentsOnTwoServers(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	const times = 40
	var both sync.WaitGroup
	var created atomic.Int64
	for _, s := range []*store.Store{a, b} {
		both.Go(func() {
			for added := 0; added < times; {
				d, err := s.GetDocument(t.Context(), "key", "k")
				if err != nil && !errors.Is(err, agl.ErrNotFound) {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(d.Body)) // 0 if there is none
				_, err = s.WriteDocuments(t.Context(), agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{{
					Kind: "key", ID: "k", Body: strconv.AppendInt(nil, int64(n+1), 10), IfVersion: agl.Some(d.Version),
				}}})
				switch {
				case err == nil:
					added++
					if d.Version == 0 {
						created.Add(1)
					}
				case !errors.Is(err, agl.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	both.Wait()
	got, err := b.GetDocument(t.Context(), "key", "k")
	if err != nil || string(got.Body) != strconv.Itoa(2*times) || got.Version != 2*times || created.Load() != 1 {
		t.Errorf("counted %s at version %d, created %d times, error %v, want %d, as many, once", got.Body, got.Version, created.Load(), err, 2*times)
	}
}

// TestSequenceIDs reserves through both servers, in turn and at once.
func TestSequenceIDs(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	servers := []*store.Store{a, b}
	reserve := func(s *store.Store, rollout string, count int) int64 {
		first, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: rollout, Count: count})
		if err != nil {
			t.Error(err)
		}
		return first
	}
	for i := range 20 {
		if got := reserve(servers[i%2], "in turn", 1); got != int64(i)+1 {
			t.Fatalf("number %d is %d", i, got)
		}
	}
	const reservers, each, count = 16, 10, 3
	var (
		mu    sync.Mutex
		given []int64
		all   sync.WaitGroup
	)
	for i := range reservers {
		all.Go(func() {
			last := int64(0)
			for j := range each {
				first := reserve(servers[(i+j)%2], "at once", count)
				if first <= last {
					t.Errorf("%d after %d", first, last)
				}
				last = first + count - 1
				mu.Lock()
				given = append(given, first)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(given)
	for i, first := range given {
		if want := int64(i)*count + 1; first != want {
			t.Fatalf("block %d begins with %d, want %d", i, first, want)
		}
	}
}

// TestEventsInCommitOrder writes on both servers and reads on both: each reader
// gets every event, in one order.
func TestEventsInCommitOrder(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	servers := []*store.Store{a, b}
	const writers, each = 8, 15
	read := func(s *store.Store, since string) (ids []string) {
		seen := 0
		for e, err := range s.Events(t.Context(), agl.EventsParams{Since: since}) {
			if err != nil {
				t.Error(err)
				return ids
			}
			if e.Kind == agl.EventReset {
				t.Errorf("reset after %d events", len(ids))
			}
			ids = append(ids, e.ID)
			if e.Kind == agl.EventRollout {
				seen++
			}
			if seen == writers*each*2 {
				return ids
			}
		}
		return ids
	}
	var begin string
	for e, err := range a.Events(t.Context(), agl.EventsParams{Since: "unknown"}) {
		if err != nil {
			t.Fatal(err)
		}
		begin = e.ID
		break
	}
	var got [2][]string
	var readers, all sync.WaitGroup
	for i, s := range servers {
		readers.Go(func() { got[i] = read(s, begin) })
	}
	for i := range writers {
		all.Go(func() {
			for j := range each {
				r, err := servers[(i+j)%2].StartRollout(t.Context(), agl.StartRolloutParams{})
				if err == nil {
					err = setStatus(t.Context(), servers[j%2], r.Attempt, agl.AttemptSucceeded)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	readers.Wait()
	if diff := cmp.Diff(got[0], got[1]); diff != "" {
		t.Errorf("the readers saw different events:\n%s", diff)
	}
	if again := read(b, begin); !slices.Equal(again, got[1]) {
		t.Error("what is read later is not what was seen live")
	}
}

// TestDeadlinesOnce lets both servers watch the same deadlines.
func TestDeadlinesOnce(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	const rollouts = 20
	config := agl.RolloutConfig{TimeoutSeconds: agl.Some(0.2), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout}}
	ids := make([]string, rollouts)
	for i := range ids {
		s := []*store.Store{a, b}[i%2]
		ids[i] = start(t, s, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Config: &config}}).RolloutID
	}
	// Each comes back to the queue once, as its second attempt.
	var claims []agl.AttemptedRollout
	for len(claims) < rollouts {
		got, err := b.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: rollouts, Wait: patience})
		if err != nil || len(got.Rollouts) == 0 {
			t.Fatalf("%d of %d rollouts were queued again, error %v", len(claims), rollouts, err)
		}
		claims = append(claims, got.Rollouts...)
	}
	done, err := a.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: ids, Timeout: agl.Some(patience)})
	if err != nil || len(done) != rollouts {
		t.Fatalf("%d rollouts have ended, error %v", len(done), err)
	}
	for _, id := range ids {
		page, err := b.QueryAttempts(t.Context(), agl.QueryAttemptsParams{RolloutID: id})
		if err != nil {
			t.Fatal(err)
		}
		for i, attempt := range page.Items {
			if len(page.Items) != 2 || attempt.SequenceID != i+1 || attempt.Status != agl.AttemptTimeout {
				t.Errorf("attempt %d of %d of %s is number %d, %s", i, len(page.Items), id, attempt.SequenceID, attempt.Status)
			}
		}
	}
}

// TestNewWorker lets both servers see a worker first, many times.
func TestNewWorker(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	const workers = 20
	for i := range workers {
		var both sync.WaitGroup
		for _, s := range []*store.Store{a, b} {
			both.Go(func() {
				_, err := s.UpdateWorker(t.Context(), agl.UpdateWorkerParams{WorkerID: strconv.Itoa(i), HeartbeatStats: jsontext.Value(`{}`)})
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	stats, err := a.Statistics(t.Context())
	if err != nil || stats.TotalWorkers != workers {
		t.Errorf("statistics %+v, error %v, want %d workers", stats, err, workers)
	}
}

// TestSameRows changes the same few rollouts and workers on both servers at once:
// nothing blocks forever, nothing is lost.
func TestSameRows(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	const rollouts, hands, each = 4, 12, 15
	var attempts []*agl.Attempt
	for i := range rollouts {
		attempts = append(attempts, start(t, a, agl.StartRolloutParams{WorkerID: agl.Some("w" + strconv.Itoa(i))}).Attempt)
	}
	var spans atomic.Int64
	var all sync.WaitGroup
	for i := range hands {
		all.Go(func() {
			for j := range each {
				s := []*store.Store{a, b}[(i+j)%2]
				at := attempts[(i*j)%rollouts]
				_, err := s.AddSpans(t.Context(), agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{{
					RolloutID: at.RolloutID, AttemptID: at.AttemptID, SpanID: strconv.Itoa(i) + "-" + strconv.Itoa(j), TraceID: "t", Name: "n",
				}}})
				if err == nil {
					spans.Add(1)
					_, err = s.UpdateWorker(t.Context(), agl.UpdateWorkerParams{WorkerID: "w" + strconv.Itoa(j%rollouts)})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	total := 0
	for _, at := range attempts {
		page, err := b.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: at.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		total += page.Total
		for i, s := range page.Items {
			if s.SequenceID != int64(i)+1 {
				t.Errorf("span %d of %s has sequence id %d", i, at.RolloutID, s.SequenceID)
			}
		}
	}
	if total != hands*each || spans.Load() != hands*each {
		t.Errorf("%d spans are stored, want %d", total, hands*each)
	}
}

// TestHeldRows dequeues while a third party locks the only rollout and releases it
// without a notice.
func TestHeldRows(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL, PollInterval: time.Hour})
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT FROM agl.rollouts FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	// The dequeue skips it in the end, and a later look finds it.
	got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1})
	if err != nil || len(got.Rollouts) != 0 {
		t.Errorf("dequeued %v, error %v, although it is held", got.Rollouts, err)
	}
	done := make(chan error, 1)
	go func() {
		got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: patience})
		done <- want(len(got.Rollouts) == 1, err, "no claim")
	}()
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
