package upstream

import (
	"math"
	"sync/atomic"
	"time"
)

// idleTimeout ends a call whose backend sends nothing for too long. alive only reads the
// clock; the timer is reset only when it fires, which for most calls is never.
type idleTimeout struct {
	limit  time.Duration
	expire func()
	timer  *time.Timer
	began  time.Time
	last   atomic.Int64 // nanoseconds from began to the last call of alive; or suspended
	over   atomic.Bool
}

const suspended = -1

func newIdleTimeout(limit time.Duration, expire func()) *idleTimeout {
	t := &idleTimeout{limit: limit, expire: expire, began: time.Now()}
	t.timer = time.AfterFunc(math.MaxInt64, t.check)
	t.timer.Reset(limit)
	return t
}

// alive restarts the timeout. It also ends suspend.
func (t *idleTimeout) alive() { t.last.Store(int64(time.Since(t.began))) }

// suspend stops the clock until the next alive.
func (t *idleTimeout) suspend() { t.last.Store(suspended) }

func (t *idleTimeout) stop() {
	t.over.Store(true)
	t.timer.Stop()
}

func (t *idleTimeout) check() {
	if t.over.Load() {
		return
	}
	left := t.limit
	if last := t.last.Load(); last != suspended {
		left -= time.Since(t.began) - time.Duration(last)
	}
	if left <= 0 {
		t.expire()
		return
	}
	t.timer.Reset(left)
}
