package sft

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// Filter selects the rollouts to learn from. Its zero value takes all whose tokens are known, with and without a reward.
type Filter struct {
	// MinReward rejects rollouts with a lower reward, and those without one, such as those whose agent failed before it gave one.
	MinReward agl.Null[float64]
	// Best takes this many rollouts of each task, those with the highest rewards and, of equal ones, the earliest; zero
	// takes all. Rollouts without a reward are rejected. Without MinReward the best may still be failures: then tasks whose
	// rollouts all have the same reward (a single rollout always does), and rollouts whose agent failed, are rejected, too.
	Best int
}

// Selected counts the rollouts of a round by whether they were kept.
type Selected struct {
	Rollouts int `json:"rollouts"`
	Kept     int `json:"kept"`
	Tasks    int `json:"tasks"` // with a rollout that was kept
	// Rejected rollouts did not pass the [Filter].
	Rejected int `json:"rejected"`
	// Masked rollouts could not be judged or learned from, by reason.
	Masked map[algorithm.Mask]int `json:"masked,omitzero"`
	// RewardMean is over the rollouts with a reward, KeptMean over those kept.
	RewardMean float64 `json:"reward_mean"`
	KeptMean   float64 `json:"kept_mean"`
	Tokens     int     `json:"tokens"` // of the kept rollouts, that are learned
}

// candidate is a rollout with its tokens.
type candidate struct {
	task     string // its input
	id       string
	attempt  string
	reward   agl.Null[float64]
	sampled  []adapter.Trajectory
	position int
	failed   bool // the agent failed
	given    bool // the reward was given, and is not the 0 of an agent that failed
}

// selector applies a filter to rollouts that are added one by one.
type selector struct {
	filter   Filter
	adapters []agl.Adapter[adapter.Merged] // the first that finds calls reads a rollout
	context  int                           // of the model, in tokens; 0 is unknown
	vocab    int                           // of the model; 0 is unknown

	list     []candidate
	coverage []algorithm.Coverage
	selected Selected
	rewards  float64
	rewarded int
}

// add considers a finished rollout.
func (s *selector) add(e *algorithm.Episode) {
	s.selected.Rollouts++
	c, mask := s.candidate(e)
	if mask != "" {
		if s.selected.Masked == nil {
			s.selected.Masked = map[algorithm.Mask]int{}
		}
		s.selected.Masked[mask]++
		return
	}
	if c.reward.Valid {
		s.rewards += c.reward.V
		s.rewarded++
	}
	if least := s.filter.MinReward; least.Valid && (c.reward.V < least.V || !c.given) {
		s.selected.Rejected++
		return
	}
	s.list = append(s.list, c)
}

func (s *selector) candidate(e *algorithm.Episode) (c candidate, mask algorithm.Mask) {
	if mask := e.Failure(); mask != "" {
		return c, mask
	}
	var merged adapter.Merged
	for i := 0; i < len(s.adapters) && merged.Report.Calls == 0; i++ {
		var err error
		if merged, err = algorithm.Adapt(s.adapters[i], e); err != nil {
			return c, algorithm.MaskMalformed
		}
	}
	coverage := algorithm.CoverageOf(e.Rollout.RolloutID, merged, false)
	s.coverage = append(s.coverage, coverage)
	c = candidate{
		task: string(e.Rollout.Input), id: e.Rollout.RolloutID, position: s.selected.Rollouts,
		failed: e.Outcome.Kind == agl.OutcomeAgentError, given: merged.Reward.Valid,
	}
	if e.Attempt != nil {
		c.attempt = e.Attempt.AttemptID
	}
	reward, mask := e.Credit(merged.Reward)
	switch {
	case mask == "":
		c.reward = agl.Some(reward)
	case s.filter.MinReward.Valid || s.filter.Best > 0:
		return c, mask
	}
	if 0 < coverage.Missing && coverage.Missing < coverage.Calls {
		return c, algorithm.MaskMalformed // a rollout with calls missing is not learned from
	}
	for _, t := range merged.Trajectories {
		d, ok := Demonstration(t)
		switch {
		case !ok:
			continue
		case s.context > 0 && len(d.Input) > s.context:
			return c, algorithm.MaskTooLong
		case d.Validate(tinker.CrossEntropy, s.vocab) != nil:
			return c, algorithm.MaskMalformed // token ids of another model
		}
		c.sampled = append(c.sampled, t)
	}
	if len(c.sampled) == 0 {
		return c, algorithm.MaskNoTokens
	}
	return c, ""
}

// data returns the rollouts that are kept, in the order in which they were added, and their demonstrations.
func (s *selector) data() (kept []candidate, data []tinker.Datum, selected Selected) {
	kept = s.list
	if s.filter.Best > 0 {
		if !s.filter.MinReward.Valid {
			kept = successes(kept)
		}
		kept = best(kept, s.filter.Best)
	}
	selected = s.selected
	selected.Rejected += len(s.list) - len(kept)
	selected.Kept = len(kept)
	if s.rewarded > 0 {
		selected.RewardMean = s.rewards / float64(s.rewarded)
	}
	tasks := map[string]bool{}
	sum, rewarded := 0.0, 0
	for _, c := range kept {
		tasks[c.task] = true
		if c.reward.Valid {
			sum += c.reward.V
			rewarded++
		}
		for _, t := range c.sampled {
			d, _ := Demonstration(t)
			for _, w := range d.Weights {
				selected.Tokens += int(w)
			}
			data = append(data, d)
		}
	}
	selected.Tasks = len(tasks)
	if rewarded > 0 {
		selected.KeptMean = sum / float64(rewarded)
	}
	return kept, data, selected
}

// successes rejects tasks whose rewards are all equal, and rollouts whose agent
// failed: the best of these is not known to be good.
func successes(list []candidate) []candidate {
	first, varied := map[string]float64{}, map[string]bool{}
	for _, c := range list {
		reward, ok := first[c.task]
		if !ok {
			first[c.task] = c.reward.V
		} else if c.reward.V != reward {
			varied[c.task] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.failed || !varied[c.task] })
}

// best takes the n best rollouts of each task, in the order in which they were added.
func best(list []candidate, n int) []candidate {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b candidate) int { return cmp.Compare(b.reward.V, a.reward.V) })
	taken := map[string]int{}
	kept := sorted[:0]
	for _, c := range sorted {
		if taken[c.task] < n {
			taken[c.task]++
			kept = append(kept, c)
		}
	}
	slices.SortFunc(kept, func(a, b candidate) int { return cmp.Compare(a.position, b.position) })
	return kept
}

// Demonstration converts a trajectory of n+1 tokens to data of length n for cross_entropy: tokens that the model sampled
// have the weight 1, all others 0. ok is false if it sampled none.
func Demonstration(t adapter.Trajectory) (d tinker.Datum, ok bool) {
	n := len(t.TokenIDs) - 1
	if n < 1 {
		return tinker.Datum{}, false
	}
	d = tinker.Datum{Input: t.TokenIDs[:n], Targets: t.TokenIDs[1:], Weights: make([]float32, n)}
	for i := range n {
		if t.Mask[i+1] {
			d.Weights[i], ok = 1, true
		}
	}
	return d, ok
}
