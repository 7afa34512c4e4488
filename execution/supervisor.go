package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/agl-go/agl"
)

// supervisor watches the parts of a run and ends them together.
type supervisor struct {
	log       *slog.Logger
	algorithm *part // nil: the run ends with its runners
	runners   []*part
	required  []*part    // parts whose end is a failure, such as the store server
	ended     chan *part // with room for all parts
	// failure is what ended the run, or the interrupt that did; nil while it lasts, and after a success.
	failure error
}

// StopError is the [context.Cause] of a part's context when something else ended the run: a failure of another part, or an
// interrupt. It matches [context.Canceled], as the part itself has not failed.
type StopError struct{ Cause error }

func (e *StopError) Error() string { return "the run ended: " + e.Cause.Error() }

// Reason is Cause, for those who must not know this package.
func (e *StopError) Reason() error { return e.Cause }

// Is makes the error match context.Canceled. It does not match its cause, which is no error of the part's own calls.
func (e *StopError) Is(target error) bool { return target == context.Canceled }

// stopCause returns the cause for the contexts of parts that are stopped.
func (s *supervisor) stopCause() error {
	if s.failure == nil {
		return nil
	}
	return &StopError{s.failure}
}

// supervise returns when every part except the required ones has ended or was given up.
func (s *supervisor) supervise(ctx context.Context) error {
	failure := s.watch(ctx)
	s.failure = failure
	switch {
	case failure == nil:
		s.log.Info("training has ended, stopping the runners")
	case ctx.Err() != nil:
		s.log.Info("interrupted, stopping", "cause", failure)
	default:
		// The failure is returned, too; here it explains why the others end.
		s.log.Info("a part of the run failed, stopping the others", "error", failure)
	}
	late := merged(s.stop(failure != nil, Forced(ctx)))
	if failure == nil && ctx.Err() != nil {
		failure = context.Cause(ctx)
	}
	if failure == nil {
		return errors.Join(late...)
	}
	for _, err := range late {
		if sameReason(err, failure) {
			continue // one runner after another fails for the reason that is returned
		}
		s.log.Warn("while stopping", "error", err)
	}
	return failure
}

// sameReason reports whether two runners have failed with the same words, but for the numbers of the runner and its worker:
// those are in the outer two errors.
func sameReason(a, b error) bool {
	if !strings.HasPrefix(a.Error(), "runner ") || !strings.HasPrefix(b.Error(), "runner ") {
		return false
	}
	for range 2 {
		a, b = errors.Unwrap(single(a)), errors.Unwrap(single(b))
		if a == nil || b == nil {
			return false
		}
	}
	return a.Error() == b.Error()
}

// single returns the one error of a join of one, such as that of a runner with one worker.
func single(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) == 1 {
		return joined.Unwrap()[0]
	}
	return err
}

// watch returns nil when the run is over, or the first failure or interrupt.
func (s *supervisor) watch(ctx context.Context) error {
	live := len(s.runners)
	for s.algorithm != nil || live > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case p := <-s.ended:
			// A part that ends because ctx did has not failed.
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if p.err != nil {
				return fmt.Errorf("%s: %w", p.name, p.err)
			}
			if p == s.algorithm {
				return nil
			}
			if slices.Contains(s.required, p) {
				return fmt.Errorf("%s ended before the run did", p.name)
			}
			if live--; live == 0 && s.algorithm != nil {
				// The algorithm may still be processing what the runners did, or wait for ever for what they did not.
				s.log.Warn("all runners have ended before the algorithm, as when another run has closed the queue of this store")
			}
		}
	}
	return nil
}

// stop ends all parts at once, each by its own steps, and returns what went wrong.
func (s *supervisor) stop(hurry bool, force <-chan struct{}) []error {
	parts := s.runners
	if s.algorithm != nil {
		parts = append([]*part{s.algorithm}, parts...)
	}
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		live := !p.over()
		wg.Go(func() {
			errs[i] = p.stop(s.log, hurry, force)
			if live && errs[i] == nil && p.err != nil && !agl.IsContextError(p.err) {
				errs[i] = fmt.Errorf("%s: %w", p.name, p.err)
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}
