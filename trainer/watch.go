package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/runner/process"
)

// lookLimit ends a run if this many of its rollouts, from the first on, have all been
// useless: the rest would be the same.
const lookLimit = 20

// CallLearner is an [agl.Algorithm] that may need recorded model calls.
type CallLearner interface {
	// LearnsFromCalls reports whether a run without model calls learns nothing.
	LearnsFromCalls() bool
}

// Failure is a group of rollouts that failed for the same reason.
type Failure struct {
	// Reason is one line, such as "ValueError: boom".
	Reason string
	// Message is that of the first rollout in full, such as its traceback.
	Message string
	// Count is the number of rollouts, First the id of the first one.
	Count int
	First string
}

func (f Failure) String() string {
	return fmt.Sprintf("%s ×%d, first in %s", f.Reason, f.Count, f.First)
}

// watch looks at the rollouts that an algorithm waits for, and ends the run if none of
// them can be learned from.
type watch struct {
	agl.Store

	calls bool // the algorithm needs model calls
	trip  context.CancelCauseFunc

	mu        sync.Mutex
	seen      map[string]bool
	rewarded  bool // a rollout had a usable reward
	called    bool // a rollout had a recorded model call
	ended     bool // an agent ended well, without a usable reward
	late      bool // a rollout ended by a time limit
	useless   int  // rollouts without a usable reward, for reasons that will not pass
	silent    int  // rollouts that went well without a model call
	lastLine  string
	misplaced string // a reward that was written to standard error
	failures  map[string]*Failure
}

func newWatch(s agl.Store, calls bool, trip context.CancelCauseFunc) *watch {
	return &watch{Store: s, calls: calls, trip: trip, seen: map[string]bool{}, failures: map[string]*Failure{}}
}

// WaitForRollouts implements [agl.Store].
func (w *watch) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	var deadline time.Time
	if p.Timeout.Valid {
		deadline = time.Now().Add(p.Timeout.V)
	}
	// Until one rollout has shown that the run can learn, each is looked at when it ends: there may
	// be many, and all of them in vain.
	for _, id := range p.RolloutIDs {
		if w.learns() || p.Timeout.Valid && !time.Now().Before(deadline) {
			break
		}
		if _, err := w.wait(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}, Timeout: p.Timeout}, deadline); err != nil {
			return nil, err
		}
	}
	return w.wait(ctx, p, deadline)
}

// wait waits for rollouts, until the deadline if they have a timeout, and looks at
// those that have finished.
func (w *watch) wait(ctx context.Context, p agl.WaitForRolloutsParams, deadline time.Time) ([]agl.Rollout, error) {
	if p.Timeout.Valid {
		p.Timeout.V = max(0, time.Until(deadline))
	}
	finished, err := w.Store.WaitForRollouts(ctx, p)
	if err != nil {
		return finished, err
	}
	if err := w.look(ctx, finished); err != nil {
		w.trip(err)
		return nil, err
	}
	return finished, nil
}

// learns reports whether a rollout has shown that the run can learn.
func (w *watch) learns() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.canLearn()
}

func (w *watch) canLearn() bool { return w.rewarded && (w.called || !w.calls) }

// look reads rollouts that have finished. When one has shown that the run can learn,
// only those that failed are read.
func (w *watch) look(ctx context.Context, finished []agl.Rollout) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range finished {
		learns := w.canLearn()
		if w.seen[r.RolloutID] || r.Status == agl.RolloutCancelled || learns && r.Status == agl.RolloutSucceeded {
			continue
		}
		w.seen[r.RolloutID] = true
		if err := w.read(ctx, r.RolloutID, learns); err != nil {
			return fmt.Errorf("look at rollout %s: %w", r.RolloutID, err)
		}
	}
	switch {
	case !w.rewarded && w.useless >= lookLimit:
		return w.unrewarded(w.useless)
	case w.calls && !w.called && w.silent >= lookLimit:
		return w.uncalled()
	}
	return nil
}

// read reads one rollout; with brief, only its outcome.
func (w *watch) read(ctx context.Context, id string, brief bool) error {
	r, err := w.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})
	if err != nil {
		return err
	}
	e := algorithm.NewEpisode(r)
	if !brief {
		if e, err = algorithm.Read(ctx, w.Store, r); err != nil {
			return err
		}
		w.called = w.called || hasCall(e.Spans)
	}
	if e.Outcome.Kind != agl.OutcomeOK {
		w.fail(id, reasonOf(e.Outcome, r.Config.TimeoutSeconds), e.Outcome.Message)
		if e.Outcome.Kind == agl.OutcomeTimeout {
			w.late = true
			w.lastLine = cmp.Or(LastOutput(e.Spans), w.lastLine)
		}
		switch e.Outcome.Kind {
		case agl.OutcomeUnresponsive, agl.OutcomeCancelled, agl.OutcomeModelError:
			// A runner or a model server that is away may come back.
		default:
			w.useless++
		}
		return nil
	}
	_, mask := e.Score()
	if mask == "" {
		w.rewarded = true
	} else {
		w.useless++
		w.ended = true
		w.fail(id, noReward(mask), "")
		w.lastLine = cmp.Or(LastOutput(e.Spans), w.lastLine)
		w.misplaced = cmp.Or(MisplacedReward(e.Spans), w.misplaced)
	}
	w.silent++
	return nil
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

func noReward(mask algorithm.Mask) string {
	if mask == algorithm.MaskMissingReward {
		return "the agent ended well without a reward"
	}
	return string(mask)
}

// reasonOf is the line of a failure that says what happened.
// Attempts whose time is up are alike, whether the runner or the store has ended them.
func reasonOf(o agl.Outcome, timeout agl.Null[float64]) string {
	if o.Kind == agl.OutcomeTimeout && timeout.Valid {
		return fmt.Sprintf("timeout: the agent had not ended after %gs", timeout.V)
	}
	reason := reasonLine(o.Message)
	if o.Kind == agl.OutcomeAgentError && reason != "" {
		return reason
	}
	return strings.TrimSuffix(string(o.Kind)+": "+reason, ": ")
}

// exception matches the line in which Python, Node, Java and Go name what was thrown. Node and Java go on behind it, and so
// do exceptions whose message has several lines.
var exception = regexp.MustCompile(`^(?:the agent ended with [^:]*: )?((?:[\w.$]*(?:Error|Exception)\b[^:]*:|panic: |Exception in thread ).*)`)

// reasonLine is the last line that names an exception, or, without one, the last line.
func reasonLine(text string) string {
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		if found := exception.FindStringSubmatch(strings.TrimRight(line, " \r")); found != nil {
			return found[1]
		}
	}
	return lastLine(text)
}

// lastLine is the last line of a text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// LastOutput is the last line that the agent of an attempt wrote to standard output,
// as far as the spans hold it.
func LastOutput(spans []agl.Span) string { return lastOf(spans, "stdout") }

// MisplacedReward is the last line that the agent of an attempt wrote to standard error, if that is a reward, which is only
// read from standard output.
func MisplacedReward(spans []agl.Span) string {
	if line := lastOf(spans, "stderr"); process.IsReward(line) {
		return line
	}
	return ""
}

// lastOf is the last line of an output stream.
func lastOf(spans []agl.Span, name string) string {
	for i := range slices.Backward(spans) {
		if stream, _ := spans[i].Attributes.GetString(process.AttrStream); stream == name {
			body, _ := spans[i].Attributes.GetString(agl.AttrMessageBody)
			return lastLine(body)
		}
	}
	return ""
}

// maxFailures bounds the groups of failures: an agent may put anything into messages.
const maxFailures = 1000

func (w *watch) fail(id, reason, message string) {
	const longest = 300
	if runes := []rune(reason); len(runes) > longest {
		reason = string(runes[:longest-1]) + "…"
	}
	if f := w.failures[reason]; f != nil {
		f.Count++
	} else if len(w.failures) < maxFailures {
		w.failures[reason] = &Failure{Reason: reason, Message: message, Count: 1, First: id}
	}
}

// list returns the failures, the most frequent first.
func (w *watch) list() []Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sorted()
}

func (w *watch) sorted() []Failure {
	list := make([]Failure, 0, len(w.failures))
	for _, f := range w.failures {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.First, b.First))
	})
	return list
}

// verdict is why a run that has ended cannot have learned; nil if it may have.
func (w *watch) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.seen) == 0:
		return nil // no rollout was waited for
	case !w.rewarded:
		return w.unrewarded(len(w.seen))
	case w.calls && !w.called:
		return w.uncalled()
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
	`an agent in Go returns agl.RewardResult(0.7)`

// Misplaced says where a reward must not be written.
func Misplaced(line string) string {
	return fmt.Sprintf("the reward was written to standard error, where nothing is read: %.200q", line)
}

// CallForm says how an agent's model calls are recorded.
const CallForm = "the agent must call the model at the address that it is given: $OPENAI_BASE_URL, with $OPENAI_API_KEY and $OPENAI_MODEL"

func (w *watch) unrewarded(n int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "no rollout has a usable reward: %d of %d are without", n, n)
	const most = 3
	failures := w.sorted()
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
	case w.misplaced != "":
		fmt.Fprintf(&b, "\n%s", Misplaced(w.misplaced))
	case w.lastLine != "":
		fmt.Fprintf(&b, "\nthe last line that an agent printed: %.200q", w.lastLine)
	}
	switch {
	case w.ended:
		fmt.Fprintf(&b, "\nhow to report a reward: %s", RewardForm)
	default:
		b.WriteString("\nno agent has ended well: agl train --dry-run runs one task and shows what the agent does")
		if w.late {
			b.WriteString("; agent.timeout is the time that it has")
		}
		if w.late && w.lastLine != "" {
			b.WriteString(`, and with agent.keepalive it replies with a line such as {"reward": 0.7}`)
		}
	}
	return uselessError{agl.Errorf(agl.CodeIllegalState, "%s", b.String())}
}

func (w *watch) uncalled() error {
	return uselessError{agl.Errorf(agl.CodeIllegalState,
		"no model call was recorded in %d rollouts, and the algorithm learns from the calls: %s", len(w.seen), CallForm)}
}
