package sft

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// Filter says which rollouts are learned from. Its zero value takes all whose
// tokens are known, rewarded or not.
type Filter struct {
	// MinReward leaves out rollouts with less, and those without a reward.
	MinReward agl.Null[float64]
	// Best keeps only so many rollouts of each task, those with the highest
	// rewards and of equals the earliest; zero keeps all. Rollouts without a reward
	// are left out. Without MinReward the best may be failures: tasks whose rollouts
	// all have the same reward (one rollout always has), and rollouts whose agent
	// failed, are left out then.
	Best int
}

// Selected is what became of the rollouts that were looked at.
type Selected struct {
	Rollouts int `json:"rollouts"` // looked at
	Kept     int `json:"kept"`
	Tasks    int `json:"tasks"` // with a rollout that was kept
	// Rejected rollouts have too low a reward, better ones beside them, or none that
	// is worse, see Filter.Best.
	Rejected int `json:"rejected"`
	// Masked could not be judged or learned from, by reason.
	Masked map[algorithm.Mask]int `json:"masked,omitzero"`
	// RewardMean is over those that have a reward, KeptMean over those kept.
	RewardMean float64 `json:"reward_mean"`
	KeptMean   float64 `json:"kept_mean"`
	Tokens     int     `json:"tokens"` // of the kept, that are learned
}

// candidate is a rollout with its tokens.
type candidate struct {
	task     string // what rollouts of the same task share
	id       string
	reward   agl.Null[float64]
	sampled  []adapter.Trajectory
	position int
	failed   bool // the agent did
}

// picker chooses among rollouts that come one by one.
type picker struct {
	filter  Filter
	adapter agl.Adapter[adapter.Merged]
	limit   int // tokens of a sequence; 0 is unknown
	vocab   int

	list     []candidate
	lacks    []algorithm.Lack
	selected Selected
	rewards  float64
	rewarded int
}

// add looks at a finished rollout.
func (p *picker) add(e *algorithm.Episode) {
	p.selected.Rollouts++
	c, mask := p.candidate(e)
	if mask != "" {
		if p.selected.Masked == nil {
			p.selected.Masked = map[algorithm.Mask]int{}
		}
		p.selected.Masked[mask]++
		return
	}
	if c.reward.Valid {
		p.rewards += c.reward.V
		p.rewarded++
	}
	if least := p.filter.MinReward; least.Valid && c.reward.V < least.V {
		p.selected.Rejected++
		return
	}
	p.list = append(p.list, c)
}

func (p *picker) candidate(e *algorithm.Episode) (c candidate, mask algorithm.Mask) {
	if mask := e.Failure(); mask != "" {
		return c, mask
	}
	merged, err := p.adapter.Adapt(e.Spans)
	if err != nil {
		return c, algorithm.MaskMalformed
	}
	lack := algorithm.LackOf(e.Rollout.RolloutID, merged.Report, false)
	p.lacks = append(p.lacks, lack)
	c = candidate{
		task: string(e.Rollout.Input), id: e.Rollout.RolloutID, position: p.selected.Rollouts,
		failed: e.Outcome.Kind == agl.OutcomeAgentError,
	}
	reward, mask := e.Credit(merged.Reward)
	switch {
	case mask == "":
		c.reward = agl.Some(reward)
	case p.filter.MinReward.Valid || p.filter.Best > 0:
		return c, mask
	}
	if 0 < lack.Lacking && lack.Lacking < lack.Calls {
		return c, algorithm.MaskMalformed // a part of what was done is no demonstration
	}
	for _, t := range merged.Trajectories {
		d, ok := Demonstration(t)
		switch {
		case !ok:
			continue
		case p.limit > 0 && len(d.Input) > p.limit:
			return c, algorithm.MaskTooLong
		case d.Validate(tinker.CrossEntropy, p.vocab) != nil:
			return c, algorithm.MaskMalformed // the ids are another model's
		}
		c.sampled = append(c.sampled, t)
	}
	if len(c.sampled) == 0 {
		return c, algorithm.MaskNoTokens
	}
	return c, ""
}

// data are the demonstrations of the rollouts that are kept, in the order in which
// they came.
func (p *picker) data() (data []tinker.Datum, selected Selected) {
	kept := p.list
	if p.filter.Best > 0 {
		if !p.filter.MinReward.Valid {
			kept = successes(kept)
		}
		kept = best(kept, p.filter.Best)
	}
	selected = p.selected
	selected.Rejected += len(p.list) - len(kept)
	selected.Kept = len(kept)
	if p.rewarded > 0 {
		selected.RewardMean = p.rewards / float64(p.rewarded)
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
	return data, selected
}

// successes leaves out tasks whose rewards are all equal, and rollouts whose agent
// failed: their rewards say that others were better, and not what is good.
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

// best keeps the n best of each task, in the order in which they were.
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

// Demonstration makes the training form of a trajectory for cross_entropy: what
// the model wrote has the weight 1, all else 0. ok is false when it wrote nothing.
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
