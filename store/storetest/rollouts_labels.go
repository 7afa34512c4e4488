package storetest

import (
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func labelTests(a *area) {
	a.test("found by label", testLabels)
	a.test("found and sorted by reward", testRewardFilters)
	a.test("found by reward while rewards are added", testRewardsMeanwhile)
	a.test("pages by key", testAfter)
	a.test("the final reward of an attempt", testFinalReward)
	a.test("the reward follows the latest attempt", testRewardFollows)
	a.test("refused", testLabelsRefused)
}

func labelled(n int, metadata string) agl.EnqueueRollout {
	return agl.EnqueueRollout{Input: jsontext.Value(fmt.Sprint(n)), Metadata: jsontext.Value(metadata)}
}

func testLabels(h *harness) {
	long := strings.Repeat("x", 257)
	enqueued := h.enqueue(
		labelled(0, `{"run":"a","step":1,"group":2,"deep":{"run":"b"},"list":["a"],"none":null}`),
		labelled(1, `{"run":"a","step":2,"flag":true,"quote\"":"\n","ü":"ä=b"}`),
		labelled(2, `{"run":"b","step":1,"text":"\n\"run\":\"a\"\n","nul":"\u0000","long":"`+long+`"}`),
		labelled(3, `{}`),
		agl.EnqueueRollout{Input: jsontext.Value(`4`)},
	)
	for _, tc := range []struct {
		labels []agl.Label
		logic  agl.FilterLogic
		want   string
	}{
		{nil, "", "0 1 2 3 4"},
		{[]agl.Label{{Name: "run", Value: "a"}}, "", "0 1"},
		{[]agl.Label{{Name: "run", Value: "a"}, {Name: "step", Value: "1"}}, "", "0"},
		{[]agl.Label{{Name: "run", Value: "a"}, {Name: "run", Value: "b"}}, "", "-"},
		{[]agl.Label{{Name: "run", Value: "a"}, {Name: "step", Value: "1"}}, agl.FilterOr, "0 1 2"},
		{[]agl.Label{{Name: "step", Value: "1"}, {Name: "group", Value: "2"}}, "", "0"},
		{[]agl.Label{{Name: "group", Value: "2"}}, "", "0"},
		{[]agl.Label{{Name: "group", Value: "2"}, {Name: "flag", Value: "true"}}, agl.FilterOr, "0 1"},
		{[]agl.Label{{Name: `quote"`, Value: "\n"}}, "", "1"},
		{[]agl.Label{{Name: "ü", Value: "ä=b"}}, "", "1"},
		{[]agl.Label{{Name: "nul", Value: "\x00"}}, "", "2"},
		{[]agl.Label{{Name: "none", Value: "null"}}, "", "-"},
		{[]agl.Label{{Name: "list", Value: "a"}}, "", "-"},
		{[]agl.Label{{Name: "ru", Value: "a"}}, "", "-"},
		{[]agl.Label{{Name: "run", Value: ""}}, "", "-"},
		{[]agl.Label{{Name: "run", Value: "%"}}, "", "-"},
	} {
		got := h.rollouts(agl.QueryRolloutsParams{Labels: tc.labels, Logic: tc.logic})
		equal(h, fmt.Sprint("rollouts ", tc.labels, " ", tc.logic), inputs(got.Items), tc.want)
		equal(h, "total", got.Total, len(got.Items))
	}
	queuing := []agl.RolloutStatus{agl.RolloutQueuing}
	run := []agl.Label{{Name: "run", Value: "a"}}
	h.cancel(enqueued[0].RolloutID)
	equal(h, "with a status", inputs(h.rollouts(agl.QueryRolloutsParams{Labels: run, StatusIn: queuing}).Items), "1")
	page := h.rollouts(agl.QueryRolloutsParams{Labels: run, Paging: agl.Paging{Limit: 1, SortBy: "start_time", Order: agl.Descending}})
	equal(h, "of all pages", page.Total, 2)
	equal(h, "on the page", len(page.Items), 1)

	for offset, want := range map[int]int{0: 2, 4: 1, 5: 0, 9: 0} {
		page = h.rollouts(agl.QueryRolloutsParams{RolloutIDContains: "o-", Paging: agl.Paging{Limit: 2, Offset: offset}})
		equal(h, fmt.Sprint("on the page from ", offset), len(page.Items), want)
		equal(h, "in all", page.Total, len(enqueued))
	}

	// The labels are those of the present metadata.
	must(h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{RolloutID: enqueued[1].RolloutID, Metadata: jsontext.Value(`{"run":"c"}`)}))(h)
	must(h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{RolloutID: enqueued[2].RolloutID, Metadata: jsontext.Value(`null`)}))(h)
	count := func(name, value string) int {
		return h.rollouts(agl.QueryRolloutsParams{Labels: []agl.Label{{Name: name, Value: value}}}).Total
	}
	equal(h, "the new label", count("run", "c"), 1)
	equal(h, "the old ones", count("run", "a")+count("run", "b")+count("flag", "true")+count("nul", "\x00"), 1)
	must(h.Store.UpdateRollout(h.ctx, agl.UpdateRolloutParams{RolloutID: enqueued[3].RolloutID, Metadata: jsontext.Value(`{"run":"c"}`)}))(h)
	equal(h, "the first label", count("run", "c"), 2)
	h.ok(h.Store.DeleteRollout(h.ctx, agl.DeleteRolloutParams{RolloutID: enqueued[0].RolloutID}))
	equal(h, "after the deletion", count("run", "a"), 0)
}

// scored starts a rollout and gives it rewards.
func (h *harness) scored(n int, rewards ...float64) agl.AttemptedRollout {
	h.Helper()
	r := h.start(labelled(n, `{"run":"a"}`), "")
	for i, value := range rewards {
		h.addSpans(rewardSpan(r.Attempt, fmt.Sprint("reward-", i), int64(i+1), fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":%v}`, value)))
	}
	return r
}

func rewardSpan(a *agl.Attempt, id string, sequence int64, attributes string) agl.Span {
	s := span(a.RolloutID, a.AttemptID, id, sequence)
	s.Name, s.Attributes = agl.SpanAnnotation, agl.Attributes(attributes)
	return s
}

func testRewardFilters(h *harness) {
	h.scored(0, 0.5)
	h.scored(1, 1, -2)
	h.scored(2)
	h.scored(3, 0.5)
	h.enqueue(labelled(4, `{"run":"a"}`))
	h.start(agl.EnqueueRollout{Input: jsontext.Value(`5`), Mode: agl.ModeVal}, "")
	some := agl.Some[float64]
	for _, tc := range []struct {
		p    agl.QueryRolloutsParams
		want string
	}{
		{agl.QueryRolloutsParams{RewardMin: some(0)}, "0 3"},
		{agl.QueryRolloutsParams{RewardMin: some(0.5)}, "0 3"},
		{agl.QueryRolloutsParams{RewardMax: some(0.5)}, "0 1 3"},
		{agl.QueryRolloutsParams{RewardMax: some(math.Nextafter(0.5, -1))}, "1"},
		{agl.QueryRolloutsParams{RewardMin: some(-3), RewardMax: some(0)}, "1"},
		{agl.QueryRolloutsParams{RewardMin: some(1)}, "-"},
		{agl.QueryRolloutsParams{RewardMax: some(-1), Labels: []agl.Label{{Name: "run", Value: "b"}}, Logic: agl.FilterOr}, "1"},
		{agl.QueryRolloutsParams{ModeIn: []agl.Mode{agl.ModeVal}}, "5"},
		{agl.QueryRolloutsParams{ModeIn: []agl.Mode{agl.ModeVal, agl.ModeTrain}, RewardMin: some(0), Logic: agl.FilterOr}, "0 3 5"},
		{agl.QueryRolloutsParams{ModeIn: []agl.Mode{}}, "-"},
		// Rollouts without a reward are last in both directions.
		{agl.QueryRolloutsParams{Paging: agl.Paging{SortBy: "reward"}}, "1 0 3 2 4 5"},
		{agl.QueryRolloutsParams{Paging: agl.Paging{SortBy: "reward", Order: agl.Descending}}, "0 3 1 2 4 5"},
		{agl.QueryRolloutsParams{Paging: agl.Paging{SortBy: "reward", Order: agl.Descending, Limit: 2, Offset: 2}}, "1 2"},
		{agl.QueryRolloutsParams{RewardMin: some(-9), Paging: agl.Paging{SortBy: "reward"}}, "1 0 3"},
	} {
		equal(h, fmt.Sprintf("rollouts %+v", tc.p), inputs(h.rollouts(tc.p).Items), tc.want)
	}
}

// testAfter reads rollouts page by page, several with the same time, while others are added and removed.
func testAfter(h *harness) {
	r := h.enqueue(numbered(5)...)
	h.enqueue(labelled(5, `{"run":"a"}`), labelled(6, `{"run":"a"}`), labelled(7, `{}`))
	for _, p := range []agl.Paging{{}, {SortBy: "start_time"}, {SortBy: "start_time", Order: agl.Descending}} {
		all := h.rollouts(agl.QueryRolloutsParams{Paging: p}).Items
		var walked []agl.AttemptedRollout
		q := agl.QueryRolloutsParams{Paging: p}
		for q.Limit = 3; ; {
			page := h.rollouts(q)
			equal(h, "those that are left", page.Total, len(all)-len(walked))
			walked = append(walked, page.Items...)
			if len(page.Items) == page.Total {
				break
			}
			q.After = page.Items[len(page.Items)-1].RolloutID
		}
		equal(h, "by "+p.SortBy, inputs(walked), inputs(all))
	}
	q := agl.QueryRolloutsParams{After: r[2].RolloutID, Labels: []agl.Label{{Name: "run", Value: "a"}}, RolloutIDIn: []string{r[4].RolloutID}, Logic: agl.FilterOr}
	equal(h, "with filters", inputs(h.rollouts(q).Items), "4 5 6")
}

// finalReward returns the reward of a rollout's latest attempt.
func (h *harness) finalReward(rolloutID string) string {
	h.Helper()
	r := h.get(rolloutID)
	if r.Attempt == nil || !r.Attempt.Reward.Valid {
		return "-"
	}
	return fmt.Sprint(r.Attempt.Reward.V.Value)
}

func testFinalReward(h *harness) {
	const one, half, low = `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1}`, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.5}`, `{"reward":-1}`
	r := h.start(config(agl.RolloutConfig{}), "")
	equal(h, "at first", h.finalReward(r.RolloutID), "-")
	call := h.addRewardOf(r, "", 9)
	equal(h, "none but of a call", h.finalReward(r.RolloutID), "9")
	h.addSpans(rewardSpan(r.Attempt, "a", call+2, one))
	equal(h, "of the attempt", h.finalReward(r.RolloutID), "1")
	h.addSpans(rewardSpan(r.Attempt, "b", call+1, half))
	equal(h, "an earlier one comes late", h.finalReward(r.RolloutID), "1")
	h.addSpans(rewardSpan(r.Attempt, "c", call+3, low), rewardSpan(r.Attempt, "d", call+4, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":"much"}`))
	equal(h, "the last that is well formed", h.finalReward(r.RolloutID), "-1")
	h.addSpans(rewardSpan(r.Attempt, "a", call+9, half))
	equal(h, "a span that is stored already", h.finalReward(r.RolloutID), "-1")
	h.addReward(reward(r.RolloutID, "", 0.25)) // of a user
	h.addReward(agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 7}}})
	h.addRewardOf(r, "", 8)
	equal(h, "the highest priority", h.finalReward(r.RolloutID), "0.25")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.addReward(reward(r.RolloutID, "", 0.75))
	equal(h, "after the end", h.finalReward(r.RolloutID), "0.75")
	equal(h, "in the list of attempts", h.attempts(r.RolloutID)[0].Reward.V.Value, 0.75)
	if h.Restart != nil {
		h.restart()
		equal(h, "after a restart", h.finalReward(r.RolloutID), "0.75")
		h.addReward(agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 7}}})
		equal(h, "which remembers the priority", h.finalReward(r.RolloutID), "0.75")
	}
}

// addRewardOf rewards a call of the rollout and returns the sequence id of the reward.
func (h *harness) addRewardOf(r agl.AttemptedRollout, key string, value float64) int64 {
	h.Helper()
	id := must(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}))(h)
	call := span(r.RolloutID, r.Attempt.AttemptID, fmt.Sprint("call-", id), id)
	h.addSpans(call)
	p := reward(r.RolloutID, key, value)
	p.SpanID = call.SpanID
	return h.addReward(p).SequenceID
}

func testRewardFollows(h *harness) {
	r := h.scored(0, 1)
	found := func(minimum float64) int {
		return h.rollouts(agl.QueryRolloutsParams{RewardMin: agl.Some(minimum)}).Total
	}
	equal(h, "of the first attempt", found(1), 1)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	second := h.startAttempt(r.RolloutID, "")
	equal(h, "of the second attempt", found(-9), 0)
	h.addSpans(rewardSpan(second.Attempt, "r", 20, `{"reward":3}`))
	equal(h, "its own", found(3), 1)
	h.addSpans(rewardSpan(r.Attempt, "late", 21, `{"reward":8}`))
	equal(h, "a late one of the first", found(4), 0)
	attempts := h.attempts(r.RolloutID)
	equal(h, "attempts", fmt.Sprint(attempts[0].Reward.V.Value, attempts[1].Reward.V.Value), "8 3")

	if !h.Store.Capabilities().ReturnClaims {
		return
	}
	h.setStatus(r.RolloutID, agl.RolloutRequeuing)
	claim := h.dequeueOne("", r.RolloutID)
	equal(h, "of a claim", found(-9), 0)
	h.returnClaims(claim)
	equal(h, "when the claim is returned", found(3), 1)
}

func testLabelsRefused(h *harness) {
	for _, p := range []agl.QueryRolloutsParams{
		{Labels: []agl.Label{{Name: "", Value: "a"}}},
		{Labels: []agl.Label{{Name: strings.Repeat("n", 129), Value: "a"}}},
		{Labels: []agl.Label{{Name: "run", Value: strings.Repeat("v", 257)}}},
		{Labels: []agl.Label{{Name: "run", Value: "a"}, {Name: "user", Value: strings.Repeat("v", 300)}}, Logic: agl.FilterOr},
		{ModeIn: []agl.Mode{"practice"}},
		{RewardMin: agl.Some(math.NaN())},
		{RewardMax: agl.Some(math.Inf(1))},
		{After: "ro-none"},
		{After: "ro-none", Paging: agl.Paging{SortBy: "reward"}},
	} {
		h.wantError(errorOf(h.Store.QueryRollouts(h.ctx, p)), agl.ErrInvalid, "")
	}
}
