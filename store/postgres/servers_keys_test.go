package postgres_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/postgres"
)

// TestOneKeyOnTwoServers sends the same write to both servers at once, and again
// later.
func TestOneKeyOnTwoServers(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	const rounds = 20
	for i := range rounds {
		p := agl.EnqueueRolloutsParams{Rollouts: numbered(2), IdempotencyKey: "key " + strconv.Itoa(i)}
		var got [3][]agl.Rollout
		var both sync.WaitGroup
		for j, s := range []*store.Store{a, b} {
			both.Go(func() {
				var err error
				if got[j], err = s.EnqueueRollouts(t.Context(), p); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		got[2] = enqueue(t, b, p)
		if diff := cmp.Diff(got[0], got[1]) + cmp.Diff(got[0], got[2]); diff != "" {
			t.Fatalf("answers to one key differ:\n%s", diff)
		}
	}
	// A dequeue that is repeated on the other server gets the same claim, and keeps it when the first server finds that its answer
	// was lost.
	p := agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: "claim"}
	first, err := a.DequeueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.DequeueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("claims of one key differ:\n%s", diff)
	}
	lost := agl.ReturnClaimsParams{Claims: agl.ClaimsOf(first.Rollouts...), IdempotencyKey: p.IdempotencyKey}
	if err := a.ReturnClaims(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if r, err := b.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: first.Rollouts[0].RolloutID}); err != nil || r.Attempt == nil || r.Status != agl.RolloutPreparing {
		t.Errorf("the claim of the repeat: %+v, %v, want it kept", r, err)
	}
	stats, err := a.Statistics(t.Context())
	if err != nil || stats.TotalRollouts != 2*rounds || stats.TotalAttempts != 1 {
		t.Errorf("statistics %+v, error %v, want %d rollouts and one attempt", stats, err, 2*rounds)
	}
}

// TestTakeBackOnTwoServers repeats a dequeue at one server while another takes back its claim, because the answer was lost. The
// repeat gets a claim that stays.
func TestTakeBackOnTwoServers(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	for i := range 40 {
		id := enqueue(t, a, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})[0].RolloutID
		p := agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: "k" + strconv.Itoa(i)}
		lost, err := a.DequeueRollouts(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if err := a.ReturnClaims(t.Context(), agl.ReturnClaimsParams{Claims: agl.ClaimsOf(lost.Rollouts...), IdempotencyKey: p.IdempotencyKey}); err != nil {
				t.Error(err)
			}
		})
		var got agl.DequeueResult
		both.Go(func() {
			var err error
			if got, err = b.DequeueRollouts(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		r, err := a.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id})
		if err != nil || len(got.Rollouts) != 1 || r.Attempt == nil || r.Attempt.AttemptID != got.Rollouts[0].Attempt.AttemptID {
			t.Fatalf("the repeat got %+v, the rollout is %+v, %v", got.Rollouts, r, err)
		}
	}
}

// TestOneExpiredKeyOnTwoServers uses a key that has expired on both servers at once.
func TestOneExpiredKeyOnTwoServers(t *testing.T) {
	t.Parallel()
	config := postgres.Config{URL: server.Database(t), MaxConns: 4, Lifetimes: driver.Lifetimes{IdempotencyTTL: time.Hour}}
	a, b := open(t, config), open(t, config)
	errUsed := errors.New("the key is used")
	begin := func(d *postgres.Driver, now agl.Timestamp) (use func() error, err error) {
		tx, err := d.Begin(t.Context())
		if err != nil {
			return nil, err
		}
		var got driver.Loaded
		if err = tx.Load(t.Context(), &driver.LoadParams{Now: now, Keys: []string{"k"}}, &got); err == nil && len(got.Keys) > 0 {
			err = errUsed
		}
		if err != nil {
			tx.Discard()
			return nil, err
		}
		return func() error {
			defer tx.Discard()
			return tx.Apply(t.Context(), &driver.Changes{Now: now, Keys: []driver.IdempotencyRecord{{Scope: "k", Fingerprint: "f", CreateTime: now}}})
		}, nil
	}
	first, err := begin(a, 1000)
	if err == nil {
		err = first()
	}
	if err != nil {
		t.Fatal(err)
	}
	useA, err := begin(a, 9000)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		useB, err := begin(b, 9000) // the first use may lock the expired key
		if err == nil {
			err = useB()
		}
		second <- err
	}()
	if err := useA(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, driver.ErrRetry) && !errors.Is(err, errUsed) {
		t.Errorf("the second use: %v, want another try, which finds the first, or to find it at once", err)
	}
}
