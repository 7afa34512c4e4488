package access_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func newKey(t *testing.T, keys *access.Keys, limits access.Limits) *access.Caller {
	t.Helper()
	created, err := keys.Create(t.Context(), access.NewKey{Name: "budget", Scopes: access.Live, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	caller, err := keys.Check(t.Context(), created.Text)
	if err != nil {
		t.Fatal(err)
	}
	return &caller
}

func usage(t *testing.T, keys *access.Keys, id string) access.Usage {
	t.Helper()
	list, err := keys.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		if k.ID == id && k.Usage != nil {
			return *k.Usage
		}
	}
	t.Fatalf("no usage of %s in %+v", id, list)
	return access.Usage{}
}

// Three meters, each with its own server's keys on one store, reserve for 1,000 requests at
// once. As many get in as fit, and not one more, and what they return fits others again.
func TestBudgetsHoldOverServers(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	const fits, size = 370, 10
	caller := newKey(t, keys, access.Limits{MaxTokens: fits*size + size - 1})
	var meters []*access.Meter
	for range 3 {
		meters = append(meters, access.NewMeter(access.NewKeys(store)))
	}
	t.Cleanup(func() {
		for _, m := range meters {
			if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
	crowd := func(settle func(*access.Reservation)) (admitted int64) {
		var in atomic.Int64
		var held sync.Map
		var group sync.WaitGroup
		for i := range 1000 {
			group.Go(func() {
				got, err := meters[i%3].Reserve(t.Context(), caller, access.Amounts{Tokens: size})
				budget, is := errors.AsType[*access.BudgetError](err)
				switch {
				case err == nil:
					in.Add(1)
					held.Store(got, nil)
				case !is || budget.Unit != "tokens" || budget.Limit != fits*size+size-1 || budget.Left >= size || budget.Need != size:
					t.Errorf("refused: %v", err)
				}
			})
		}
		group.Wait()
		held.Range(func(got, _ any) bool {
			settle(got.(*access.Reservation)) //nolint:forcetypeassert // nothing else is stored
			return true
		})
		for usage(t, keys, caller.KeyID).Reserved != (access.Amounts{}) { // until all meters have told
			runtime.Gosched()
		}
		return in.Load()
	}
	if got := crowd(func(r *access.Reservation) { r.Settle(access.Amounts{}) }); got != fits {
		t.Errorf("%d were let in, %d fit", got, fits)
	}
	if got := crowd(func(r *access.Reservation) { r.Settle(access.Amounts{Tokens: 4}) }); got != fits {
		t.Errorf("after all was returned, %d were let in, %d fit", got, fits)
	}
	const left = (fits*size + size - 1 - fits*4) / size
	if got := crowd(func(r *access.Reservation) { r.Settle(access.Amounts{Tokens: size}) }); got != left {
		t.Errorf("%d were let in, %d fit beside what is spent", got, left)
	}
	for _, m := range meters {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	want := access.Usage{Spent: access.Amounts{Tokens: fits*4 + left*size}}
	if got := usage(t, keys, caller.KeyID); got != want {
		t.Errorf("used: %+v, want %+v", got, want)
	}
}

// Requests of random sizes come and go, of which some fail and some leave: what is spent and
// reserved is never above the limit, and in the end exactly what was used.
func TestBudgetsNeverPassTheLimit(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	caller := newKey(t, keys, access.Limits{MaxTokens: 20_000, MaxUSD: 0.5, MaxCalls: 7})
	var running, spent, held atomic.Int64 // held is what is spent and reserved
	var group sync.WaitGroup
	var meters []*access.Meter
	for range 3 {
		meters = append(meters, access.NewMeter(access.NewKeys(store)))
	}
	for i := range 60 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(8) == 0 {
					cancel()
				}
				size := 1 + random.Int64N(400)
				got, err := meters[i%3].Reserve(ctx, caller, access.Amounts{Tokens: size, NanoUSD: size * 1000, Calls: 1})
				cancel()
				if err != nil {
					if _, is := errors.AsType[*access.BudgetError](err); !is && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					continue
				}
				if n := running.Add(1); n > 7 {
					t.Errorf("%d calls at once", n)
				}
				if n := held.Add(size); n > 20_000 {
					t.Errorf("%d tokens are reserved and spent", n)
				}
				used := random.Int64N(size + 1)
				spent.Add(used)
				held.Add(used - size)
				running.Add(-1)
				got.Settle(access.Amounts{Tokens: used, NanoUSD: used * 1000})
			}
		})
	}
	group.Wait()
	for _, m := range meters {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	want := access.Usage{Spent: access.Amounts{Tokens: spent.Load(), NanoUSD: spent.Load() * 1000}}
	if got := usage(t, keys, caller.KeyID); got != want {
		t.Errorf("used: %+v, want %+v", got, want)
	}
}

// chargeFunc is a Charger.
type chargeFunc func(ctx context.Context, c access.Charge) (access.Charged, error)

func (f chargeFunc) Charge(ctx context.Context, c access.Charge) (access.Charged, error) {
	return f(ctx, c)
}

// An answer that is lost on the way reserves nothing twice.
func TestLostAnswersAreRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memorytest.Open(t))
		caller := newKey(t, keys, access.Limits{MaxTokens: 100})
		var lost atomic.Bool
		meter := access.NewMeter(chargeFunc(func(ctx context.Context, c access.Charge) (access.Charged, error) {
			answer, err := keys.Charge(ctx, c)
			if lost.Load() {
				return access.Charged{}, agl.Errorf(agl.CodeUnavailable, "the answer is lost")
			}
			return answer, err
		}))
		lost.Store(true)
		if _, err := meter.Reserve(t.Context(), caller, access.Amounts{Tokens: 100}); agl.ErrorCode(err) != agl.CodeUnavailable {
			t.Errorf("while answers are lost: %v", err)
		}
		lost.Store(false)
		got, err := meter.Reserve(t.Context(), caller, access.Amounts{Tokens: 100})
		if err != nil {
			t.Fatal(err)
		}
		got.Settle(access.Amounts{Tokens: 30})
		got.Settle(access.Amounts{Tokens: 30}) // only once
		if err := meter.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := usage(t, keys, caller.KeyID); got != (access.Usage{Spent: access.Amounts{Tokens: 30}}) {
			t.Errorf("used: %+v", got)
		}
	})
}

// A key whose first charge is refused has nothing to settle: it is charged once, and does not keep the meter from closing.
func TestRefusedKeysAreNotChargedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var charges atomic.Int64
		meter := access.NewMeter(chargeFunc(func(context.Context, access.Charge) (access.Charged, error) {
			charges.Add(1)
			return access.Charged{}, agl.Errorf(agl.CodeExhausted, "too many leases")
		}))
		caller := &access.Caller{KeyID: "key", Limits: access.Limits{MaxTokens: 1}}
		if _, err := meter.Reserve(t.Context(), caller, access.Amounts{Tokens: 1}); agl.ErrorCode(err) != agl.CodeExhausted {
			t.Errorf("got %v, want the refusal", err)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := meter.Close(ctx); err != nil || time.Since(begin) > 0 || charges.Load() != 1 {
			t.Errorf("got %v after %v and %d charges", err, time.Since(begin), charges.Load())
		}
	})
}

// What a server that has died had reserved counts as spent, but for its calls at once; one
// that was only away is not charged twice.
func TestSilentHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memorytest.Open(t))
		caller := newKey(t, keys, access.Limits{MaxTokens: 100, MaxCalls: 1})
		var away atomic.Bool
		meter := access.NewMeter(chargeFunc(func(ctx context.Context, c access.Charge) (access.Charged, error) {
			if away.Load() {
				return access.Charged{}, agl.Errorf(agl.CodeUnavailable, "away")
			}
			return keys.Charge(ctx, c)
		}))
		got, err := meter.Reserve(t.Context(), caller, access.Amounts{Tokens: 60, Calls: 1})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // it goes on telling of the running call
		if got := usage(t, keys, caller.KeyID); got.Reserved != (access.Amounts{Tokens: 60, Calls: 1}) {
			t.Errorf("after ten minutes: %+v", got)
		}
		away.Store(true)
		time.Sleep(3 * time.Minute)
		want := access.Usage{Spent: access.Amounts{Tokens: 60}}
		if got := usage(t, keys, caller.KeyID); got != want {
			t.Errorf("of one that is silent: %+v, want %+v", got, want)
		}
		away.Store(false)
		got.Settle(access.Amounts{Tokens: 5})
		if err := meter.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := usage(t, keys, caller.KeyID); got != want {
			t.Errorf("of one that came back: %+v, want %+v", got, want)
		}
	})
}

func TestChargesAreChecked(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	caller := newKey(t, keys, access.Limits{MaxTokens: 100})
	for name, c := range map[string]access.Charge{
		"holder":         {Sequence: 1},
		"sequence":       {Holder: "h"},
		"spent":          {Holder: "h", Sequence: 1, Spent: access.Amounts{Tokens: -1}},
		"needs[0]":       {Holder: "h", Sequence: 1, Needs: []access.Amounts{{NanoUSD: -5}}},
		"needs: got 100": {Holder: "h", Sequence: 1, Needs: make([]access.Amounts, 1001)},
	} {
		c.KeyID = caller.KeyID
		if _, err := keys.Charge(t.Context(), c); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := keys.Charge(t.Context(), access.Charge{KeyID: "nobody", Holder: "h", Sequence: 1}); !errors.Is(err, agl.ErrNotFound) {
		t.Error(err)
	}
	newer := access.Charge{KeyID: caller.KeyID, Holder: "h", Sequence: 2, Needs: []access.Amounts{{Tokens: 70}}}
	if answer, err := keys.Charge(t.Context(), newer); err != nil || !answer.Granted[0] {
		t.Errorf("%+v, %v", answer, err)
	}
	if _, err := keys.Charge(t.Context(), access.Charge{KeyID: caller.KeyID, Holder: "h", Sequence: 1}); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("one that arrived late: %v", err)
	}
	for _, limits := range []access.Limits{{MaxTokens: -1}, {MaxUSD: -0.1}, {MaxUSD: 1e12}, {MaxCalls: -2}} {
		if _, err := keys.Create(t.Context(), access.NewKey{Name: "n", Scopes: access.Live, Limits: limits}); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "limits.max_") {
			t.Errorf("%+v: %v", limits, err)
		}
	}
}

func TestBudgetErrorsNameEverything(t *testing.T) {
	t.Parallel()
	e := &access.BudgetError{KeyID: "k", Unit: "dollars", Limit: 2_500_000_000, Left: 1_000, Reserved: 20_000_000, Need: 30_000_000}
	if got := e.Error(); got != "the key k has a budget of 2.5 dollars: 0.000001 are left, running requests have reserved 0.02, and this request may need 0.03" {
		t.Error(got)
	}
}

// A need is tight if it is more than a sixteenth of what is left, as the last charge has told, and
// the least of it fits.
func TestTight(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	caller := newKey(t, keys, access.Limits{MaxTokens: 1600, MaxCalls: 10})
	meter := access.NewMeter(keys)
	if meter.Tight(caller, access.Amounts{Tokens: 1600}, access.Amounts{}) {
		t.Error("what is left is not known yet")
	}
	got, err := meter.Reserve(t.Context(), caller, access.Amounts{Tokens: 160, Calls: 1})
	if err != nil {
		t.Fatal(err)
	}
	for tokens, want := range map[int64]bool{1: false, 90: false, 91: true, 1 << 60: true} {
		if is := meter.Tight(caller, access.Amounts{Tokens: tokens, Calls: 1}, access.Amounts{Tokens: 1, Calls: 1}); is != want {
			t.Errorf("%d of 1440: %t", tokens, is)
		}
	}
	if meter.Tight(caller, access.Amounts{Tokens: 2000}, access.Amounts{Tokens: 1441}) {
		t.Error("the least that is needed does not fit: nothing need be found out")
	}
	got.SettleAll()
	if err := meter.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if spent := usage(t, keys, caller.KeyID).Spent; spent != (access.Amounts{Tokens: 160}) {
		t.Errorf("spent: %+v", spent)
	}
}

func TestLimitsInLogs(t *testing.T) {
	t.Parallel()
	for want, limits := range map[string]access.Limits{"limits=none\n": {}, "limits.max_usd=0.5 limits.max_calls=3\n": {MaxUSD: 0.5, MaxCalls: 3}} {
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).Info("updated", "limits", limits)
		if !strings.HasSuffix(out.String(), "msg=updated "+want) {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}
