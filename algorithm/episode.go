package algorithm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Episode is a finished rollout as an algorithm sees it.
type Episode struct {
	Rollout agl.Rollout
	// Attempt is the latest attempt; nil if the rollout was never claimed, or deleted.
	Attempt *agl.Attempt
	// Outcome is that of the latest attempt; cancelled if the rollout was cancelled or deleted.
	Outcome agl.Outcome
	// Spans are those of the latest attempt, by sequence id. If [ReadFor] has read them, use [Adapt]: they may have only
	// some of their attributes, which are enough for outcomes and rewards.
	Spans []agl.Span
	// Values are attributes that Spans do not have, see [agl.ShortSpans].
	Values []agl.SpanValue
	// Evicted is true if the store has evicted the spans.
	Evicted bool
}

// NewEpisode returns a finished rollout whose spans are not read yet.
func NewEpisode(r agl.AttemptedRollout) Episode {
	return Episode{Rollout: r.Rollout, Attempt: r.Attempt, Outcome: outcomeOf(r)}
}

// Reader reads the spans of a finished rollout.
type Reader func(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (Episode, error)

// Read is the Reader of whole spans.
func Read(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (Episode, error) {
	whole := agl.AdapterFunc[struct{}](func([]agl.Span) (struct{}, error) { return struct{}{}, nil })
	return ReadFor(whole)(ctx, store, r)
}

// ReadFor returns a Reader of episodes for [Adapt] with the same adapter. It reads the short form of spans if the adapter and
// the store have one, so that the time to read a conversation is proportional to its length. Outcomes and rewards are read
// from the same spans: the short form of your own adapter must include what that of [adapter.ProxyTriplets] includes.
func ReadFor[T any](a agl.Adapter[T]) Reader {
	return func(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (Episode, error) {
		e := NewEpisode(r)
		if r.Attempt == nil {
			return e, nil
		}
		spans, err := agl.QuerySpansFor(ctx, store, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}, a)
		return e.read(spans, err)
	}
}

// Adapt returns what an adapter makes of an episode: the one that [ReadFor] has read it for, or any after [Read].
func Adapt[T any](a agl.Adapter[T], e *Episode) (T, error) {
	return agl.AdaptSpans(a, agl.ShortSpans{Spans: e.Spans, Values: e.Values})
}

// read returns the episode with the spans that were read.
func (e Episode) read(spans agl.ShortSpans, err error) (Episode, error) {
	switch {
	case errors.Is(err, agl.ErrEvicted):
		e.Evicted = true
	case err != nil:
		return Episode{}, fmt.Errorf("read spans of rollout %q: %w", e.Rollout.RolloutID, err)
	}
	e.Spans, e.Values = spans.Spans, spans.Values
	if e.Outcome.Kind == agl.OutcomeAgentError {
		// The runner of a program does not see its model calls; the spans show them.
		if kind := adapter.CallOutcome(e.Spans); kind != "" {
			e.Outcome.Kind = kind
		}
	}
	return e, nil
}

// outcomeOf returns the outcome of a finished rollout. If the status was set by
// hand while an attempt was running, the status decides.
func outcomeOf(r agl.AttemptedRollout) agl.Outcome {
	if r.Status == agl.RolloutCancelled {
		return agl.Outcome{Kind: agl.OutcomeCancelled, Message: "the rollout was cancelled"}
	}
	if r.Attempt != nil {
		if outcome, ok := r.Attempt.Outcome(); ok {
			return outcome
		}
	}
	if r.Status == agl.RolloutSucceeded {
		return agl.Outcome{Kind: agl.OutcomeOK}
	}
	return agl.Outcome{Kind: agl.OutcomeAgentError, Message: "the rollout was set to " + string(r.Status)}
}

// Mask is the reason why a rollout is left out of learning and of statistics: a masked agl.OutcomeKind, or one of the
// constants below. Empty means that the rollout counts.
type Mask string

// The reasons besides outcomes.
const (
	// MaskEvicted: the store evicted the spans before they were read.
	MaskEvicted Mask = "evicted"
	// MaskMissingReward: the agent succeeded without a reward that is a finite number.
	MaskMissingReward Mask = "missing_reward"
	// MaskMalformed: the adapter cannot read the spans, or calls lack what training
	// needs: a reply, token ids or log-probabilities.
	MaskMalformed Mask = "malformed_trace"
	// MaskNoTokens: no model call was recorded with the token ids of its reply.
	MaskNoTokens Mask = "no_tokens"
	// MaskVersion: weights that the run has not published answered a call of the model in training.
	MaskVersion Mask = "wrong_version"
	// MaskStale: weights of too many versions ago answered a call.
	MaskStale Mask = "stale"
	// MaskSampling: a call was sampled at another temperature than 1, truncated, or with a penalty, so that the recorded
	// log-probabilities are not those of the samples.
	MaskSampling Mask = "sampling"
	// MaskTooLong: the tokens do not fit the model's context.
	MaskTooLong Mask = Mask(agl.OutcomeContextOverflow)
)

// DescribeMasked lists masks and how many rollouts each has, as in "missing_reward 3, timeout 1"; of none, "none".
func DescribeMasked(masked map[Mask]int) string { return cmp.Or(DescribeCounts(masked), "none") }

// DescribeCounts lists keys in their order, each with its number, as in "failed 1, succeeded 3"; of none, it is empty.
func DescribeCounts[K ~string](n map[K]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, n[key]))
	}
	return strings.Join(parts, ", ")
}

// Failure returns why the rollout has no reward that counts, as far as is known without its spans; empty if it may have one.
func (e *Episode) Failure() Mask {
	switch {
	case e.Outcome.Kind.Masked():
		return Mask(e.Outcome.Kind)
	case e.Evicted:
		return MaskEvicted
	}
	return ""
}

// Credit returns the reward of a rollout without a [Episode.Failure], given the final reward in its spans. If there is none,
// it is 0 after an error of the agent and [MaskMissingReward] otherwise.
func (e *Episode) Credit(final agl.Null[float64]) (reward float64, mask Mask) {
	if !final.Valid && e.Outcome.Kind != agl.OutcomeAgentError {
		return 0, MaskMissingReward
	}
	return final.V, ""
}

// Score returns the rollout's reward, or the mask that says why no reward counts: an
// infrastructure failure is never reward 0.
func (e *Episode) Score() (reward float64, mask Mask) {
	_, reward, mask = e.score()
	return reward, mask
}

// score is Score with all dimensions of the reward; none if the agent failed without one.
func (e *Episode) score() (dimensions []agl.Reward, reward float64, mask Mask) {
	if mask := e.Failure(); mask != "" {
		return nil, 0, mask
	}
	dimensions, err := adapter.FinalRewards(e.Spans)
	if err != nil {
		return nil, 0, MaskMalformed
	}
	var final agl.Null[float64]
	if len(dimensions) > 0 {
		final = agl.Some(dimensions[0].Value)
	}
	reward, mask = e.Credit(final)
	return dimensions, reward, mask
}
