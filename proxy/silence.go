package proxy

import (
	"math"
	"sync/atomic"
	"time"
)

// silence cancels a call whose backend sends nothing for too long. A sign of life
// costs it no more than a look at the clock: the timer is set anew only when it
// goes off, which for most calls is never.
type silence struct {
	limit  time.Duration
	cancel func()
	timer  *time.Timer
	began  time.Time
	heard  atomic.Int64 // the last sign, since began; unheeded while nobody listens
	over   atomic.Bool
}

const unheeded = -1

// newSilence begins to listen.
func newSilence(limit time.Duration, cancel func()) *silence {
	s := &silence{limit: limit, cancel: cancel, began: time.Now()}
	s.timer = time.AfterFunc(math.MaxInt64, s.check)
	s.timer.Reset(limit)
	return s
}

// alive notes a sign of life, and listens again after ignore.
func (s *silence) alive() { s.heard.Store(int64(time.Since(s.began))) }

// ignore stops listening until the next alive.
func (s *silence) ignore() { s.heard.Store(unheeded) }

// stop ends it.
func (s *silence) stop() {
	s.over.Store(true)
	s.timer.Stop()
}

func (s *silence) check() {
	if s.over.Load() {
		return
	}
	left := s.limit
	if heard := s.heard.Load(); heard != unheeded {
		left -= time.Since(s.began) - time.Duration(heard)
	}
	if left <= 0 {
		s.cancel()
		return
	}
	s.timer.Reset(left)
}
