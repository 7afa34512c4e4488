package apo

import (
	"maps"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// entry is a line of journal.jsonl: one complete result, of a model call or of an evaluation.
type entry struct {
	// Key is the result's position in the search.
	Key    string     `json:"key"`
	Call   *modelCall `json:"call,omitzero"`
	Scores *evaluated `json:"trial,omitzero"`
	// Sessions and Decision are of a live run.
	Sessions *gathered `json:"sessions,omitzero"`
	Decision *decided  `json:"decision,omitzero"`
}

// modelCall is a call that was answered.
type modelCall struct {
	Reply

	Round int   `json:"round"`
	Price Price `json:"price"`
}

// evaluated is the result of an evaluation.
type evaluated struct {
	ByTask   []agl.Null[float64]    `json:"scores"` // null if masked
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked"`
}

// journal holds every complete result under its key. It is safe for concurrent use.
type journal struct {
	// append makes an entry durable.
	append func(entry any) error

	mu      sync.Mutex
	entries map[string]entry
}

// load adds an entry that an earlier process has written.
func (j *journal) load(line []byte) error {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	j.entries[e.Key] = e
	return nil
}

// put adds an entry, durably if the run has a folder.
func (j *journal) put(e entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.append(e); err != nil {
		return err
	}
	j.entries[e.Key] = e
	return nil
}

// get returns the entry of a key; its members are nil if there is none.
func (j *journal) get(key string) entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[key]
}

// spent adds up the calls of the rounds up to the given one.
func (j *journal) spent(round int) Spent {
	j.mu.Lock()
	defer j.mu.Unlock()
	var s Spent
	for _, key := range slices.Sorted(maps.Keys(j.entries)) { // sums of floats depend on the order
		if c := j.entries[key].Call; c != nil && c.Round <= round {
			s.add(c.Usage, c.Price)
		}
	}
	return s
}

// totals adds up the rollouts of all evaluations.
func (j *journal) totals() algorithm.Totals {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := algorithm.Totals{Masked: map[algorithm.Mask]int{}}
	for _, e := range j.entries {
		if s := e.Scores; s != nil {
			t.Add(s.Rollouts, s.Masked)
		}
	}
	return t
}
