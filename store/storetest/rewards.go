package storetest

import (
	"github.com/agl-go/agl"
)

func rewardTests(a *area) {
	a.test("after the end, once for each key", testRewardLate)
	a.test("many repeats at once", testRewardRepeats)
	a.test("are no sign of life", testRewardRevivesNothing)
	a.test("of a call and of a span", testRewardOfCall)
	a.test("refused", testRewardRefused)
}

func reward(rolloutID, key string, value float64) agl.AddRewardParams {
	return agl.AddRewardParams{
		RolloutID: rolloutID, Rewards: []agl.Reward{{Name: "primary", Value: value}}, Source: agl.RewardFromUser, IdempotencyKey: key,
	}
}

func (h *harness) addReward(p agl.AddRewardParams) agl.AddedReward {
	h.Helper()
	return must(agl.AddReward(h.ctx, h.Store, p))(h)
}

func testRewardLate(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.touch(r.Attempt)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	end := h.get(r.RolloutID).EndTime
	first := h.addReward(reward(r.RolloutID, "k", 0.5))
	equal(h, "attempt", first.AttemptID, r.Attempt.AttemptID)
	h.startAttempt(r.RolloutID, "") // the repeat stays with the attempt that was the latest
	equal(h, "repeated", h.addReward(reward(r.RolloutID, "k", 0.5)), first)
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, reward(r.RolloutID, "k", 0.6))), agl.ErrConflict, "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.addReward(reward(r.RolloutID, "", 1))
	h.addReward(reward(r.RolloutID, "", 1))
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID, Name: agl.SpanAnnotation}).Total, 3)
	got := h.wantStatus(r.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
	equal(h, "has an end", got.EndTime.Valid && end.Valid, true)
}

// testRewardRevivesNothing adds rewards from outside. Unlike the agent's own spans, they do not show that the agent is alive.
func testRewardRevivesNothing(h *harness) {
	retried := agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive}}
	for _, c := range []struct {
		config  agl.RolloutConfig
		status  agl.AttemptStatus // empty leaves the attempt as it was claimed
		rollout agl.RolloutStatus
		attempt agl.AttemptStatus
	}{
		{agl.RolloutConfig{}, agl.AttemptUnresponsive, agl.RolloutFailed, agl.AttemptUnresponsive},
		{retried, agl.AttemptUnresponsive, agl.RolloutRequeuing, agl.AttemptUnresponsive},
		{agl.RolloutConfig{}, "", agl.RolloutPreparing, agl.AttemptPreparing},
	} {
		r := h.start(config(c.config), "")
		if c.status != "" {
			h.report(r.RolloutID, agl.LatestAttempt, c.status)
		}
		before := h.get(r.RolloutID).Attempt
		h.addReward(reward(r.RolloutID, "k", 0.5))
		learned := span(r.RolloutID, r.Attempt.AttemptID, "learned", 0)
		learned.Name = agl.SpanTraining
		added := must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{learned}, IssueSequenceIDs: true}))(h)
		equal(h, "what a learner says", len(added.Stored), 1)
		got := h.wantStatus(r.RolloutID, c.rollout, c.attempt)
		equal(h, "heartbeat", got.Attempt.LastHeartbeatTime, before.LastHeartbeatTime)
		equal(h, "end", got.Attempt.EndTime, before.EndTime)
		equal(h, "reward", got.Attempt.Reward.V.Value, 0.5)
	}
}

func testRewardRepeats(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	const callers = 16
	var got [callers]agl.AddedReward
	h.together(callers, func(i int) (err error) {
		got[i], err = agl.AddReward(h.ctx, h.Store, reward(r.RolloutID, "k", 0.5))
		return err
	})
	for i := range callers {
		equal(h, "answer", got[i], got[0])
	}
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 1)
}

func testRewardOfCall(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	call := span(r.RolloutID, r.Attempt.AttemptID, "call", 1)
	call.Attributes = agl.Attributes(`{"gen_ai.response.id":"chatcmpl-1"}`)
	must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{call}}))(h)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	second := h.startAttempt(r.RolloutID, "")
	p := reward(r.RolloutID, "", 1)
	equal(h, "whole", h.addReward(p).AttemptID, second.Attempt.AttemptID)
	p.Call = "chatcmpl-1"
	equal(h, "call", h.addReward(p).AttemptID, r.Attempt.AttemptID)
	p.Call, p.SpanID = "", call.SpanID
	equal(h, "span", h.addReward(p).AttemptID, r.Attempt.AttemptID)
	p.SpanID = "nope"
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, p)), agl.ErrNotFound, "")
	p.Call, p.SpanID = "chatcmpl-2", ""
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, p)), agl.ErrNotFound, "")
}

func testRewardRefused(h *harness) {
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, reward("nope", "k", 1))), agl.ErrNotFound, "")
	queued := h.enqueueOne()
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, reward(queued.RolloutID, "k", 1))), agl.ErrIllegalState, "")
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, agl.AddRewardParams{RolloutID: queued.RolloutID})), agl.ErrInvalid, "")
	both := reward(queued.RolloutID, "", 1)
	both.Call, both.SpanID = "a", "b"
	h.wantError(errorOf(agl.AddReward(h.ctx, h.Store, both)), agl.ErrInvalid, "")
}
