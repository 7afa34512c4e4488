package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/agl-go/agl"
)

// lifecycleTimeout limits the search for an order of the operations on one rollout.
const lifecycleTimeout = 2 * time.Minute

// lifecycle: the operations on a rollout are linearizable: some order of them follows the rules of its status. An operation
// without an answer may have happened at any time after its call, or never. A deadline may pass before any operation that
// ends late enough.
func (j *judge) lifecycle() {
	model := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{life{}} },
		Step:  func(state, input, _ any) []any { return state.(life).step(input.(step)) },
		Equal: func(a, b any) bool { return a == b },
	}
	checker := model.ToModel()
	for _, s := range j.stories {
		steps := s.steps()
		ops := make([]porcupine.Operation, len(steps))
		for i, in := range steps {
			ops[i] = porcupine.Operation{ClientId: i, Input: in, Call: in.start, Return: in.end}
		}
		if result := porcupine.CheckOperationsTimeout(checker, ops, lifecycleTimeout); result != porcupine.Ok {
			shown := make([]*Op, len(steps))
			for i, in := range steps {
				shown[i] = in.op
			}
			j.violatef("lifecycle", slices.Compact(shown), "rollout %s: its operations are not linearizable (%s)", s.id, result)
		}
	}
}

// step is an operation on the rollout.
type step struct {
	kind       stepKind
	start, end int64
	optional   bool // it may not have happened
	noop       bool // it may have changed nothing, because its spans existed
	task       *Task
	attempt    string
	number     int
	begun      int64 // the attempt's start
	status     string
	attempted  string // the attempt's status, where it was seen
	op         *Op
}

type stepKind int

const (
	stepEnqueue stepKind = iota
	stepClaim
	stepSpans
	stepUpdate
	stepCancel
	stepRead
)

// steps returns the operations on the rollout, in the order of their calls.
func (s *story) steps() []step {
	var all []step
	add := func(o *Op, in step) {
		in.op, in.start, in.end, in.optional = o, o.Start, o.End, o.Kind == Unknown
		all = append(all, in)
	}
	if s.task.op != nil {
		add(s.task.op, step{kind: stepEnqueue, task: &s.task.task})
	}
	answered := map[string]bool{}
	for _, c := range s.claims {
		answered[c.ID] = true
		add(c.op, step{kind: stepClaim, attempt: c.ID, number: c.Number, begun: c.Start})
	}
	for _, a := range s.end.Attempts {
		if !answered[a.ID] {
			// The rule claimed checks that there was such a dequeue.
			all = append(all, step{kind: stepClaim, attempt: a.ID, number: a.Number, begun: a.Start, start: a.Start - slack, end: Forever, op: s.final})
		}
	}
	for _, o := range s.ops[AddSpans] {
		if n := s.numbers[o.Args.Attempt]; n > 0 {
			add(o, step{kind: stepSpans, attempt: o.Args.Attempt, number: n, noop: len(o.Reply.Spans) == 0})
		}
	}
	for _, o := range s.ops[UpdateAttempt] {
		if n := s.numbers[o.Args.Attempt]; n > 0 {
			add(o, step{kind: stepUpdate, attempt: o.Args.Attempt, number: n, status: o.Args.Status})
		}
	}
	for _, o := range s.ops[Cancel] {
		add(o, step{kind: stepCancel})
	}
	for _, seen := range s.reads {
		in := step{kind: stepRead, status: seen.Status}
		if a := seen.Attempt; a != nil {
			if s.numbers[a.ID] == 0 {
				continue // of a claim that was given back
			}
			in.attempt, in.number, in.attempted = a.ID, a.Number, a.Status
		}
		add(seen.op, in)
	}
	if s.final != nil {
		in := step{kind: stepRead, status: s.state.Status}
		for _, a := range s.end.Attempts {
			if a.Number > in.number {
				in.attempt, in.number, in.attempted = a.ID, a.Number, a.Status
			}
		}
		add(s.final, in)
	}
	slices.SortStableFunc(all, func(a, b step) int { return cmp.Compare(a.start, b.start) })
	return all
}

// life is the state of a rollout. Its transitions are those of the store's tables, written independently.
type life struct {
	task    *Task // nil before it is enqueued
	status  agl.RolloutStatus
	attempt string // the latest
	number  int
	doing   agl.AttemptStatus // of the latest attempt
	begun   int64             // when it began
	alive   int64             // the earliest possible time of its last sign of life
}

// step returns the states after the operation.
func (s life) step(in step) []any {
	var next []any
	for _, before := range s.expired(in.end) {
		after, possible := before.apply(in)
		if possible {
			next = append(next, after)
		}
		if in.optional || possible && in.noop {
			next = append(next, before)
		}
	}
	return next
}

// expired returns the state, and the states after each deadline that can have passed before end.
func (s life) expired(end int64) []life {
	states := []life{s}
	if s.task == nil || !s.doing.Live() || s.status != agl.RolloutPreparing && s.status != agl.RolloutRunning {
		return states
	}
	if limit := s.task.Unresponsive; limit > 0 && end > s.alive+limit-slack {
		states = append(states, s.ended(agl.AttemptUnresponsive))
	}
	if limit := s.task.Timeout; limit > 0 && end > s.begun+limit-slack {
		states = append(states, s.ended(agl.AttemptTimeout))
	}
	return states
}

// ended returns the state after the latest attempt has ended with a status.
func (s life) ended(status agl.AttemptStatus) life {
	s.doing = status
	derived := agl.RolloutStatus(status)
	switch status {
	case agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive:
		derived = agl.RolloutFailed
		if s.number < max(s.task.MaxAttempts, 1) && slices.Contains(s.task.Retry, string(status)) {
			derived = agl.RolloutRequeuing
		}
	}
	switch {
	case s.status == agl.RolloutCancelled:
		return s
	case s.status.Finished() && status == agl.AttemptFailed:
		derived = agl.RolloutFailed
	case s.status.Finished() && status != agl.AttemptSucceeded:
		return s
	}
	s.status = derived
	return s
}

// apply returns the state after the operation. possible is false if the store could not have given that answer.
func (s life) apply(in step) (_ life, possible bool) {
	if in.kind == stepEnqueue {
		return life{task: in.task, status: agl.RolloutQueuing}, s.task == nil
	}
	if s.task == nil {
		return s, false
	}
	switch in.kind {
	case stepClaim:
		if !s.status.Queued() || in.number != s.number+1 {
			return s, false
		}
		s.status, s.attempt, s.number, s.doing = agl.RolloutPreparing, in.attempt, in.number, agl.AttemptPreparing
		s.begun, s.alive = in.begun, in.begun
		return s, true
	case stepCancel:
		if !s.status.Finished() {
			s.status = agl.RolloutCancelled
			if s.doing.Live() {
				s.doing = agl.AttemptFailed
			}
		}
		return s, true
	case stepRead:
		same := string(s.status) == in.status && (in.op.Func == Wait || s.attempt == in.attempt && string(s.doing) == in.attempted)
		return s, same
	case stepEnqueue, stepSpans, stepUpdate:
	}
	switch {
	case in.number > s.number || in.number == s.number && in.attempt != s.attempt:
		return s, false // the attempt has not begun
	case in.number < s.number:
		return s, true // it is recorded and has no effect
	case in.kind == stepUpdate:
		if s.status == agl.RolloutCancelled && agl.AttemptStatus(in.status).Live() {
			return s, true
		}
		return s.ended(agl.AttemptStatus(in.status)), true
	}
	if s.status == agl.RolloutCancelled {
		return s, true
	}
	s.alive = max(s.alive, in.start)
	if s.doing == agl.AttemptPreparing || s.doing == agl.AttemptUnresponsive {
		s.doing = agl.AttemptRunning
	}
	if s.doing == agl.AttemptRunning && (s.status.Queued() || s.status == agl.RolloutPreparing) {
		s.status = agl.RolloutRunning
	}
	return s, true
}
