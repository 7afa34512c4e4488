package execution

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/panics"
)

// part is one running part of a run: a function in this process or a child
// process.
type part struct {
	name string
	done chan struct{} // closed when the part has ended
	err  error         // valid once done is closed
	// steps stop the part, the gentlest first.
	steps []stopStep
	// killable parts are certain to end at their last step. Functions in this process are not.
	killable bool
}

// stopStep is one step of the escalation that stops a part.
type stopStep struct {
	name string
	do   func() error
	wait time.Duration // for the part to end before the next step
	// hurriedWait, if not 0, replaces wait when a failure or an interrupt ended the run.
	hurriedWait time.Duration
}

// start runs fn as a part, and sends the part to ended when fn has returned, or has ended its goroutine.
func start(name string, ended chan<- *part, fn func() error, steps ...stopStep) *part {
	return startOn(func(run func()) { go run() }, name, ended, fn, steps...)
}

// startOn is start with a function that runs its argument on another goroutine, without waiting for it.
func startOn(on func(run func()), name string, ended chan<- *part, fn func() error, steps ...stopStep) *part {
	p := &part{name: name, done: make(chan struct{}), steps: steps}
	on(func() {
		p.err = panics.ErrGoexit // unless fn returns
		defer func() {
			close(p.done)
			ended <- p
		}()
		p.err = fn()
	})
	return p
}

func (p *part) over() bool { return background.Closed(p.done) }

// atOnce is how long a part that cannot be killed has to end once force is closed.
const atOnce = time.Second

// stop takes one step after another until the part ends. Once force is closed, it goes straight to the last step, and
// waits no longer than atOnce for a part that cannot be killed. The error names a part that outlived all steps.
func (p *part) stop(log *slog.Logger, hurry bool, force <-chan struct{}) error {
	var waited time.Duration
	for i, step := range p.steps {
		last := i == len(p.steps)-1
		if p.over() {
			return nil
		}
		if background.Closed(force) && !last {
			continue
		}
		log.Debug("stopping", "part", p.name, "by", step.name)
		if err := step.do(); err != nil {
			log.Warn("stopping failed", "part", p.name, "by", step.name, "error", err)
			if !last {
				continue
			}
		}
		if last && !p.killable && background.Closed(force) {
			break
		}
		wait := step.wait
		if hurry && step.hurriedWait > 0 {
			wait = step.hurriedWait
		}
		giveUp := force
		if last && p.killable {
			giveUp = nil // the part is about to end
		}
		if p.await(wait, giveUp) {
			return nil
		}
		waited += wait
	}
	if p.over() {
		return nil
	}
	if background.Closed(force) {
		if !p.killable && p.await(atOnce, nil) {
			return nil
		}
		return &lateError{p.name, "did not stop at once and was left running"} // after a second signal
	}
	return &lateError{p.name, fmt.Sprintf("did not stop within %s", waited)}
}

// lateError says how a part has not ended.
type lateError struct{ part, how string }

func (e *lateError) Error() string { return e.part + " " + e.how }

// merged makes one error of those of parts that are late in the same way: there can be as many as runners.
func merged(errs []error) []error {
	parts := map[string][]string{}
	var out []error
	for _, err := range errs {
		if late, ok := errors.AsType[*lateError](err); ok {
			parts[late.how] = append(parts[late.how], late.part)
		} else {
			out = append(out, err)
		}
	}
	for _, how := range slices.Sorted(maps.Keys(parts)) {
		const shown = 3
		names := parts[how]
		text := strings.Join(names[:min(shown, len(names))], ", ")
		if more := len(names) - shown; more > 0 {
			text += fmt.Sprintf(" and %d others", more)
		}
		out = append(out, &lateError{text, how})
	}
	return out
}

// await waits until the part ends, d has passed or giveUp is closed, and reports
// whether the part has ended.
func (p *part) await(d time.Duration, giveUp <-chan struct{}) bool {
	select {
	case <-p.done:
		return true
	case <-giveUp:
		return false
	case <-time.After(d):
		return false
	}
}
