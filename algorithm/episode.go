package algorithm

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Mask says why a rollout is left out of learning and of statistics. It is an
// agl.OutcomeKind that is masked, or one of the constants here. Empty means
// that the rollout counts.
type Mask string

// The reasons besides outcomes.
const (
	// MaskEvicted: the spans had to make room in the store before they were read.
	MaskEvicted Mask = "evicted"
	// MaskMissingReward: the agent ended well and said no reward, or none that is
	// a finite number.
	MaskMissingReward Mask = "missing_reward"
	// MaskMalformed: the adapter cannot read the spans, or calls in them lack what
	// training needs: a reply, token ids or log-probabilities.
	MaskMalformed Mask = "malformed_trace"
	// MaskNoTokens: no model call of the rollout was recorded with what the model
	// wrote, as token ids.
	MaskNoTokens Mask = "no_tokens"
	// MaskTooLong: the tokens do not fit the model's context.
	MaskTooLong Mask = Mask(agl.OutcomeContextOverflow)
)

// Failure says why the rollout has no reward that counts, as far as can be seen
// without reading its spans; empty when it may have one.
func (e *Episode) Failure() Mask {
	switch {
	case e.Outcome.Kind.Masked():
		return Mask(e.Outcome.Kind)
	case e.Evicted:
		return MaskEvicted
	}
	return ""
}

// Credit returns the reward of a rollout without a [Episode.Failure] whose spans
// have the final reward given: that reward or, when there is none, 0 after an
// error of the agent itself and [MaskMissingReward] otherwise.
func (e *Episode) Credit(final agl.Null[float64]) (reward float64, mask Mask) {
	if !final.Valid && e.Outcome.Kind != agl.OutcomeAgentError {
		return 0, MaskMissingReward
	}
	return final.V, ""
}

// Score returns the rollout's reward, or why it has none that says something
// about the agent: a failure of what is around the agent is never reward 0.
func (e *Episode) Score() (reward float64, mask Mask) {
	if mask := e.Failure(); mask != "" {
		return 0, mask
	}
	final, err := adapter.FinalReward(e.Spans)
	if err != nil {
		return 0, MaskMalformed
	}
	return e.Credit(final)
}
