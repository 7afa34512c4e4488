package store

import (
	"container/list"
	"slices"

	"github.com/agl-go/agl"
)

// issueTimes remembers when sequence ids were reserved, so that a span that an exporter sends late can get the id of
// the moment at which it ended. It is a cache of recent rollouts in memory: after a restart, late spans get the next
// ids. Only the goroutine that runs a batch uses it.
type issueTimes struct {
	rollouts map[string]*list.Element
	order    list.List // of *issuedIDs, the least recently used in front
}

// issuedIDs holds the reservations of a rollout, in the order of their ids and of their times.
type issuedIDs struct {
	rolloutID string
	marks     []issueMark
}

type issueMark struct {
	first int64
	at    agl.Timestamp
}

const (
	maxIssuedRollouts = 1 << 14
	maxIssueMarks     = 1 << 12 // of a rollout
)

// note records that the ids from first on were reserved. A reservation whose batch failed is replaced when its ids
// are issued again.
func (t *issueTimes) note(rolloutID string, first int64, at agl.Timestamp) {
	element := t.rollouts[rolloutID]
	if element == nil {
		if t.rollouts == nil {
			t.rollouts = map[string]*list.Element{}
		}
		element = t.order.PushBack(&issuedIDs{rolloutID: rolloutID})
		t.rollouts[rolloutID] = element
		if t.order.Len() > maxIssuedRollouts {
			oldest, _ := t.order.Remove(t.order.Front()).(*issuedIDs)
			delete(t.rollouts, oldest.rolloutID)
		}
	}
	t.order.MoveToBack(element)
	ids, _ := element.Value.(*issuedIDs)
	for n := len(ids.marks); n > 0 && ids.marks[n-1].first >= first; n-- {
		ids.marks = ids.marks[:n-1]
	}
	// If the clock was set back, earlier reservations were made now at the latest.
	for n := len(ids.marks); n > 0 && ids.marks[n-1].at > at; n-- {
		ids.marks[n-1].at = at
	}
	if len(ids.marks) == maxIssueMarks {
		ids.marks = slices.Delete(ids.marks, 0, maxIssueMarks/2)
	}
	ids.marks = append(ids.marks, issueMark{first, at})
}

// nextAt returns the first id that was reserved after a time; false if none was.
func (t *issueTimes) nextAt(rolloutID string, at agl.Timestamp) (id int64, ok bool) {
	element := t.rollouts[rolloutID]
	if element == nil {
		return 0, false
	}
	ids, _ := element.Value.(*issuedIDs)
	i, _ := slices.BinarySearchFunc(ids.marks, at, func(m issueMark, at agl.Timestamp) int {
		if m.at > at {
			return 1
		}
		return -1
	})
	if i == len(ids.marks) {
		return 0, false
	}
	return ids.marks[i].first, true
}
