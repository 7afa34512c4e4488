package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// Violation is a rule that a history breaks.
type Violation struct {
	Rule string
	What string
	Ops  []*Op // the operations that show it
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", v.Rule, v.What)
	for _, o := range v.Ops {
		b.WriteString("\n\t")
		b.WriteString(o.String())
	}
	return b.String()
}

// Report is the result of [Check], with counts of what was checked.
type Report struct {
	Violations []Violation
	Rollouts   int
	Attempts   int
	Spans      int
	Unknown    int // operations without an answer
	Ordered    int // rollouts whose place in the queue could be checked
}

func (r Report) String() string {
	return fmt.Sprintf("%d rollouts, %d attempts, %d spans, %d answers lost, order judged of %d rollouts, %d violations",
		r.Rollouts, r.Attempts, r.Spans, r.Unknown, r.Ordered, len(r.Violations))
}

// Check checks a whole history against every rule.
func Check(ops []*Op) Report {
	j := newJudge(ops)
	for _, rule := range []func(){
		j.faults, j.enqueued, j.claimed, j.live, j.spansKept, j.marksKept, j.resourcesKept,
		j.sequences, j.rewards, j.completed, j.stuck, j.events, j.order, j.lifecycle,
	} {
		rule()
	}
	return j.report
}

// judge is a history, indexed.
type judge struct {
	ops      []*Op
	settings Args
	tasks    map[string]sentTask
	rollouts map[string]*story
	stories  []*story // in the order of their first mention
	report   Report
}

type sentTask struct {
	task Task
	op   *Op
}

// story has all operations on one rollout.
type story struct {
	id        string
	task      sentTask // of its enqueue
	index     int      // among the rollouts of its enqueue
	acked     bool     // the enqueue has an answer
	claims    []claim  // that have an answer
	numbers   map[string]int
	ops       map[Func][]*Op // the operations on the rollout, its attempts and its spans, by kind
	reads     []seen
	events    []*Op
	attempted map[string][]*Op // events of its attempts
	final     *Op              // nil if there was no final read
	end       Reply            // the reply of final
	state     Rollout          // the rollout in end
}

type claim struct {
	Attempt
	op *Op
}

// seen is one rollout in the answer of a read or wait.
type seen struct {
	Rollout
	op *Op
}

func newJudge(ops []*Op) *judge {
	j := &judge{ops: ops, tasks: map[string]sentTask{}, rollouts: map[string]*story{}}
	for _, o := range ops {
		if o.Kind == Unknown {
			j.report.Unknown++
		}
		j.add(o)
	}
	// The rollouts of an enqueue without an answer are known from the final reads.
	for _, s := range j.stories {
		if sent, known := j.tasks[s.state.Task]; known && s.task.op == nil {
			s.task = sent
		}
		for _, a := range s.end.Attempts {
			s.numbers[a.ID] = a.Number
		}
		j.report.Rollouts++
		j.report.Attempts += len(s.end.Attempts)
		j.report.Spans += len(s.end.Spans)
	}
	return j
}

func (j *judge) story(id string) *story {
	s := j.rollouts[id]
	if s == nil {
		s = &story{id: id, numbers: map[string]int{}, ops: map[Func][]*Op{}, attempted: map[string][]*Op{}}
		j.rollouts[id] = s
		j.stories = append(j.stories, s)
	}
	return s
}

func (j *judge) add(o *Op) {
	if o.Kind == Refused {
		return
	}
	switch o.Func {
	case Settings:
		j.settings = o.Args
	case Enqueue:
		for _, t := range o.Args.Tasks {
			j.tasks[t.ID] = sentTask{t, o}
		}
		for i, r := range o.Reply.Rollouts {
			s := j.story(r.ID)
			s.task, s.index, s.acked = j.tasks[r.Task], i, true
		}
	case Dequeue:
		for _, r := range o.Reply.Rollouts {
			if r.Attempt != nil {
				s := j.story(r.ID)
				s.claims = append(s.claims, claim{*r.Attempt, o})
				s.numbers[r.Attempt.ID] = r.Attempt.Number
			}
		}
	case Reserve, AddSpans, UpdateAttempt, UpdateRollout, Cancel, ReadSpans:
		s := j.story(o.Args.Rollout)
		s.ops[o.Func] = append(s.ops[o.Func], o)
	case Wait, Read:
		for _, r := range o.Reply.Rollouts {
			s := j.story(r.ID)
			s.reads = append(s.reads, seen{r, o})
		}
	case Observe:
		if o.Args.Rollout == "" {
			return
		}
		s := j.story(o.Args.Rollout)
		if o.Args.Attempt != "" {
			s.attempted[o.Args.Attempt] = append(s.attempted[o.Args.Attempt], o)
			return
		}
		s.events = append(s.events, o)
	case FinalRollout:
		s := j.story(o.Args.Rollout)
		s.final, s.end = o, o.Reply
		if len(o.Reply.Rollouts) == 1 {
			s.state = o.Reply.Rollouts[0]
		}
	}
}

// most is the number of violations of one rule that are reported.
const most = 20

func (j *judge) violatef(rule string, ops []*Op, format string, args ...any) {
	n := 0
	for _, v := range j.report.Violations {
		if v.Rule == rule {
			n++
		}
	}
	if n < most {
		j.report.Violations = append(j.report.Violations, Violation{rule, fmt.Sprintf(format, args...), ops})
	}
}

// faults: no operation is refused, and no server reports an internal error.
func (j *judge) faults() {
	for _, o := range j.ops {
		if o.Kind == Refused || o.Code == string(agl.CodeInternal) || o.Code == string(agl.CodeExhausted) {
			j.violatef("faults", []*Op{o}, "%s: %s", o.Func, o.Error)
		}
	}
}

// enqueued: every rollout of an answered enqueue exists, with its task, and no task has two rollouts.
func (j *judge) enqueued() {
	const rule = "enqueued"
	made := map[string]string{}
	for _, s := range j.stories {
		switch {
		case s.final == nil:
			j.violatef(rule, opsOf(s.task.op), "rollout %s is gone", s.id)
			continue
		case s.acked && s.state.Task != s.task.task.ID:
			j.violatef(rule, []*Op{s.task.op, s.final}, "rollout %s was task %q and is %q", s.id, s.task.task.ID, s.state.Task)
		case s.task.op == nil:
			j.violatef(rule, []*Op{s.final}, "rollout %s: nobody has sent task %q", s.id, s.state.Task)
		}
		if first, twice := made[s.state.Task]; twice {
			j.violatef(rule, opsOf(s.task.op), "task %q became two rollouts, %s and %s", s.state.Task, first, s.id)
		}
		made[s.state.Task] = s.id
	}
}

func opsOf(o *Op) []*Op {
	if o == nil {
		return nil
	}
	return []*Op{o}
}

// claimed: every claim that was answered exists, once, and every attempt belongs to a dequeue.
func (j *judge) claimed() {
	const rule = "claimed"
	lost := map[string][]*Op{} // dequeues without an answer, by worker
	for _, o := range j.ops {
		if o.Func == Dequeue && o.Kind == Unknown {
			lost[o.Args.Worker] = append(lost[o.Args.Worker], o)
		}
	}
	for _, s := range j.stories {
		there := map[string]Attempt{}
		numbers := map[int]string{}
		for _, a := range s.end.Attempts {
			if other, twice := numbers[a.Number]; twice {
				j.violatef(rule, opsOf(s.final), "rollout %s: attempts %s and %s both are number %d", s.id, other, a.ID, a.Number)
			}
			there[a.ID], numbers[a.Number] = a, a.ID
		}
		for n := range numbers {
			if n < 1 || n > len(numbers) {
				j.violatef(rule, opsOf(s.final), "rollout %s: %d attempts, and one is number %d", s.id, len(numbers), n)
			}
		}
		answered := map[string]*Op{}
		for _, c := range s.claims {
			if first := answered[c.ID]; first != nil {
				j.violatef(rule, []*Op{first, c.op}, "rollout %s: attempt %s was handed out twice", s.id, c.ID)
			}
			answered[c.ID] = c.op
			switch a, kept := there[c.ID]; {
			case !kept:
				j.violatef(rule, []*Op{c.op}, "rollout %s: attempt %s, number %d, was handed out and is gone", s.id, c.ID, c.Number)
			case a.Number != c.Number:
				j.violatef(rule, []*Op{c.op}, "rollout %s: attempt %s was number %d and is %d", s.id, c.ID, c.Number, a.Number)
			}
		}
		for _, a := range there {
			// A dequeue whose answer was lost can have made it.
			asked := slices.ContainsFunc(lost[a.Worker], func(o *Op) bool { return o.Start <= a.Start+slack })
			if answered[a.ID] == nil && !asked {
				j.violatef(rule, opsOf(s.final), "rollout %s: nobody has asked for attempt %s of worker %q", s.id, a.ID, a.Worker)
			}
		}
	}
}

// slack is an upper bound of the rounding of times on the wire, in nanoseconds.
const slack = int64(1e6)

// live: an attempt begins only after the one before it has ended: by its deadlines, or by a status that is retried. The
// deadlines count from the last sign of life that was answered.
func (j *judge) live() {
	for _, s := range j.stories {
		attempts := slices.Clone(s.end.Attempts)
		slices.SortFunc(attempts, func(a, b Attempt) int { return a.Number - b.Number })
		for i := 1; i < len(attempts); i++ {
			before, next := attempts[i-1], attempts[i]
			if !s.over(before, next.Start) {
				j.violatef("live", opsOf(s.final), "rollout %s: attempt %s was begun while attempt %s, number %d, was live",
					s.id, next.ID, before.ID, before.Number)
			}
		}
	}
}

// batchTime is the longest time, in nanoseconds, between the moment that a server
// writes into a change and the commit of the change.
const batchTime = int64(1e9)

// over reports whether the attempt can have ended before the start of the next one.
func (s *story) over(a Attempt, begun int64) bool {
	t, by := s.task.task, begun+batchTime
	for _, o := range s.ops[UpdateAttempt] {
		if o.Args.Attempt == a.ID && o.Start <= by && slices.Contains(t.Retry, o.Args.Status) {
			return true
		}
	}
	alive := a.Start
	for _, o := range s.ops[AddSpans] {
		if o.Args.Attempt == a.ID && o.End <= begun && len(o.Reply.Spans) > 0 {
			alive = max(alive, o.Start)
		}
	}
	return t.Unresponsive > 0 && by > alive+t.Unresponsive || t.Timeout > 0 && by > a.Start+t.Timeout
}

// completed: no more rollouts finish than were enqueued, and a finished rollout stays finished.
func (j *judge) completed() {
	const rule = "completed"
	done := 0
	for _, s := range j.stories {
		if agl.RolloutStatus(s.state.Status).Finished() {
			done++
		}
		finished := (*Op)(nil)
		for _, o := range s.events {
			switch {
			case agl.RolloutStatus(o.Args.Status).Finished():
				finished = o
			case finished != nil:
				j.violatef(rule, []*Op{finished, o}, "rollout %s came back after its end", s.id)
			}
		}
	}
	if done > len(j.tasks) {
		j.violatef(rule, nil, "%d rollouts were completed, %d enqueued", done, len(j.tasks))
	}
}

// stuck: at the end every rollout is finished.
func (j *judge) stuck() {
	for _, s := range j.stories {
		if s.final != nil && !agl.RolloutStatus(s.state.Status).Finished() {
			j.violatef("stuck", []*Op{s.final}, "rollout %s is %s at the end", s.id, s.state.Status)
		}
	}
}

// events: the stream has events of every rollout and every attempt up to their last status, and none twice.
func (j *judge) events() {
	const rule = "events"
	if !j.settings.EventLog {
		return
	}
	ids := map[string]*Op{}
	for _, o := range j.ops {
		if o.Func != Observe {
			continue
		}
		if first := ids[o.Reply.Event]; first != nil {
			j.violatef(rule, []*Op{first, o}, "event %s came twice", o.Reply.Event)
		}
		ids[o.Reply.Event] = o
		if o.Args.Rollout == "" {
			j.violatef(rule, []*Op{o}, "the stream began anew")
		}
	}
	for _, s := range j.stories {
		if s.final == nil {
			continue
		}
		j.announced(s, "rollout "+s.id, s.events, s.state.Status)
		for _, a := range s.end.Attempts {
			j.announced(s, "attempt "+a.ID+" of rollout "+s.id, s.attempted[a.ID], a.Status)
		}
	}
}

// announced checks that the last event has the final status.
func (j *judge) announced(s *story, what string, events []*Op, status string) {
	switch n := len(events); {
	case n == 0:
		j.violatef("events", []*Op{s.final}, "%s: no event", what)
	case events[n-1].Args.Status != status:
		j.violatef("events", []*Op{events[n-1], s.final}, "%s: the last event says %s, it is %s", what, events[n-1].Args.Status, status)
	}
}
