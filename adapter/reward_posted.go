package adapter

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// postedReward is a reward that was added by [agl.AddReward]: it names its target and has a priority. It replaces a
// reward that was matched by its position among the spans.
type postedReward struct {
	value            float64
	priority         float64
	call, span, turn string // all empty for the whole rollout
	sequence         int64
}

func (r *postedReward) whole() bool { return r.call == "" && r.span == "" && r.turn == "" }

// IsPosted reports whether a span is a reward that was added by [agl.AddReward].
func IsPosted(span *agl.Span) bool {
	_, ok := span.Attributes.Get(agl.AttrRewardPriority)
	return ok
}

// posted returns the posted reward of a span whose primary dimension is value; false if the span is none.
func posted(attrs attributes, value float64) (r postedReward, ok bool) {
	raw, ok := attrs.get(agl.AttrRewardPriority)
	if !ok || raw.Kind() != '0' || rawjson.Unmarshal(raw, &r.priority) != nil {
		return postedReward{}, false
	}
	r.value = value
	r.call, _ = attrs.str(agl.AttrRewardCall)
	r.span, _ = attrs.str(agl.AttrRewardSpan)
	r.turn, _ = attrs.str(agl.AttrRewardTurn)
	return r, true
}
