package grpo

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Credit is what a reward is credited to.
type Credit string

// The kinds of credit.
const (
	// CreditTrajectory gives all tokens of a rollout the advantage of its final
	// reward.
	CreditTrajectory Credit = "trajectory"
	// CreditTurn gives the tokens of each call the advantage of the rewards that
	// followed it. The reward rₖ of call k is the sum of those that the agent emitted
	// after call k began and before call k+1 did, and of the one that was added for it (see [agl.AddReward]): of
	// several, that with the highest priority, and of these the last. One that was added for the whole rollout is
	// the last call's. Call t of rollout i has the reward-to-go
	//
	//	Gᵢₜ = Σₖ₌ₜ γ^(k−t) · rᵢₖ,   Âᵢₜ = (Gᵢₜ − mean Gₜ)/(std Gₜ + 1e-4)
	//
	// with the mean and std over the rollouts of the group that made at least t calls (see
	// [Baseline] and Config.PlainAdvantage for others). A call that only one rollout of its group
	// reached has the advantage 0, and so have calls with equal rewards-to-go. G is the return of
	// REINFORCE (Sutton and Barto 2018, §13.3); the process supervision of DeepSeekMath
	// (arXiv:2402.03300, §4.1.3) also rewards a call for what follows it, but normalizes the
	// rewards before it adds them, and over all calls of the group. docs/rl.md has a measurement.
	CreditTurn Credit = "turn"
)

// Credits returns all kinds of credit.
func Credits() []Credit { return []Credit{CreditTrajectory, CreditTurn} }

// turnsOf returns the calls in the sequences, by sequence id, with their rewards-to-go. An empty dimension is the primary one.
func turnsOf(spans []agl.Span, sequences []adapter.Trajectory, discount float64, dimension string) ([]turn, error) {
	var turns []turn
	for i, sequence := range sequences {
		for j, reply := range sequence.Replies {
			turns = append(turns, turn{sequence: i, reply: j, id: reply.SequenceID})
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.id, b.id) })
	added := map[int]addedReward{} // by the index of the call that they name; -1 is the whole rollout
	for i := range spans {
		rewards, err := adapter.Rewards(&spans[i])
		if err != nil {
			return nil, err
		}
		reward := dimensionOf(rewards, dimension)
		if !reward.Valid {
			continue // most spans: to look for their calls takes time
		}
		switch at, named := rewarded(turns, sequences, spans, &spans[i]); {
		case at < 0:
		case !adapter.IsPosted(&spans[i]):
			turns[at].togo += reward.V
		case named:
			added[at] = added[at].or(at, reward.V, &spans[i])
		default:
			added[-1] = added[-1].or(at, reward.V, &spans[i])
		}
	}
	for of := -1; of < len(turns); of++ { // in order, for the same bits
		if r := added[of]; r.there {
			turns[r.at].togo += r.value
		}
	}
	for t := len(turns) - 2; t >= 0; t-- {
		turns[t].togo += discount * turns[t+1].togo
	}
	return turns, nil
}

// addedReward is the reward that counts of those that were added for a call, or for the whole rollout. The zero value is none.
type addedReward struct {
	there           bool
	at              int // the call
	value, priority float64
}

// or returns a reward of a call, which came later, unless the one before it has a higher priority.
func (r addedReward) or(at int, value float64, span *agl.Span) addedReward {
	raw, _ := span.Attributes.Get(agl.AttrRewardPriority)
	priority, _ := strconv.ParseFloat(string(raw), 64)
	if r.there && r.priority > priority {
		return r
	}
	return addedReward{true, at, value, priority}
}

// rewarded returns the index of the call that a reward belongs to, -1 if there is none, and whether the reward names it. If it names none,
// that is the last one with a smaller sequence id: a late reward may have the id of the call after it. It may name any span of the call:
// they share its sequence id.
func rewarded(turns []turn, sequences []adapter.Trajectory, spans []agl.Span, span *agl.Span) (at int, named bool) {
	call, _ := span.Attributes.GetString(agl.AttrRewardCall)
	spanID, _ := span.Attributes.GetString(agl.AttrRewardSpan)
	ofTurn, _ := span.Attributes.GetString(agl.AttrRewardTurn)
	if call != "" || spanID != "" || ofTurn != "" {
		sequence := int64(-1)
		if i := slices.IndexFunc(spans, func(s agl.Span) bool { return s.SpanID == spanID }); spanID != "" && i >= 0 {
			sequence = spans[i].SequenceID
		}
		for i, t := range slices.Backward(turns) {
			reply := sequences[t.sequence].Replies[t.reply]
			if call != "" && call == reply.ResponseID.V || spanID != "" && spanID == reply.SpanID || t.id == sequence || ofTurn != "" && ofTurn == reply.Turn {
				return i, true
			}
		}
		return -1, true
	}
	at, _ = slices.BinarySearchFunc(turns, span.SequenceID, func(t turn, id int64) int { return cmp.Compare(t.id, id) })
	return at - 1, false
}

// finalDimension returns a dimension of the final reward, and the names of all its dimensions.
func finalDimension(spans []agl.Span, name string) (value agl.Null[float64], all []string, err error) {
	rewards, err := adapter.FinalRewards(spans)
	for _, r := range rewards {
		all = append(all, r.Name)
	}
	return dimensionOf(rewards, name), all, err
}

// dimensionOf returns a dimension of a reward; an empty name is the primary one.
func dimensionOf(rewards []agl.Reward, name string) agl.Null[float64] {
	for _, r := range rewards {
		if cmp.Or(name, r.Name) == r.Name {
			return agl.Some(r.Value)
		}
	}
	return agl.Null[float64]{}
}

// groupAdvantages are the advantages of a group's replies, by rollout, sequence and
// reply.
type groupAdvantages [][][]float32

func newGroupAdvantages(g taskGroup) groupAdvantages {
	all := make(groupAdvantages, len(g))
	for i, s := range g {
		all[i] = make([][]float32, len(s.sequences))
		for k, sequence := range s.sequences {
			all[i][k] = make([]float32, len(sequence.Replies))
		}
	}
	return all
}

// credit returns the advantages of a group; ok is false if no reply has one.
func credit(kind Credit, baseline Baseline, plain bool, g taskGroup) (all groupAdvantages, ok bool) {
	if kind == CreditTurn {
		return creditTurns(baseline, plain, g)
	}
	rewards := make([]float64, len(g))
	for i, s := range g {
		rewards[i] = s.score()
	}
	each, ok := advantages(rewards, baseline, plain)
	if len(g) == 1 && g[0].expected != nil {
		each = []float64{g[0].expected.advantage(g[0].score(), plain || baseline == LeaveOneOut)}
		ok = each[0] != 0
	}
	if !ok {
		return nil, false
	}
	all = newGroupAdvantages(g)
	for i := range all {
		for _, sequence := range all[i] {
			for j := range sequence {
				sequence[j] = float32(each[i])
			}
		}
	}
	return all, true
}

func creditTurns(baseline Baseline, plain bool, g taskGroup) (all groupAdvantages, ok bool) {
	all = newGroupAdvantages(g)
	for t := 0; ; t++ {
		var togo []float64
		var reached []*float32 // the advantages of call t
		for i, s := range g {
			if t < len(s.turns) {
				togo = append(togo, s.turns[t].togo)
				reached = append(reached, &all[i][s.turns[t].sequence][s.turns[t].reply])
			}
		}
		if len(togo) == 0 {
			return all, ok
		}
		each, varied := advantages(togo, baseline, plain)
		ok = ok || varied
		for k := range each {
			*reached[k] = float32(each[k])
		}
	}
}
