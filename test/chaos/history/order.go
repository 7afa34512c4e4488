package history

import (
	"cmp"
	"slices"
	"sort"
)

// queued is a rollout's first stay in the queue, until its first claim.
type queued struct {
	s             *story
	enqueue       *Op
	claim         *Op // nil if it was never claimed
	enqueued      int64
	claimed, done int64 // the claim's call and answer
}

// order checks that the queue is first in, first out. Every violation shows one of four patterns (Henzinger, Sezgin,
// Vafeiadis: Aspect-Oriented Linearizability Proofs, CONCUR 2013). A value from nowhere and one taken twice break the rules
// enqueued and claimed; the others are:
//
//   - b was queued after a, and was claimed before a was;
//   - a dequeue found nothing while a was in the queue all the time.
//
// A rollout that was cancelled, or that a dequeue without an answer may have taken for
// some time, says nothing about the order.
func (j *judge) order() {
	if !j.settings.StrictFIFO {
		return
	}
	all := j.firstClaims()
	slices.SortFunc(all, func(a, b queued) int { return cmp.Compare(a.enqueue.Start, b.enqueue.Start) })
	var calm []queued
	lost := j.lostDequeues()
	for _, q := range all {
		if q.undisturbed(lost) {
			calm = append(calm, q)
		}
	}
	j.report.Ordered = len(calm)
	j.overtaken(all, calm)
	j.overlooked(calm)
}

// firstClaims returns the rollouts of answered enqueues with their first claims, if any.
func (j *judge) firstClaims() []queued {
	var all []queued
	for _, s := range j.stories {
		if !s.acked {
			continue
		}
		q := queued{s: s, enqueue: s.task.op, enqueued: s.task.op.End, claimed: Forever, done: Forever}
		for _, c := range s.claims {
			if c.Number == 1 {
				q.claim, q.claimed, q.done = c.op, c.op.Start, c.op.End
			}
		}
		all = append(all, q)
	}
	return all
}

// giveBack is how long, in nanoseconds, a dequeue may still change the queue after its client has given up.
const giveBack = int64(1e9)

// loss is a dequeue without an answer, and until when it may have held a rollout.
type loss struct{ start, until int64 }

// lostDequeues returns the losses in the order of their calls. If a server was down when
// the client gave up, the dequeue ended with the server.
func (j *judge) lostDequeues() []loss {
	var downs []*Op
	for _, o := range j.ops {
		if o.Func == Down {
			downs = append(downs, o)
		}
	}
	var lost []loss
	for _, o := range j.ops {
		if o.Func != Dequeue || o.Kind != Unknown {
			continue
		}
		until := o.GaveUp
		if until != Forever {
			until += giveBack
		}
		for _, down := range downs {
			if down.Start <= o.GaveUp && o.GaveUp <= down.End {
				until = min(until, down.End)
			}
		}
		lost = append(lost, loss{o.Start, until})
	}
	return lost
}

// undisturbed reports whether the rollout was in the queue, and nowhere else, from its enqueue to its first claim.
func (q queued) undisturbed(lost []loss) bool {
	if q.claim == nil {
		return false // cancelled while it was queued, or claimed without an answer
	}
	for _, o := range q.s.ops[Cancel] {
		if o.Start <= q.done {
			return false
		}
	}
	for _, l := range lost {
		if l.start > q.done {
			break
		}
		if l.until >= q.enqueue.Start {
			return false
		}
	}
	return true
}

// overtaken finds the first pattern.
func (j *judge) overtaken(all, calm []queued) {
	const rule = "order"
	// soonest[i] is the one among all[i:] whose claim was answered first.
	soonest := make([]int, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		soonest[i] = i
		if i+1 < len(all) && all[soonest[i+1]].done < all[i].done {
			soonest[i] = soonest[i+1]
		}
	}
	siblings := map[*Op][]queued{}
	for _, q := range all {
		siblings[q.enqueue] = append(siblings[q.enqueue], q)
	}
	for _, a := range calm {
		i := sort.Search(len(all), func(i int) bool { return all[i].enqueue.Start > a.enqueued })
		if i < len(all) {
			if b := all[soonest[i]]; b.done < a.claimed {
				j.violatef(rule, []*Op{a.enqueue, b.enqueue, b.claim, a.claim}, "rollout %s was queued after %s and claimed before it", b.s.id, a.s.id)
			}
		}
		for _, b := range siblings[a.enqueue] {
			if b.s.index > a.s.index && b.done < a.claimed {
				j.violatef(rule, []*Op{a.enqueue, b.claim, a.claim}, "rollout %s was queued behind %s and claimed before it", b.s.id, a.s.id)
			}
		}
	}
}

// overlooked finds the second pattern.
func (j *judge) overlooked(calm []queued) {
	byEnd := slices.Clone(calm)
	slices.SortFunc(byEnd, func(a, b queued) int { return cmp.Compare(a.enqueued, b.enqueued) })
	// longest[i] is the one among byEnd[:i+1] that was claimed last.
	longest := make([]int, len(byEnd))
	for i := range byEnd {
		longest[i] = i
		if i > 0 && byEnd[longest[i-1]].claimed > byEnd[i].claimed {
			longest[i] = longest[i-1]
		}
	}
	for _, o := range j.ops {
		if o.Func != Dequeue || o.Kind != OK || len(o.Reply.Rollouts) > 0 || o.Reply.Closed {
			continue
		}
		i := sort.Search(len(byEnd), func(i int) bool { return byEnd[i].enqueued >= o.Start }) - 1
		if i < 0 {
			continue
		}
		if a := byEnd[longest[i]]; a.claimed > o.End {
			j.violatef("order", []*Op{a.enqueue, o, a.claim}, "a dequeue found nothing while rollout %s was queued", a.s.id)
		}
	}
}
