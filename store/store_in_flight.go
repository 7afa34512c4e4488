package store

import (
	"math"
	"sync/atomic"

	"github.com/agl-go/agl/internal/background"
)

// inFlight counts the calls in flight, so that Close can refuse new ones and wait
// for the others.
type inFlight struct {
	n       atomic.Int64  // below 0 once closed
	drained chan struct{} // capacity 1
}

// closedBias makes the count negative, however many calls are in flight.
const closedBias = math.MinInt64 / 2

func (f *inFlight) init() { f.drained = make(chan struct{}, 1) }

// enter begins a call. Once closed it begins none and reports false.
func (f *inFlight) enter() bool {
	if f.n.Add(1) > 0 {
		return true
	}
	f.leave()
	return false
}

func (f *inFlight) leave() {
	if f.n.Add(-1) == closedBias {
		background.Wake(f.drained)
	}
}

// close refuses calls from now on; it reports false if they were refused before.
func (f *inFlight) close() bool {
	for {
		n := f.n.Load()
		if n < 0 {
			return false
		}
		if f.n.CompareAndSwap(n, n+closedBias) {
			if n == 0 {
				f.drained <- struct{}{}
			}
			return true
		}
	}
}
