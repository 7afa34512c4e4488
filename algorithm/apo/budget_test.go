package apo

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestAdmission follows reservations through calls that succeed, fail, and wait.
func TestAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(Budget{Tokens: 100})
		reserve := func() {
			t.Helper()
			if err := a.reserve(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		reserve() // the first call runs alone
		admitted := make(chan struct{})
		go func() {
			defer close(admitted)
			if err := a.reserve(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-admitted:
			t.Fatal("a second call was admitted while the cost of the first was unknown")
		default:
		}
		a.settle(cost{tokens: 30})
		<-admitted
		reserve() // 30 spent, 60 reserved
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.reserve(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that waits when its context ends: %v", err)
		}
		a.cancel() // a call that failed returns its reservation
		reserve()
		a.settle(cost{tokens: 40})
		a.settle(cost{tokens: 10})
		// 80 tokens are spent, and the largest call was 40.
		if err := a.reserve(t.Context()); !errors.Is(err, errBudget) {
			t.Errorf("a call that the budget does not cover: %v", err)
		}
	})
}
