package algorithm

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/tinker"
)

// interruptTimeout limits the rest of an optimizer step, and the checkpoint, of a run that is interrupted.
const interruptTimeout = 10 * time.Second

// Outlast returns a context that ends ten seconds after another, for what changes the weights: an interrupted run then knows which ones it
// has. The caller calls done.
func Outlast(ctx context.Context) (longer context.Context, done func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(longer, interruptTimeout) // done ends it early
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// Keep makes a checkpoint of a run that is interrupted: ctx has ended. A failure is logged. Weights that have become useless get none.
func Keep(ctx context.Context, logger *slog.Logger, checkpoint func(ctx context.Context) error) {
	if useless(context.Cause(ctx)) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptTimeout)
	defer cancel()
	if err := checkpoint(ctx); err != nil {
		logger.WarnContext(ctx, "no checkpoint of the interrupted run; it resumes from the one before", "error", err)
	}
}

// useless reports whether the weights are why a context has ended. What ends a run is behind an error that does not unwrap.
func useless(cause error) bool {
	if stopped, ok := errors.AsType[interface {
		error
		Reason() error
	}](cause); ok {
		cause = stopped.Reason()
	}
	return errors.Is(cause, tinker.ErrUseless)
}

// Keep makes a checkpoint of the steps done when a run is interrupted, unless there is one. own are the algorithm's own members of the
// checkpoint, as they were after the last step; unreported says that the metrics have no line of that step yet, which the run that resumes
// writes. It makes none while earlier weights are validated, which could not be done again.
func (s *Session) Keep(ctx context.Context, own any, unreported bool) {
	Keep(ctx, s.p.Logger, func(ctx context.Context) error {
		if !s.Model.KeepsCheckpoints() || s.Model.Saved == s.Step || s.beside != nil && !s.validates(s.Step) {
			return nil
		}
		s.p.State = func() (any, error) { return own, nil }
		s.unreported = unreported
		return s.Commit(ctx, true, nil)
	})
}
