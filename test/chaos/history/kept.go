package history

import (
	"maps"
	"slices"
)

// spansKept: every read finds every span that was stored before it, once and as it was sent,
// and no other span.
func (j *judge) spansKept() {
	for _, s := range j.stories {
		sent := map[[2]string]Span{}
		for _, o := range s.ops[AddSpans] {
			for _, span := range o.Args.Spans {
				sent[[2]string{o.Args.Attempt, span.ID}] = span
			}
		}
		for _, read := range append(opsOf(s.final), s.ops[ReadSpans]...) {
			if read.Kind == OK {
				j.spansSeen(s, sent, read)
			}
		}
	}
}

// spansSeen checks one read against the spans that were stored before it.
func (j *judge) spansSeen(s *story, sent map[[2]string]Span, read *Op) {
	const rule = "spans"
	there := map[[2]string]Span{}
	for _, span := range read.Reply.Spans {
		key := [2]string{span.Attempt, span.ID}
		was, known := sent[key]
		_, twice := there[key]
		switch {
		case twice:
			j.violatef(rule, []*Op{read}, "rollout %s: span %s of attempt %s is there twice", s.id, span.ID, span.Attempt)
		case !known:
			j.violatef(rule, []*Op{read}, "rollout %s: nobody has sent span %s of attempt %s", s.id, span.ID, span.Attempt)
		case was.Sum != span.Sum:
			j.violatef(rule, []*Op{read}, "rollout %s: span %s of attempt %s is not what was sent", s.id, span.ID, span.Attempt)
		case was.Sequence > 0 && was.Sequence != span.Sequence:
			j.violatef(rule, []*Op{read}, "rollout %s: span %s of attempt %s was sent with sequence id %d and has %d",
				s.id, span.ID, span.Attempt, was.Sequence, span.Sequence)
		}
		there[key] = span
	}
	for _, o := range s.ops[AddSpans] {
		if o.Kind != OK || o.End >= read.Start {
			continue
		}
		for _, span := range o.Args.Spans {
			if _, kept := there[[2]string{o.Args.Attempt, span.ID}]; !kept {
				j.violatef(rule, []*Op{o, read}, "rollout %s: span %s of attempt %s was stored and is gone", s.id, span.ID, o.Args.Attempt)
			}
		}
		for _, span := range o.Reply.Spans {
			if kept, ok := there[[2]string{o.Args.Attempt, span.ID}]; ok && kept.Sequence != span.Sequence {
				j.violatef(rule, []*Op{o, read}, "rollout %s: span %s of attempt %s was given sequence id %d and has %d",
					s.id, span.ID, o.Args.Attempt, span.Sequence, kept.Sequence)
			}
		}
	}
}

// marksKept: a value that updates replace is that of the last answered update, or of an update that may have come after it.
func (j *judge) marksKept() {
	const rule = "updates"
	for _, s := range j.stories {
		if s.final == nil {
			continue
		}
		j.register(rule, "the metadata of rollout "+s.id, s.ops[UpdateRollout], s.state.Mark, s.final)
		for _, a := range s.end.Attempts {
			var writes []*Op
			for _, o := range s.ops[UpdateAttempt] {
				if o.Args.Attempt == a.ID {
					writes = append(writes, o)
				}
			}
			j.register(rule, "the metadata of attempt "+a.ID+" of rollout "+s.id, writes, a.Mark, s.final)
		}
	}
}

// register checks the value that a read found against the updates.
func (j *judge) register(rule, what string, writes []*Op, mark int64, read *Op) {
	var winner *Op
	for _, o := range writes {
		if o.Args.Mark == mark {
			winner = o
		}
	}
	if winner == nil && mark != 0 {
		j.violatef(rule, []*Op{read}, "%s: nobody has written %d", what, mark)
		return
	}
	for _, o := range writes {
		if o.Kind == OK && o != winner && (winner == nil || winner.End < o.Start) {
			j.violatef(rule, append(opsOf(winner), o, read), "%s: %d was written and %d is there", what, o.Args.Mark, mark)
			return
		}
	}
}

// resourcesKept: versions are given once and in order, none is lost, and there are no more than updates.
func (j *judge) resourcesKept() {
	const rule = "resources"
	writes := map[string][]*Op{}
	finals := map[string]*Op{}
	for _, o := range j.ops {
		switch {
		case o.Func == UpdateResource && o.Kind != Refused:
			writes[o.Args.Resources] = append(writes[o.Args.Resources], o)
		case o.Func == FinalResources:
			finals[o.Args.Resources] = o
		}
	}
	for _, id := range slices.Sorted(maps.Keys(writes)) {
		final := finals[id]
		given := map[int]*Op{}
		last := 0
		var before *Op
		for _, o := range writes[id] {
			if o.Kind != OK {
				continue
			}
			if first := given[o.Reply.Version]; first != nil {
				j.violatef(rule, []*Op{first, o}, "resources %s: version %d was given twice", id, o.Reply.Version)
			}
			given[o.Reply.Version] = o
			if before != nil && before.End < o.Start && before.Reply.Version >= o.Reply.Version {
				j.violatef(rule, []*Op{before, o}, "resources %s: version %d came after %d", id, o.Reply.Version, before.Reply.Version)
			}
			before, last = o, max(last, o.Reply.Version)
		}
		switch {
		case final == nil:
			if last > 0 {
				j.violatef(rule, opsOf(given[last]), "resources %s are gone", id)
			}
			continue
		case final.Reply.Version < last:
			j.violatef(rule, []*Op{given[last], final}, "resources %s: version %d was given and %d is there", id, last, final.Reply.Version)
		case final.Reply.Version > len(writes[id]):
			j.violatef(rule, []*Op{final}, "resources %s: %d updates made %d versions", id, len(writes[id]), final.Reply.Version)
		}
		j.register(rule, "the content of resources "+id, writes[id], final.Reply.Mark, final)
	}
}

// sequences: no sequence id is given twice, and later ids are greater.
func (j *judge) sequences() {
	for _, s := range j.stories {
		j.sequencesOnce(s)
		j.sequencesRise(s)
	}
}

func (j *judge) sequencesOnce(s *story) {
	const rule = "sequence ids"
	given := map[int64]*Op{}
	for _, o := range s.ops[Reserve] {
		if o.Kind != OK {
			continue
		}
		for i := range o.Args.Count {
			id := o.Reply.First + int64(i)
			if first := given[id]; first != nil {
				j.violatef(rule, []*Op{first, o}, "rollout %s: sequence id %d was reserved twice", s.id, id)
			}
			given[id] = o
		}
	}
	explicit := map[[2]string]bool{}
	for _, o := range s.ops[AddSpans] {
		for _, span := range o.Args.Spans {
			if span.Sequence > 0 {
				explicit[[2]string{o.Args.Attempt, span.ID}] = true
			}
		}
	}
	used := map[int64]Span{}
	for _, span := range s.end.Spans {
		if first, twice := used[span.Sequence]; twice {
			j.violatef(rule, opsOf(s.final), "rollout %s: spans %s/%s and %s/%s have the sequence id %d",
				s.id, first.Attempt, first.ID, span.Attempt, span.ID, span.Sequence)
		}
		used[span.Sequence] = span
		if o := given[span.Sequence]; o != nil && !explicit[[2]string{span.Attempt, span.ID}] {
			j.violatef(rule, []*Op{o, s.final}, "rollout %s: sequence id %d was reserved and given to span %s/%s", s.id, span.Sequence, span.Attempt, span.ID)
		}
	}
}

// sequencesRise compares the ids of operations, in the order of their answers, with the ids
// of operations that began afterwards.
func (j *judge) sequencesRise(s *story) {
	type given struct {
		op          *Op
		first, last int64
	}
	var all []given
	for _, o := range s.ops[Reserve] {
		if o.Kind == OK {
			all = append(all, given{o, o.Reply.First, o.Reply.First + int64(o.Args.Count) - 1})
		}
	}
	for _, o := range s.ops[AddSpans] {
		asked := map[string]bool{}
		for _, span := range o.Args.Spans {
			asked[span.ID] = span.Sequence <= 0
		}
		g := given{op: o}
		for _, span := range o.Reply.Spans {
			if asked[span.ID] {
				if g.first == 0 || span.Sequence < g.first {
					g.first = span.Sequence
				}
				g.last = max(g.last, span.Sequence)
			}
		}
		if g.first > 0 {
			all = append(all, g)
		}
	}
	for _, a := range all {
		for _, b := range all {
			if a.op.End < b.op.Start && a.last >= b.first {
				j.violatef("sequence ids", []*Op{a.op, b.op}, "rollout %s: sequence id %d was given after %d", s.id, b.first, a.last)
			}
		}
	}
}

// rewards: every read finds at most one reward of an attempt.
func (j *judge) rewards() {
	for _, s := range j.stories {
		for _, read := range append(opsOf(s.final), s.ops[ReadSpans]...) {
			counted := map[string]int{}
			for _, span := range read.Reply.Spans {
				if span.Reward {
					counted[span.Attempt]++
				}
			}
			for attempt, n := range counted {
				if n > 1 {
					j.violatef("rewards", []*Op{read}, "rollout %s: attempt %s has %d rewards", s.id, attempt, n)
				}
			}
		}
	}
}
