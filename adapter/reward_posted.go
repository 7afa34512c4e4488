package adapter

import (
	"bytes"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// postedReward is a reward that came through [agl.AddReward]: it says what it is for, and
// how much it counts. It replaces a reward that was matched by its place among the spans.
type postedReward struct {
	value            float64
	priority         float64
	call, span, turn string // all empty for the whole rollout
	sequence         int64
}

func (r *postedReward) whole() bool { return r.call == "" && r.span == "" && r.turn == "" }

// IsPosted tells the spans of rewards that came through [agl.AddReward] from others, nearly all of them without parsing them.
func IsPosted(span *agl.Span) bool {
	if !bytes.Contains(span.Attributes, []byte(`"`+agl.AttrRewardPriority+`"`)) {
		return false
	}
	_, ok := span.Attributes.Get(agl.AttrRewardPriority)
	return ok
}

// posted reads the posted reward of a span, which has the primary dimension value.
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
