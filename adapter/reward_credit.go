package adapter

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl"
)

// postedRewards returns the posted rewards in spans, by sequence id.
func postedRewards(spans []agl.Span) ([]postedReward, error) {
	var found []postedReward
	for i := range spans {
		if !IsPosted(&spans[i]) {
			continue
		}
		attrs := parseCallAttributes(spans[i].Attributes)
		rewards, err := readRewards(spans[i].Name, attrs)
		if err != nil {
			return nil, spanError(&spans[i], err)
		}
		if len(rewards) == 0 {
			continue
		}
		if r, ok := posted(attrs, rewards[0].Value); ok {
			r.sequence = spans[i].SequenceID
			found = append(found, r)
		}
	}
	slices.SortStableFunc(found, func(a, b postedReward) int { return cmp.Compare(a.sequence, b.sequence) })
	return found, nil
}

// creditPosted gives posted rewards to the calls that they name, and those of the whole rollout to its last call with
// token ids or, if none has them, to its last call. Of several rewards for one call, the one with the highest priority
// counts, and the last one of equal priority. Rewards that were matched by position have priority 0.
func creditPosted(triplets []Triplet, rewards []postedReward, spans []agl.Span) {
	last := len(triplets) - 1
	for i := range triplets {
		if len(triplets[i].Prompt.TokenIDs) > 0 && len(triplets[i].Response.TokenIDs) > 0 {
			last = i
		}
	}
	priorities := make(map[int]float64, len(rewards))
	for _, r := range rewards {
		i := last
		if !r.whole() {
			i = calledBy(triplets, r, spans)
		}
		if i < 0 || triplets[i].Reward.Valid && r.priority < priorities[i] {
			continue
		}
		triplets[i].Reward, priorities[i] = agl.Some(r.value), r.priority
	}
}

// calledBy returns the index of the triplet of the call that a reward is for, or -1.
func calledBy(triplets []Triplet, r postedReward, spans []agl.Span) int {
	if r.span != "" { // several spans may describe one call
		for i := range spans {
			if spans[i].SpanID == r.span {
				r.call, _ = responseID(parseCallAttributes(spans[i].Attributes))
				break
			}
		}
	}
	for i := len(triplets) - 1; i >= 0; i-- {
		t := &triplets[i]
		if r.turn != "" && t.Call.Turn == r.turn || r.span != "" && t.Call.SpanID == r.span || r.call != "" && t.Metadata.ResponseID == agl.Some(r.call) {
			return i
		}
	}
	return -1
}
