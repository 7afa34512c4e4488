package memory

import "slices"

// queue is the order in which rollouts are claimed. A place in it is valid while
// its rollout holds the same ticket; others are skipped, and removed when they reach the
// head or become the majority.
type queue struct {
	front []place // returned to the head; the last one is next
	back  []place
	head  int // of back
	stale int // places whose rollout no longer holds their ticket
}

type place struct {
	entry  *rollout
	ticket int64
}

func (p place) valid() bool { return p.entry.ticket == p.ticket }

func (q *queue) add(r *rollout, front bool) {
	if p := (place{r, r.ticket}); front {
		q.front = append(q.front, p)
	} else {
		q.back = append(q.back, p)
	}
}

// at returns the i-th place from the head, nil after the end.
func (q *queue) at(i int) *place {
	if i < len(q.front) {
		return &q.front[len(q.front)-1-i]
	}
	if i += q.head - len(q.front); i < len(q.back) {
		return &q.back[i]
	}
	return nil
}

// minStale keeps short queues from being compacted all the time.
const minStale = 64

// trim removes stale places from the head, and all of them when they are the majority.
func (q *queue) trim() {
	for n := len(q.front); n > 0 && !q.front[n-1].valid(); n = len(q.front) {
		q.front[n-1] = place{}
		q.front = q.front[:n-1]
		q.stale--
	}
	if len(q.front) == 0 {
		for q.head < len(q.back) && !q.back[q.head].valid() {
			q.back[q.head] = place{}
			q.head++
			q.stale--
		}
	}
	if live := len(q.front) + len(q.back) - q.head - q.stale; q.head+q.stale > live+minStale {
		q.compact()
	}
}

func (q *queue) compact() {
	stale := func(p place) bool { return !p.valid() }
	q.front = slices.DeleteFunc(q.front, stale)
	q.back = slices.DeleteFunc(slices.Delete(q.back, 0, q.head), stale)
	q.head, q.stale = 0, 0
}
