package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// lookLimit ends a run if this many of its rollouts, from the first on, have all been
// useless: the rest would be the same.
const lookLimit = 20

// CallLearner is an [agl.Algorithm] that may need recorded model calls.
type CallLearner interface {
	// LearnsFromCalls reports whether a run without model calls learns nothing.
	LearnsFromCalls() bool
}

// uselessCheck looks at the rollouts that an algorithm waits for, and ends the run if none of
// them can be learned from.
type uselessCheck struct {
	agl.Store

	calls  bool // the algorithm needs model calls
	endRun context.CancelCauseFunc

	mu        sync.Mutex
	seen      map[string]bool
	rewarded  bool     // a rollout had a usable reward
	training  int      // training rollouts, up to the first with a usable reward
	learned   bool     // a training rollout had a usable reward
	called    bool     // a rollout had a recorded model call
	ended     bool     // an agent ended well, without a usable reward
	late      bool     // a rollout ended by a time limit
	useless   int      // rollouts without a usable reward, for reasons that will not pass
	silent    int      // rollouts that went well without a model call
	cancelled []string // rollouts, up to the first from which the run can learn
	lastLine  string
	misplaced string // a reward that was written to standard error
	failures  failures
}

func (c *uselessCheck) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	var deadline time.Time
	if p.Timeout.Valid {
		deadline = time.Now().Add(p.Timeout.V)
	}
	// Until one rollout has shown that the run can learn, each is looked at when it ends: there may
	// be many, and all of them in vain.
	for _, id := range p.RolloutIDs {
		if c.learns() || p.Timeout.Valid && !time.Now().Before(deadline) {
			break
		}
		if _, err := c.wait(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}, Timeout: p.Timeout}, deadline); err != nil {
			return nil, err
		}
	}
	return c.wait(ctx, p, deadline)
}

// wait waits for rollouts, until the deadline if they have a timeout, and looks at
// those that have finished.
func (c *uselessCheck) wait(ctx context.Context, p agl.WaitForRolloutsParams, deadline time.Time) ([]agl.Rollout, error) {
	if p.Timeout.Valid {
		p.Timeout.V = max(0, time.Until(deadline))
	}
	finished, err := c.Store.WaitForRollouts(ctx, p)
	if err != nil {
		return finished, err
	}
	if err := c.look(ctx, finished); err != nil {
		c.endRun(err)
		return nil, err
	}
	return finished, nil
}

// learns reports whether a rollout has shown that the run can learn.
func (c *uselessCheck) learns() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canLearn()
}

// canLearn holds when a rollout had a usable reward. Where there are training rollouts one of them had: validation measures, and teaches
// nothing.
func (c *uselessCheck) canLearn() bool {
	return c.rewarded && (c.learned || c.training == 0) && (c.called || !c.calls)
}

// look reads rollouts that have finished. When one has shown that the run can learn,
// only those that failed are read.
func (c *uselessCheck) look(ctx context.Context, finished []agl.Rollout) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range finished {
		if c.seen[r.RolloutID] {
			continue
		}
		if r.Mode == agl.ModeTrain && !c.learned {
			c.training++
		}
		learns, cancelled := c.canLearn(), r.Status == agl.RolloutCancelled
		if learns && (cancelled || r.Status == agl.RolloutSucceeded) {
			continue
		}
		c.seen[r.RolloutID] = true
		if cancelled { // others may have more time
			c.cancelled = append(c.cancelled, r.RolloutID)
			continue
		}
		if err := c.read(ctx, r.RolloutID, learns); err != nil {
			return fmt.Errorf("look at rollout %q: %w", r.RolloutID, err)
		}
	}
	switch {
	case !c.rewarded && c.useless >= lookLimit:
		return c.unrewarded("rollout", c.useless)
	case c.calls && !c.called && c.silent >= lookLimit:
		return c.uncalled()
	}
	return nil
}

// read reads one rollout; with brief, only why it failed.
func (c *uselessCheck) read(ctx context.Context, id string, brief bool) error {
	r, err := c.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})
	if err != nil {
		return err
	}
	read := algorithm.Read
	if brief {
		read = algorithm.ReadFor(adapter.Trajectories{}) // enough for outcomes, and short for long conversations
	}
	e, err := read(ctx, c.Store, r)
	if err != nil {
		return err
	}
	c.called = c.called || !brief && hasCall(e.Spans)
	if e.Outcome.Kind != agl.OutcomeOK {
		message := WithCallError(e.Outcome.Message, e.Spans)
		if e.Outcome.Kind == agl.OutcomeModelError {
			e.Outcome.Message = cmp.Or(callError(e.Spans), e.Outcome.Message) // the agent's client may have told nothing but the status
		}
		c.failures.add(id, reasonOf(e.Outcome, r.Config.TimeoutSeconds), message)
		if e.Outcome.Kind == agl.OutcomeTimeout {
			c.late = true
			c.lastLine = cmp.Or(LastOutput(e.Spans), c.lastLine)
		}
		switch e.Outcome.Kind {
		case agl.OutcomeAgentError:
			if given, err := adapter.FinalReward(e.Spans); err == nil && given.Valid { // before it failed; that counts
				c.reward(r.Mode)
				return nil
			}
		case agl.OutcomeUnresponsive, agl.OutcomeCancelled, agl.OutcomeModelError:
			if !noSuchModel(e.Spans) {
				return nil // a runner or a model server that is away may come back
			}
		default:
		}
		c.useless++
		return nil
	}
	_, mask := e.Score()
	if mask == "" {
		c.reward(r.Mode)
	} else {
		c.useless++
		c.ended = true
		c.failures.add(id, noReward(mask), "")
		c.lastLine = cmp.Or(LastOutput(e.Spans), c.lastLine)
		c.misplaced = cmp.Or(MisplacedReward(e.Spans), c.misplaced)
	}
	c.silent++
	return nil
}

// reward notes that a rollout had a usable reward.
func (c *uselessCheck) reward(mode agl.Mode) {
	c.rewarded = true
	c.learned = c.learned || mode == agl.ModeTrain
}

// hasCall reports whether a model call was recorded.
func hasCall(spans []agl.Span) bool {
	for _, source := range []agl.Adapter[[]adapter.Triplet]{adapter.ProxyTriplets{}, adapter.TracerTriplets{}} {
		// Spans that cannot be read are those of calls.
		if calls, err := source.Adapt(spans); len(calls) > 0 || err != nil && len(spans) > 0 {
			return true
		}
	}
	return false
}

// list returns the failures, the most frequent first.
func (c *uselessCheck) list() []Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures.sorted()
}

// verdict is why a run that has ended cannot have learned; nil if it may have.
func (c *uselessCheck) verdict() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.seen) == 0:
		return nil // no rollout was waited for
	case !c.rewarded:
		return c.unrewarded("rollout", len(c.seen))
	case c.training > 0 && !c.learned:
		return c.unrewarded("training rollout", c.training)
	case c.calls && !c.called:
		return c.uncalled()
	}
	return nil
}

// uselessError says why a run cannot learn.
type uselessError struct{ error }

func (e uselessError) Unwrap() error { return e.error }

// IsUseless reports whether an error of [Trainer.Fit] says that the run cannot have
// learned anything from its rollouts, so that they are not worth keeping.
func IsUseless(err error) bool {
	_, useless := errors.AsType[uselessError](err)
	return useless
}

// RewardForm says how an agent reports a reward.
const RewardForm = `a program prints {"reward": 0.7} as the last line of its output, or writes that to the file $AGL_RESULT_FILE; ` +
	`a handler of Python's agl_go.serve returns 0.7; an agent in Go returns agl.RewardResult(0.7)`

// TimeForm says what an agent must do in its time.
const TimeForm = `agent.timeout is the time that it has, and with agent.keepalive it replies with a line such as {"reward": 0.7}, which it flushes; an attempt_id in it must be the task's`

// TaskForm says where a program finds its task.
const TaskForm = "a program finds its task in $AGL_TASK and the file $AGL_TASK_FILE; only with keepalive: stdio it is a line of its standard input"

// Misplaced says where a reward must not be written.
func Misplaced(line string) string {
	return fmt.Sprintf("the reward was written to standard error, where nothing is read: %.200q", line)
}

// CallForm says how an agent's model calls are recorded.
const CallForm = "the agent must call the model at the address that it is given: $OPENAI_BASE_URL, with $OPENAI_API_KEY and $OPENAI_MODEL; " +
	"an agent in Go has all three from task.LLM()"

// unrewarded says that n rollouts of a kind, which are all, have no usable reward.
func (c *uselessCheck) unrewarded(kind string, n int) error {
	all := maps.Clone(c.failures)
	for _, id := range c.cancelled {
		all.add(id, "cancelled before it had ended", "")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "no %s has a usable reward: %d of %d are without", kind, n, n)
	const most = 3
	failures := all.sorted()
	for _, f := range failures[:min(most, len(failures))] {
		fmt.Fprintf(&b, "\n  %s", f)
	}
	if more := len(failures) - most; more > 0 {
		fmt.Fprintf(&b, "\n  and %d other reasons", more)
	}
	if len(failures) > 0 && strings.Contains(strings.TrimSpace(failures[0].Message), "\n") {
		fmt.Fprintf(&b, "\nthe first of them in full:\n  %s", strings.ReplaceAll(strings.TrimSpace(failures[0].Message), "\n", "\n  "))
	}
	switch {
	case c.misplaced != "":
		fmt.Fprintf(&b, "\n%s", Misplaced(c.misplaced))
	case c.lastLine != "":
		fmt.Fprintf(&b, "\nthe last line that an agent printed: %.200q", c.lastLine)
	}
	switch {
	case c.ended:
		fmt.Fprintf(&b, "\nhow to report a reward: %s", RewardForm)
		if c.misplaced == "" && c.lastLine == "" {
			fmt.Fprintf(&b, "\n%s", TaskForm)
		}
	case c.rewarded:
		b.WriteString("\nvalidation rollouts have rewards, but teach nothing")
	default:
		b.WriteString("\nno agent has ended well: agl train --dry-run runs one task, if the file has agent.command, and shows what the agent does")
		if c.late {
			b.WriteString("; " + TimeForm)
		}
	}
	if len(c.cancelled) > 0 {
		b.WriteString("\nthe time of a group is group_timeout, where that is given")
	}
	return uselessError{agl.Errorf(agl.CodeIllegalState, "%s", b.String())}
}

func (c *uselessCheck) uncalled() error {
	return uselessError{agl.Errorf(agl.CodeIllegalState,
		"no model call was recorded in %d rollouts, and the algorithm learns from the calls: %s", len(c.seen)-len(c.cancelled), CallForm)}
}
