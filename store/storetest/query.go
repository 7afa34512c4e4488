package storetest

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func queryTests(a *area) {
	a.test("rollouts by filter", testRolloutFilters)
	a.test("rollouts in order and pages", testRolloutSorts)
	a.test("attempts", testAttemptQuery)
	a.test("bad paging", testBadPaging)
	a.test("statistics", testStatistics)
}

func (h *harness) rollouts(p agl.QueryRolloutsParams) agl.Page[agl.AttemptedRollout] {
	h.Helper()
	return must(h.Store.QueryRollouts(h.ctx, p))(h)
}

func testRolloutFilters(h *harness) {
	r := h.enqueue(numbered(4)...)
	h.dequeueOne("", r[0].RolloutID)
	h.cancel(r[1].RolloutID)
	none, noIDs := []agl.RolloutStatus{}, []string{}
	preparing := []agl.RolloutStatus{agl.RolloutPreparing}
	open := []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutQueuing}
	for _, tc := range []struct {
		p    agl.QueryRolloutsParams
		want string
	}{
		{agl.QueryRolloutsParams{}, "0 1 2 3"},
		{agl.QueryRolloutsParams{Logic: agl.FilterOr}, "0 1 2 3"},
		{agl.QueryRolloutsParams{StatusIn: preparing}, "0"},
		{agl.QueryRolloutsParams{StatusIn: open}, "0 2 3"},
		{agl.QueryRolloutsParams{StatusIn: none}, "-"},
		{agl.QueryRolloutsParams{RolloutIDIn: noIDs}, "-"},
		{agl.QueryRolloutsParams{RolloutIDIn: noIDs, Logic: agl.FilterOr}, "-"},
		{agl.QueryRolloutsParams{RolloutIDIn: noIDs, StatusIn: preparing, Logic: agl.FilterOr}, "0"},
		{agl.QueryRolloutsParams{StatusIn: none, RolloutIDIn: []string{r[3].RolloutID}, Logic: agl.FilterOr}, "3"},
		{agl.QueryRolloutsParams{RolloutIDIn: []string{r[3].RolloutID, r[0].RolloutID, r[3].RolloutID, "nope"}}, "0 3"},
		{agl.QueryRolloutsParams{RolloutIDIn: []string{r[3].RolloutID}, StatusIn: preparing}, "-"},
		{agl.QueryRolloutsParams{RolloutIDIn: []string{r[3].RolloutID}, StatusIn: preparing, Logic: agl.FilterOr}, "0 3"},
		{agl.QueryRolloutsParams{RolloutIDContains: r[2].RolloutID[3:]}, "2"},
		{agl.QueryRolloutsParams{RolloutIDContains: "ro-"}, "0 1 2 3"},
		{agl.QueryRolloutsParams{RolloutIDContains: "ro-", StatusIn: preparing}, "0"},
		{agl.QueryRolloutsParams{RolloutIDContains: r[2].RolloutID, StatusIn: preparing, RolloutIDIn: []string{r[1].RolloutID}, Logic: agl.FilterOr}, "0 1 2"},
		{agl.QueryRolloutsParams{RolloutIDContains: r[2].RolloutID, StatusIn: preparing, RolloutIDIn: []string{r[1].RolloutID}}, "-"},
		{agl.QueryRolloutsParams{RolloutIDContains: r[2].RolloutID, StatusIn: preparing, Logic: agl.FilterOr}, "0 2"},
	} {
		got := h.rollouts(tc.p)
		equal(h, "rollouts", inputs(got.Items), tc.want)
		equal(h, "total", got.Total, len(got.Items))
	}
	second := h.rollouts(agl.QueryRolloutsParams{StatusIn: open, Paging: agl.Paging{Limit: 1, Offset: 1}})
	equal(h, "page", inputs(second.Items), "2")
	equal(h, "total of all pages", second.Total, 3)
	for _, item := range h.rollouts(agl.QueryRolloutsParams{}).Items {
		equal(h, "has an attempt", item.Attempt != nil, item.RolloutID == r[0].RolloutID)
	}
}

func testRolloutSorts(h *harness) {
	r := h.enqueue(
		agl.EnqueueRollout{Input: jsontext.Value(`0`), Mode: agl.ModeVal, ResourcesID: agl.Some("b")},
		agl.EnqueueRollout{Input: jsontext.Value(`1`)},
		agl.EnqueueRollout{Input: jsontext.Value(`2`), Mode: agl.ModeTest, ResourcesID: agl.Some("a")},
		agl.EnqueueRollout{Input: jsontext.Value(`3`)},
	)
	h.setStatus(r[1].RolloutID, agl.RolloutFailed)
	for _, tc := range []struct {
		paging agl.Paging
		want   string
	}{
		{agl.Paging{}, "0 1 2 3"},
		{agl.Paging{Limit: -1}, "0 1 2 3"},
		{agl.Paging{Limit: 2}, "0 1"},
		{agl.Paging{Limit: 2, Offset: 3}, "3"},
		{agl.Paging{Limit: 2, Offset: 4}, "-"},
		{agl.Paging{Offset: 99}, "-"},
		{agl.Paging{SortBy: "mode"}, "1 3 2 0"},
		{agl.Paging{SortBy: "mode", Order: agl.Descending}, "0 2 1 3"},
		{agl.Paging{SortBy: "resources_id"}, "1 3 2 0"},
		{agl.Paging{SortBy: "end_time"}, "1 0 2 3"},
		{agl.Paging{SortBy: "end_time", Order: agl.Descending}, "0 2 3 1"},
		{agl.Paging{SortBy: "status"}, "1 0 2 3"},
		{agl.Paging{SortBy: "status", Limit: 2, Offset: 1}, "0 2"},
		{agl.Paging{SortBy: "start_time"}, "0 1 2 3"},
	} {
		got := h.rollouts(agl.QueryRolloutsParams{Paging: tc.paging})
		equal(h, "rollouts by "+tc.paging.SortBy, inputs(got.Items), tc.want)
		equal(h, "total", got.Total, 4)
		equal(h, "offset", got.Offset, tc.paging.Offset)
	}
}

func testAttemptQuery(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "b")
	h.startAttempt(r.RolloutID, "c")
	h.startAttempt(r.RolloutID, "a")
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	numbers := func(p agl.Paging) string {
		got := must(h.Store.QueryAttempts(h.ctx, agl.QueryAttemptsParams{RolloutID: r.RolloutID, Paging: p}))(h)
		equal(h, "total", got.Total, 3)
		return ids(got.Items, func(a *agl.Attempt) string { return strconv.Itoa(a.SequenceID) })
	}
	equal(h, "default", numbers(agl.Paging{}), "1 2 3")
	equal(h, "descending", numbers(agl.Paging{Order: agl.Descending}), "3 2 1")
	equal(h, "by worker", numbers(agl.Paging{SortBy: "worker_id"}), "3 1 2")
	equal(h, "by end", numbers(agl.Paging{SortBy: "end_time"}), "3 1 2")
	equal(h, "by status, descending", numbers(agl.Paging{SortBy: "status", Order: agl.Descending}), "3 1 2")
	equal(h, "page", numbers(agl.Paging{Limit: 1, Offset: 1}), "2")
	equal(h, "latest", h.get(r.RolloutID).Attempt.SequenceID, 3)
}

func testBadPaging(h *harness) {
	query := func(p agl.Paging) error {
		return errorOf(h.Store.QueryRollouts(h.ctx, agl.QueryRolloutsParams{Paging: p}))
	}
	h.wantError(query(agl.Paging{Limit: -2}), agl.ErrInvalid, "Limit must be greater than 0 or -1 for no limit")
	h.wantError(query(agl.Paging{Offset: -1}), agl.ErrInvalid, "Offset must be greater than or equal to 0")
	h.wantError(query(agl.Paging{SortBy: "attempt"}), agl.ErrInvalid,
		"Invalid sort_by: attempt, allowed fields are: rollout_id, start_time, end_time, mode, resources_id, status, reward")
	for _, field := range []string{"input", "config", "metadata"} {
		h.wantError(query(agl.Paging{SortBy: field}), agl.ErrInvalid, "")
	}
	h.wantError(query(agl.Paging{Order: "up"}), agl.ErrInvalid, "")
	h.wantError(errorOf(h.Store.QueryRollouts(h.ctx, agl.QueryRolloutsParams{Logic: "xor"})), agl.ErrInvalid, "")
	h.wantError(errorOf(h.Store.QueryRollouts(h.ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{"done"}})), agl.ErrInvalid, "")
	h.wantError(errorOf(h.Store.QueryWorkers(h.ctx, agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{"lazy"}})), agl.ErrInvalid, "")
}

func testStatistics(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	h.startAttempt(r.RolloutID, "v")
	other := h.enqueueOne()
	h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "a", 1), span(r.RolloutID, r.Attempt.AttemptID, "b", 2))
	u := must(h.Store.AddResources(h.ctx, agl.AddResourcesParams{}))(h)
	must(h.Store.UpdateResources(h.ctx, agl.UpdateResourcesParams{ResourcesID: u.ResourcesID}))(h)
	check := func(rollouts, attempts, spans int) {
		h.Helper()
		got := must(h.Store.Statistics(h.ctx))(h)
		equal(h, "rollouts", got.TotalRollouts, rollouts)
		equal(h, "attempts", got.TotalAttempts, attempts)
		equal(h, "spans", got.TotalSpans, spans)
		equal(h, "resources", got.TotalResources, 1)
		equal(h, "workers", got.TotalWorkers, 2)
		equal(h, "has a name", got.Name != "", true)
		if m := got.Memory; m != nil {
			equal(h, "holds bytes", m.TotalSpanBytes > 0, spans > 0)
			equal(h, "thresholds", m.SafeThresholdBytes < m.EvictionThresholdBytes, true)
		}
	}
	check(2, 2, 2)
	h.setStatus(r.RolloutID, agl.RolloutFailed)
	h.ok(h.Store.DeleteRollout(h.ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID}))
	check(1, 0, 0)
	h.dequeueOne("", other.RolloutID)
	check(1, 1, 0)
}
