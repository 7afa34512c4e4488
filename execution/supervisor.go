package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/agl-go/agl"
)

// supervisor watches the sides of a run and ends them together.
type supervisor struct {
	log       *slog.Logger
	algorithm *side // nil: the run ends with its runners
	runners   []*side
	guards    []*side // whose end is a failure: the store server, the lifeline
	ended     <-chan *side
}

// run returns when every side but the guards has ended or was given up.
func (s *supervisor) run(ctx context.Context) error {
	failure := s.watch(ctx)
	switch {
	case failure == nil:
		s.log.Info("training has ended, stopping the runners")
	case ctx.Err() != nil:
		s.log.Info("interrupted, stopping", "cause", failure)
	default:
		s.log.Error("a side failed, stopping the other", "error", failure)
	}
	late := s.stop(failure != nil, forced(ctx))
	if failure == nil && ctx.Err() != nil {
		failure = context.Cause(ctx)
	}
	if failure == nil {
		return errors.Join(late...)
	}
	for _, err := range late {
		s.log.Warn("while stopping", "error", err)
	}
	return failure
}

// watch returns nil when the run is over, or the first failure or interrupt.
func (s *supervisor) watch(ctx context.Context) error {
	live := len(s.runners)
	for s.algorithm != nil || live > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case ended := <-s.ended:
			// What ends because ctx did is no failure of its own.
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if ended.err != nil {
				return fmt.Errorf("%s: %w", ended.name, ended.err)
			}
			if ended == s.algorithm {
				return nil
			}
			if slices.Contains(s.guards, ended) {
				return fmt.Errorf("%s ended before the run did", ended.name)
			}
			if live--; live == 0 && s.algorithm != nil {
				// The algorithm may still be processing what the runners did.
				s.log.Info("all runners have ended, waiting for the algorithm")
			}
		}
	}
	return nil
}

// stop ends all sides at once, each by its own ladder, and returns what went
// wrong on the way.
func (s *supervisor) stop(hurry bool, force <-chan struct{}) []error {
	sides := s.runners
	if s.algorithm != nil {
		sides = append([]*side{s.algorithm}, sides...)
	}
	errs := make([]error, len(sides))
	var wg sync.WaitGroup
	for i, one := range sides {
		live := !one.over()
		wg.Go(func() {
			errs[i] = one.stop(s.log, hurry, force)
			if live && errs[i] == nil && one.err != nil && !agl.IsContextError(one.err) {
				errs[i] = fmt.Errorf("%s: %w", one.name, one.err)
			}
		})
	}
	wg.Wait()
	var late []error
	for _, err := range errs {
		if err != nil {
			late = append(late, err)
		}
	}
	return late
}
