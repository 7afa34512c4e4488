package execution

import (
	"fmt"
	"log/slog"
	"time"
)

// side is one running part of a run: a function in this process or another
// process. Whoever started it closes done when it has ended and err is set.
type side struct {
	name string
	done chan struct{}
	err  error // valid once done is closed
	// rungs stop the side, the gentlest first.
	rungs []rung
	// killable sides surely end at their last rung; the others, functions in
	// this process, may not.
	killable bool
}

// rung is one step of the ladder that stops a side.
type rung struct {
	name string
	act  func() error
	wait time.Duration // for the side to end before the next rung
	// hurried is the wait when a failure or an interrupt ended the run; 0 means
	// that it is the same.
	hurried time.Duration
}

func (r rung) patience(hurry bool) time.Duration {
	if hurry && r.hurried > 0 {
		return r.hurried
	}
	return r.wait
}

// startFunc runs fn as a side. ended hears when it is over.
func startFunc(name string, ended chan<- *side, fn func() error, rungs ...rung) *side {
	s := &side{name: name, done: make(chan struct{}), rungs: rungs}
	go func() {
		s.err = fn()
		close(s.done)
		ended <- s
	}()
	return s
}

func (s *side) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// stop climbs the ladder until the side ends. Once force is closed it goes
// straight to the last rung, and does not wait for what cannot be killed. The
// error names a side that outlived the ladder.
func (s *side) stop(log *slog.Logger, hurry bool, force <-chan struct{}) error {
	var waited time.Duration
	for i, r := range s.rungs {
		last := i == len(s.rungs)-1
		if s.over() {
			return nil
		}
		if closed(force) && !last {
			continue
		}
		log.Debug("stopping", "side", s.name, "by", r.name)
		if err := r.act(); err != nil {
			log.Warn("stopping failed", "side", s.name, "by", r.name, "error", err)
			if !last {
				continue
			}
		}
		if last && !s.killable && closed(force) {
			break
		}
		patience := r.patience(hurry)
		if s.await(patience, force, last && s.killable) {
			return nil
		}
		waited += patience
	}
	if s.over() {
		return nil
	}
	if closed(force) {
		return fmt.Errorf("%s was left behind, as it did not stop at once", s.name)
	}
	return fmt.Errorf("%s did not stop within %s", s.name, waited)
}

// await waits for the side to end: for d, or until force unless stubborn.
func (s *side) await(d time.Duration, force <-chan struct{}, stubborn bool) bool {
	if stubborn {
		force = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.done:
		return true
	case <-force:
		return false
	case <-timer.C:
		return false
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
