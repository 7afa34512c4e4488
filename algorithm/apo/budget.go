package apo

import (
	"context"
	"errors"
	"sync"
)

// Budget limits what the calls of GradientModel and EditModel may cost, over all processes of a run. A call is admitted if
// the budget covers what has been spent, plus a reservation for it and for each call in flight. A reservation is the cost of
// the most expensive call so far. The first call runs alone, because no cost is known yet. So the search exceeds the budget
// only if its last calls cost more than any call before, and only by that difference. The calls of agents are not limited.
type Budget struct {
	// Tokens of prompts and replies; zero is no limit.
	Tokens int64
	// Dollars, by GradientPrice and EditPrice; zero is no limit.
	Dollars float64
}

// Price is the price of a model, in dollars per million tokens.
type Price struct {
	Prompt     float64
	Completion float64
}

// Spent is the cost of the model calls of a search.
type Spent struct {
	Usage

	Calls   int     `json:"calls"`
	Dollars float64 `json:"dollars"`
}

func (s *Spent) add(u Usage, p Price) {
	s.Calls++
	s.PromptTokens += u.PromptTokens
	s.CompletionTokens += u.CompletionTokens
	s.Dollars += costOf(u, p).dollars
}

// cost of a call.
type cost struct {
	tokens  int64
	dollars float64
}

func costOf(u Usage, p Price) cost {
	const million = 1e6
	return cost{
		u.PromptTokens + u.CompletionTokens,
		(float64(u.PromptTokens)*p.Prompt + float64(u.CompletionTokens)*p.Completion) / million,
	}
}

// errBudget says that a call was not made because the budget is spent.
var errBudget = errors.New("the budget is spent")

// admission admits calls to a budget. It is safe for concurrent use.
type admission struct {
	budget Budget

	mu       sync.Mutex
	settled  chan struct{} // closed when a call in flight ends
	inFlight int
	answered int
	spent    cost
	largest  cost // of the calls that were answered
}

func newAdmission(b Budget) *admission { return &admission{budget: b, settled: make(chan struct{})} }

// reserve waits until the budget covers another call and reserves its cost. It
// returns errBudget if the budget does not cover the call and none is in flight.
func (a *admission) reserve(ctx context.Context) error {
	for {
		a.mu.Lock()
		if a.covers(a.inFlight + 1) {
			a.inFlight++
			a.mu.Unlock()
			return nil
		}
		settled, inFlight := a.settled, a.inFlight
		a.mu.Unlock()
		if inFlight == 0 {
			return errBudget
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// covers reports whether the budget covers what is spent and a number of calls.
func (a *admission) covers(calls int) bool {
	if a.budget == (Budget{}) || a.answered == 0 && calls == 1 {
		return true
	}
	tokens, dollars := a.spent.tokens+int64(calls)*a.largest.tokens, a.spent.dollars+float64(calls)*a.largest.dollars
	return a.answered > 0 && (a.budget.Tokens == 0 || tokens <= a.budget.Tokens) && (a.budget.Dollars == 0 || dollars <= a.budget.Dollars)
}

// settle replaces the reservation of a call by its actual cost.
func (a *admission) settle(actual cost) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record(actual)
	a.release()
}

// cancel returns the reservation of a call that failed.
func (a *admission) cancel() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release()
}

func (a *admission) release() {
	a.inFlight--
	close(a.settled)
	a.settled = make(chan struct{})
}

// record adds a call that was answered.
func (a *admission) record(c cost) {
	a.answered++
	a.spent = cost{a.spent.tokens + c.tokens, a.spent.dollars + c.dollars}
	a.largest = cost{max(a.largest.tokens, c.tokens), max(a.largest.dollars, c.dollars)}
}
