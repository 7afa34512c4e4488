package grpo

import (
	"slices"

	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// taskGroup is the rollouts of one task.
type taskGroup []sample

// sample is what a rollout contributes.
type sample struct {
	id         string // of the rollout
	attempt    string
	grouped    bool // it names its group, in a live run
	again      bool // it was learned from before, in a live run
	form       string
	reward     float64
	overlong   float64        // added to the reward for learning, at most 0
	mask       algorithm.Mask // empty if the rollout counts
	spans      int
	calls      int // to the model
	continued  int // calls that extend an earlier one
	mismatches int // calls that do not extend the one before
	others     int // calls to other models
	truncated  bool
	failed     bool     // the agent ended with an error
	lostTokens int      // sampled in a rollout that failed
	offPolicy  string   // why the rollout is masked: the call that must not be trained on
	dimensions []string // of the final reward, if the role learns from one of them
	sequences  []adapter.Trajectory
	turns      []turn // the calls in sequences, in order
	coverage   algorithm.Coverage
	expected   *expectation // what it is compared with if it has no group
	peers      []sample     // the same rollout to the other roles, in their order
}

// sampled is the number of tokens that the model sampled in the rollout.
func (s sample) sampled() int {
	total := 0
	for _, t := range s.sequences {
		total += sampledTokens(t)
	}
	return total
}

// score is the reward that is learned from.
func (s sample) score() float64 { return s.reward + s.overlong }

func sampledTokens(t adapter.Trajectory) int {
	n := 0
	for _, reply := range t.Replies {
		n += reply.End - reply.Start
	}
	return n
}

// counting are the rollouts of a group that count.
func counting(g taskGroup) taskGroup {
	return slices.DeleteFunc(slices.Clone(g), func(s sample) bool { return s.mask != "" })
}

// of returns the samples of a group that belong to a role.
func (g taskGroup) of(role int) taskGroup {
	if role == 0 {
		return g
	}
	seen := make(taskGroup, len(g))
	for i, s := range g {
		seen[i] = s.peers[role-1]
	}
	return seen
}

// turn is a call of the model in the order of an attempt.
type turn struct {
	sequence, reply int // its place in sample.sequences
	id              int64
	togo            float64
}
