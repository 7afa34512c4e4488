package grpo

import (
	"time"

	"github.com/agl-go/agl/algorithm/admission"
)

// stepBatch is what a step trains on, or a part of it. All fields but groups and waited describe the whole step and are set in
// its last part.
type stepBatch struct {
	groups  []taskGroup // by id
	last    bool        // of the step
	waited  time.Duration
	sampled time.Duration // the time in which the groups of the step were sampled
	dropped map[admission.Reason]int
	unused  int
	stopped int // rollouts without which their group was complete
	// Rollouts that count, in a live run: those that are new, and those of earlier steps.
	learned, replayed []string
	stale             int // rollouts that were skipped as too old, in a live run
	crowded           int // likewise, because of Live.PerUser
	// withheld counts those that Live.Allow rejected.
	withheld int
	late     int // rollouts whose first reward came after they were read
}

// add adds a sample to its group, or as one of its own.
func (b *stepBatch) add(s sample, group string, siblings map[string]int) {
	if s.mask == "" {
		b.learned = append(b.learned, s.id)
	}
	at, known := siblings[group]
	if group == "" || !known {
		at = len(b.groups)
		b.groups = append(b.groups, nil)
		siblings[group] = at
	}
	b.groups[at] = append(b.groups[at], s)
}
