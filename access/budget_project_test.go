package access_test

import (
	"context"
	"errors"
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

// limited returns the keys of a server of a project with limits.
func limited(store agl.DocumentStore, limits access.Limits) *access.Keys {
	return access.NewProjectKeys(store, access.NewProjectLimits(func(context.Context) (access.Limits, error) { return limits, nil }))
}

// Callers with a key that has limits, with one that has none, and without a key reserve through
// three servers, 1,200 at once: the project's limit lets in as many as fit, and not one more,
// of which those of the key stay within its own limit, too.
func TestProjectBudgetHoldsOverServers(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	const size, fits, keyFits = 10, 500, 100
	project := access.Limits{MaxTokens: fits*size + size - 1}
	keys := limited(store, project)
	callers := []*access.Caller{newKey(t, keys, access.Limits{MaxTokens: keyFits * size}), newKey(t, keys, access.Limits{}), {Project: project}}
	var meters []*access.Meter
	for range 3 {
		meters = append(meters, access.NewMeter(limited(store, project)))
	}
	var admitted [3]atomic.Int64
	var held sync.Map
	var group sync.WaitGroup
	for i := range 1200 {
		group.Go(func() {
			who := i % len(callers)
			got, err := meters[i/len(callers)%3].Reserve(t.Context(), callers[who], access.Amounts{Tokens: size})
			budget, is := errors.AsType[*access.BudgetError](err)
			switch {
			case err == nil:
				admitted[who].Add(1)
				held.Store(got, nil)
			case !is || budget.Unit != "tokens" || budget.Left >= size || budget.Need != size:
				t.Errorf("refused: %v", err)
			case budget.KeyID == access.ProjectAccount && (budget.Limit != project.MaxTokens || !strings.HasPrefix(err.Error(), "the project has a budget of 5009 tokens")):
				t.Errorf("refused: %v", err)
			case budget.KeyID != access.ProjectAccount && (who != 0 || budget.Limit != keyFits*size):
				t.Errorf("caller %d: refused: %v", who, err)
			}
		})
	}
	group.Wait()
	in := admitted[0].Load() + admitted[1].Load() + admitted[2].Load()
	if in != fits || admitted[0].Load() > keyFits {
		t.Errorf("%d were let in, %d fit; of the key %d, %d fit", in, fits, admitted[0].Load(), keyFits)
	}
	held.Range(func(got, _ any) bool {
		got.(*access.Reservation).Settle(access.Amounts{Tokens: 3}) //nolint:forcetypeassert // nothing else is stored
		return true
	})
	for _, m := range meters {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	budget, err := keys.ProjectBudget(t.Context())
	for err == nil && budget.Reserved != (access.Amounts{}) {
		runtime.Gosched()
		budget, err = keys.ProjectBudget(t.Context())
	}
	if want := (access.Budget{Limits: project, Usage: access.Usage{Spent: access.Amounts{Tokens: 3 * in}}}); err != nil || budget != want {
		t.Errorf("got %+v, %v, want %+v", budget, err, want)
	}
	if got, want := usage(t, keys, callers[0].KeyID), (access.Usage{Spent: access.Amounts{Tokens: 3 * admitted[0].Load()}}); got != want {
		t.Errorf("the key has used %+v, want %+v", got, want)
	}
}

// Limits that are changed hold within a second, also for what was spent before, and a project
// whose limits are removed has none.
func TestProjectLimitsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var limits atomic.Pointer[access.Limits]
		limits.Store(&access.Limits{MaxTokens: 100})
		store := memorytest.Open(t)
		keys := access.NewProjectKeys(store, access.NewProjectLimits(func(context.Context) (access.Limits, error) { return *limits.Load(), nil }))
		key := newKey(t, keys, access.Limits{MaxTokens: 1000})
		meter := access.NewMeter(keys)
		use := func(tokens int64) error {
			now, err := keys.ProjectLimits(t.Context())
			if err != nil {
				return err
			}
			caller := *key
			caller.Project = now
			got, err := meter.Reserve(t.Context(), &caller, access.Amounts{Tokens: tokens})
			got.Settle(access.Amounts{Tokens: tokens})
			return err
		}
		for i, step := range []struct {
			limit, tokens int64
			fits          bool
		}{{100, 80, true}, {100, 30, false}, {120, 30, true}, {120, 30, false}, {0, 500, true}, {100, 1, false}, {0, 300, true}, {0, 200, false}} {
			limits.Store(&access.Limits{MaxTokens: step.limit})
			time.Sleep(time.Second)
			if err := use(step.tokens); (err == nil) != step.fits {
				t.Errorf("step %d: %v", i, err)
			}
		}
		if err := meter.Close(t.Context()); err != nil {
			t.Error(err)
		}
		// Once the limits are gone, nothing more is counted.
		if b, err := keys.ProjectBudget(t.Context()); err != nil || b != (access.Budget{}) {
			t.Errorf("got %+v, %v", b, err)
		}
		time.Sleep(time.Hour)
	})
}
