package store_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
)

// inBubble runs a test on fake time: a store over the memory driver with the
// system's clock, and all goroutines blocked whenever synctest.Wait returns.
func inBubble(t *testing.T, test func(t *testing.T, s *store.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, openMemory(t, memory.Config{CapacityBytes: 1 << 30})) })
}

func enqueue(t *testing.T, s agl.Store, n int, config agl.RolloutConfig) []agl.Rollout {
	t.Helper()
	p := agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, n)}
	for i := range p.Rollouts {
		p.Rollouts[i] = agl.EnqueueRollout{Input: jsontext.Value(strconv.Itoa(i)), Config: &config}
	}
	got, err := s.EnqueueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// answer is what a blocked call came back with.
type answer struct {
	result agl.DequeueResult
	err    error
	took   time.Duration
}

// block dequeues in the background and is blocked when it returns.
func block(ctx context.Context, s agl.Store, p agl.DequeueRolloutsParams) <-chan answer {
	done := make(chan answer, 1)
	start := time.Now()
	go func() {
		result, err := s.DequeueRollouts(ctx, p)
		done <- answer{result, err, time.Since(start)}
	}()
	synctest.Wait()
	return done
}

func blocked(t *testing.T, what string, c <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		t.Fatalf("%s came back with %+v, want it blocked", what, a)
	default:
	}
}

func arrived(t *testing.T, what string, c <-chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		return a
	default:
		t.Fatalf("%s is blocked", what)
		return answer{}
	}
}

func TestBlockedDequeuesAreServedInOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		p := agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour}
		first := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 2, Wait: time.Hour, WorkerID: agl.Some("first")})
		leaver := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute})
		second, third := block(t.Context(), s, p), block(t.Context(), s, p)
		enqueue(t, s, 1, agl.RolloutConfig{})
		if got := arrived(t, "first", first).result.Rollouts; len(got) != 1 {
			t.Errorf("first got %d rollouts, want the one there was", len(got))
		}
		blocked(t, "second", second)
		time.Sleep(2 * time.Minute)
		if got := arrived(t, "leaver", leaver); len(got.result.Rollouts) > 0 || got.err != nil || got.took != time.Minute {
			t.Errorf("got %+v, want nothing after a minute", got)
		}
		enqueue(t, s, 1, agl.RolloutConfig{})
		arrived(t, "second", second)
		blocked(t, "third", third)
		enqueue(t, s, 3, agl.RolloutConfig{})
		if got := arrived(t, "third", third).result.Rollouts; len(got) != 1 || string(got[0].Input) != "0" {
			t.Errorf("third got %v, want the oldest", got)
		}
	})
}

func TestBlockedDequeueWakesWithoutEnqueue(t *testing.T) {
	t.Parallel()
	for name, requeue := range map[string]func(t *testing.T, s *store.Store, r *agl.AttemptedRollout){
		"a deadline": func(*testing.T, *store.Store, *agl.AttemptedRollout) { time.Sleep(11 * time.Second) },
		"a returned claim": func(t *testing.T, s *store.Store, r *agl.AttemptedRollout) {
			t.Helper()
			if err := s.ReturnClaims(t.Context(), agl.ReturnClaimsParams{Claims: agl.ClaimsOf(*r)}); err != nil {
				t.Fatal(err)
			}
		},
		"a failure": func(t *testing.T, s *store.Store, r *agl.AttemptedRollout) {
			t.Helper()
			timeout := agl.AttemptTimeout
			_, err := s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &timeout})
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *store.Store) {
				enqueue(t, s, 1, agl.RolloutConfig{
					MaxAttempts: 2, TimeoutSeconds: agl.Some(10.0), RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout},
				})
				r := arrived(t, "the first claim", block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1})).result.Rollouts[0]
				waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, WorkerID: agl.Some("w")})
				requeue(t, s, &r)
				got := arrived(t, "the dequeue", waiting).result.Rollouts
				if len(got) != 1 || got[0].RolloutID != r.RolloutID {
					t.Fatalf("got %v, want the rollout again", got)
				}
			})
		})
	}
}

// TestDeadlinesFireInTime checks the promise of 100 ms without any traffic.
func TestDeadlinesFireInTime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		var want []string
		finished := make(chan string, 10)
		for i := 9; i >= 0; i-- {
			limit := time.Duration(i+1) * time.Second
			r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
				Config: &agl.RolloutConfig{TimeoutSeconds: agl.Some(limit.Seconds())},
			}})
			if err != nil {
				t.Fatal(err)
			}
			want = append([]string{r.RolloutID}, want...)
			start := time.Now()
			go func() {
				got, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}})
				if err != nil || len(got) != 1 || got[0].Status != agl.RolloutFailed {
					t.Errorf("waited for %v, error %v, want a failed rollout", got, err)
				}
				if late := time.Since(start) - limit; late < 0 || late > 100*time.Millisecond {
					t.Errorf("the deadline of %v fired %v late", limit, late)
				}
				finished <- r.RolloutID
			}()
		}
		for i, id := range want {
			if got := <-finished; got != id {
				t.Errorf("rollout %d to end is %s, want %s", i, got, id)
			}
		}
	})
}

func TestWaitTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		r := enqueue(t, s, 2, agl.RolloutConfig{})
		if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: r[1].RolloutID}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		got, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{
			RolloutIDs: []string{r[0].RolloutID, r[1].RolloutID}, Timeout: agl.Some(5 * time.Second),
		})
		if err != nil || len(got) != 1 || got[0].RolloutID != r[1].RolloutID || time.Since(start) != 5*time.Second {
			t.Errorf("got %v, error %v after %v, want the cancelled one after 5s", got, err, time.Since(start))
		}
	})
}

// TestWaitGoesOnAfterReopening finishes and reopens a rollout before the wait has read
// it.
func TestWaitGoesOnAfterReopening(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		r := enqueue(t, s, 1, agl.RolloutConfig{})[0]
		done := make(chan []agl.Rollout, 1)
		go func() {
			got, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}})
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		synctest.Wait()
		for _, status := range []agl.RolloutStatus{agl.RolloutFailed, agl.RolloutQueuing} {
			if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: r.RolloutID, Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		succeeded := agl.RolloutSucceeded
		if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: r.RolloutID, Status: &succeeded}); err != nil {
			t.Fatal(err)
		}
		// Either the wait saw the first end in time, or it waited for the second.
		if got := <-done; len(got) != 1 || !got[0].Status.Finished() {
			t.Errorf("waited for %v, want one finished rollout", got)
		}
	})
}

func TestCloseReleasesEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.New(t.Context(), store.Config{Driver: d})
		if err != nil {
			t.Fatal(err)
		}
		r := enqueue(t, s, 1, agl.RolloutConfig{TimeoutSeconds: agl.Some(60.0)})[0]
		arrived(t, "the claim", block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: "k"}))
		waiting := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, IdempotencyKey: "x"})
		repeat := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, IdempotencyKey: "x"})
		waited := make(chan error, 1)
		go func() {
			_, err := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}})
			waited <- err
		}()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e, err := range s.Events(t.Context(), agl.EventsParams{}) {
				if !errors.Is(err, agl.ErrUnavailable) {
					t.Errorf("event %v, error %v, want unavailable", e, err)
				}
			}
		}()
		synctest.Wait()
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := arrived(t, "the dequeue", waiting).err; !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("dequeue: error %v, want unavailable", err)
		}
		if err := arrived(t, "the repeat", repeat).err; !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("repeated dequeue: error %v, want unavailable", err)
		}
		if err := <-waited; !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("wait: error %v, want unavailable", err)
		}
		<-ended
		if err := s.CloseQueue(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("write: error %v, want unavailable", err)
		}

		// Another engine over the same data watches the same deadlines.
		s = reopen(t, d)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		got, err := d.Rollouts(t.Context(), []string{r.RolloutID})
		if err != nil || got[0].Status != agl.RolloutFailed || got[0].Attempt.Status != agl.AttemptTimeout {
			t.Errorf("rollout is %v, error %v, want it timed out", got, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func reopen(t *testing.T, d driver.Driver) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClaimOfALeaver cancels a caller at the moment when it is served.
func TestClaimOfALeaver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			leaver := block(ctx, s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, WorkerID: agl.Some("leaver"), IdempotencyKey: "k"})
			patient := block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour, WorkerID: agl.Some("patient")})
			cancel()
			enqueue(t, s, 1, agl.RolloutConfig{})
			left := arrived(t, "the leaver", leaver)
			if left.err != nil {
				got := arrived(t, "the patient one", patient)
				if len(got.result.Rollouts) != 1 || got.result.Rollouts[0].Attempt.SequenceID != 1 {
					t.Fatalf("the patient one got %+v, want the rollout's first attempt", got)
				}
			} else {
				blocked(t, "the patient one", patient)
				enqueue(t, s, 1, agl.RolloutConfig{})
				arrived(t, "the patient one", patient)
				if err := s.ReturnClaims(t.Context(), agl.ReturnClaimsParams{Claims: agl.ClaimsOf(left.result.Rollouts...), IdempotencyKey: "k"}); err != nil {
					t.Fatal(err)
				}
				if got := arrived(t, "the next one", block(t.Context(), s, agl.DequeueRolloutsParams{Limit: 9})); len(got.result.Rollouts) != 1 {
					t.Fatalf("got %+v, want what was given back", got)
				}
			}
		}
	})
}

func TestClosedQueueReleasesBlockedDequeues(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		p := agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour}
		first, second := block(t.Context(), s, p), block(t.Context(), s, p)
		if err := s.CloseQueue(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []<-chan answer{first, second} {
			if got := arrived(t, "a dequeue", c); !got.result.Closed || got.err != nil || got.took != 0 {
				t.Errorf("got %+v, want closed at once", got)
			}
		}
		if err := s.OpenQueue(t.Context()); err != nil {
			t.Fatal(err)
		}
		third := block(t.Context(), s, p)
		blocked(t, "a dequeue of the open queue", third)
		enqueue(t, s, 1, agl.RolloutConfig{})
		if got := arrived(t, "the dequeue", third); len(got.result.Rollouts) != 1 {
			t.Errorf("got %+v, want the rollout", got)
		}
	})
}

// TestFailedCommitLosesNoWake: waiting dequeues get claims that were returned while
// the driver was failing.
func TestFailedCommitLosesNoWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notices := make(chan driver.Notice)
		g := &gate{notices: notices}
		s := openGate(t, g)
		served := make(chan int, 1)
		go func() {
			res, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			served <- len(res.Rollouts)
		}()
		synctest.Wait()
		// Another process enqueues: the engine learns it by a notice only.
		other, err := store.New(t.Context(), store.Config{Driver: g.Driver})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := other.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		if _, err := other.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)}); err != nil {
			t.Fatal(err)
		}
		away := errors.New("the database is away")
		g.fail.Store(&away)
		notices <- driver.Notice{Queue: true}
		synctest.Wait()
		select {
		case n := <-served:
			t.Fatalf("served %d although the commit failed", n)
		default:
		}
		g.fail.Store(nil)
		// Any next command finds the claim for the one who waits.
		if _, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "r"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case n := <-served:
			if n != 1 {
				t.Errorf("served %d rollouts, want 1", n)
			}
		default:
			t.Error("the waiter was forgotten")
		}
	})
}

// A stream of events begins when it is asked for, and each reading of it begins there.
func TestEventsBeginAtTheCall(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		enqueue(t, s, 1, agl.RolloutConfig{})
		events := s.Events(t.Context(), agl.EventsParams{})
		want := enqueue(t, s, 1, agl.RolloutConfig{})[0].RolloutID
		for range 2 {
			for e, err := range events {
				if err != nil || e.RolloutID != want {
					t.Errorf("got %+v, %v, want the first event after the call, of rollout %s", e, err, want)
				}
				break
			}
		}
	})
}

// A reader that only wants to know whether to look again gets what changes at once, then waits, and is told in one event of what
// were many.
func TestEventsEvery(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		const every = time.Minute
		type seen struct {
			kind agl.EventKind
			at   time.Duration
		}
		var mu sync.Mutex // guards:
		var got []seen
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		start := time.Now()
		go func() {
			defer close(done)
			for e, err := range s.Events(ctx, agl.EventsParams{Every: every}) {
				if err == nil {
					mu.Lock()
					got = append(got, seen{e.Kind, time.Since(start)})
					mu.Unlock()
				}
			}
		}()
		synctest.Wait()
		want := func(what string, wanted ...seen) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, wanted) {
				t.Fatalf("%s: got %v, want %v", what, got, wanted)
			}
			got = nil
		}
		enqueue(t, s, 1, agl.RolloutConfig{})
		want("the first at once", seen{agl.EventRollout, 0})
		time.Sleep(time.Second)
		enqueue(t, s, 2, agl.RolloutConfig{})
		want("later ones wait")
		time.Sleep(every)
		want("and come together", seen{agl.EventRollout, every}, seen{agl.EventRollout, every})
		enqueue(t, s, 129, agl.RolloutConfig{})
		time.Sleep(every)
		want("many are one", seen{agl.EventReset, 2 * every})
		time.Sleep(every)
		enqueue(t, s, 1, agl.RolloutConfig{})
		want("after which it goes on", seen{agl.EventRollout, 3*every + time.Second})
		cancel()
		<-done
	})
}

// One dequeue gets a thousand rollouts at most, so that others need not wait long for its commit.
func TestLargeDequeue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *store.Store) {
		enqueue(t, s, 1001, agl.RolloutConfig{})
		for _, want := range []int{1000, 1, 0} {
			got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 200_000})
			if err != nil || len(got.Rollouts) != want {
				t.Errorf("got %d rollouts, error %v, want %d", len(got.Rollouts), err, want)
			}
		}
	})
}
