package storetest

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func workerTests(a *area) {
	a.test("heartbeats", testHeartbeat)
	a.test("busy and idle with an attempt", testBusyIdle)
	a.test("polling an empty queue", testPolling)
	a.test("idle only through its own attempt", testIdleOwn)
	a.test("several rollouts at once", testBatchWorker)
	a.test("heartbeat refreshes the attempt", testHeartbeatRefreshes)
	a.test("one name for two processes", testSharedName)
	a.test("heartbeats of a worker that asks for work", testHeartbeatAfterAsking)
	a.test("queries", testWorkerQuery)
}

func (h *harness) heartbeat(id string, stats string) agl.Worker {
	h.Helper()
	p := agl.UpdateWorkerParams{WorkerID: id}
	if stats != "" {
		p.HeartbeatStats = jsontext.Value(stats)
	}
	return must(h.Store.UpdateWorker(h.ctx, p))(h)
}

func testHeartbeat(h *harness) {
	h.wantError(errorOf(h.Store.GetWorker(h.ctx, agl.GetWorkerParams{WorkerID: "w"})), agl.ErrNotFound, "")
	w := h.heartbeat("w", `{"cpu": 1.0}`)
	equal(h, "status", w.Status, agl.WorkerUnknown)
	equal(h, "heartbeat", w.LastHeartbeatTime.Valid, true)
	equal(h, "stats", string(w.HeartbeatStats), `{"cpu": 1.0}`)
	equal(h, "stats stay", string(h.heartbeat("w", "").HeartbeatStats), `{"cpu": 1.0}`)
	equal(h, "stats replaced", string(h.heartbeat("w", `{}`).HeartbeatStats), `{}`)
	for _, bad := range []string{`null`, `[1]`, `1`} {
		h.wantError(errorOf(h.Store.UpdateWorker(h.ctx, agl.UpdateWorkerParams{WorkerID: "w", HeartbeatStats: jsontext.Value(bad)})), agl.ErrInvalid, "")
	}
	equal(h, "stats kept", string(h.worker("w").HeartbeatStats), `{}`)
	equal(h, "dequeue time", h.worker("w").LastDequeueTime.Valid, false)
}

func testBusyIdle(h *harness) {
	r := h.enqueueOne()
	claimed := h.dequeueOne("w", r.RolloutID)
	w := h.worker("w")
	equal(h, "status", w.Status, agl.WorkerBusy)
	equal(h, "rollout", w.CurrentRolloutID, agl.Some(r.RolloutID))
	equal(h, "attempt", w.CurrentAttemptID, agl.Some(claimed.Attempt.AttemptID))
	equal(h, "dequeue time", w.LastDequeueTime.Valid, true)
	equal(h, "busy time", w.LastBusyTime.Valid, true)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	w = h.worker("w")
	equal(h, "status", w.Status, agl.WorkerIdle)
	equal(h, "rollout", w.CurrentRolloutID.Valid, false)
	equal(h, "attempt", w.CurrentAttemptID.Valid, false)
	equal(h, "idle time", w.LastIdleTime.Valid, true)
}

func testPolling(h *harness) {
	h.dequeue(1, "w")
	w := h.worker("w")
	equal(h, "status", w.Status, agl.WorkerIdle)
	equal(h, "dequeue time", w.LastDequeueTime.Valid, true)
	if h.Advance != nil {
		h.Advance(second)
		h.dequeue(1, "w")
		again := h.worker("w")
		equal(h, "idle time", again.LastIdleTime, w.LastIdleTime)
		equal(h, "dequeue time moved", again.LastDequeueTime.V > w.LastDequeueTime.V, true)
	}
	// A busy worker stays busy even if somebody polls with its id.
	r := h.start(config(agl.RolloutConfig{}), "w")
	h.dequeue(1, "w")
	w = h.worker("w")
	equal(h, "status", w.Status, agl.WorkerBusy)
	equal(h, "attempt", w.CurrentAttemptID, agl.Some(r.Attempt.AttemptID))
}

func testIdleOwn(h *harness) {
	old := h.start(config(agl.RolloutConfig{}), "w")
	current := h.start(config(agl.RolloutConfig{}), "w")
	h.report(old.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	w := h.worker("w")
	equal(h, "status", w.Status, agl.WorkerBusy)
	equal(h, "attempt", w.CurrentAttemptID, agl.Some(current.Attempt.AttemptID))
	h.report(current.RolloutID, agl.LatestAttempt, agl.AttemptUnresponsive)
	equal(h, "status", h.worker("w").Status, agl.WorkerUnknown)
}

func testBatchWorker(h *harness) {
	h.enqueue(numbered(3)...)
	claims := h.dequeue(3, "w")
	equal(h, "attempt", h.worker("w").CurrentAttemptID, agl.Some(claims[2].Attempt.AttemptID))
}

func testHeartbeatRefreshes(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "w")
	equal(h, "before", h.get(r.RolloutID).Attempt.LastHeartbeatTime.Valid, false)
	h.heartbeat("w", "")
	got := h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	equal(h, "after", got.Attempt.LastHeartbeatTime.Valid, true)
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	before := h.get(r.RolloutID).Attempt.LastHeartbeatTime
	h.tick()
	h.heartbeat("w", "")
	equal(h, "of a finished one", h.get(r.RolloutID).Attempt.LastHeartbeatTime, before)
}

func testSharedName(h *harness) {
	a := h.start(config(agl.RolloutConfig{}), "Worker-0")
	b := h.start(config(agl.RolloutConfig{}), "Worker-0")
	h.heartbeat("Worker-0", "")
	equal(h, "first", h.get(a.RolloutID).Attempt.LastHeartbeatTime.Valid, false)
	equal(h, "second", h.get(b.RolloutID).Attempt.LastHeartbeatTime.Valid, false)
	h.report(a.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	h.heartbeat("Worker-0", "")
	equal(h, "alone", h.get(b.RolloutID).Attempt.LastHeartbeatTime.Valid, true)
}

// A runner that died must not be kept alive by an idle one of its name.
func testHeartbeatAfterAsking(h *harness) {
	r := h.enqueueOne()
	h.dequeueOne("Worker-0", r.RolloutID)
	h.tick()
	h.dequeue(1, "Worker-0")
	h.heartbeat("Worker-0", "")
	if h.Advance != nil { // order needs a clock that moves
		equal(h, "asked", h.get(r.RolloutID).Attempt.LastHeartbeatTime.Valid, false)
	}
	h.report(r.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	next := h.start(config(agl.RolloutConfig{}), "Worker-0")
	h.heartbeat("Worker-0", "")
	equal(h, "the next one", h.get(next.RolloutID).Attempt.LastHeartbeatTime.Valid, true)
}

func testWorkerQuery(h *harness) {
	h.heartbeat("wx", "")
	h.start(config(agl.RolloutConfig{}), "wb")
	h.dequeue(1, "ia")
	idle := []agl.WorkerStatus{agl.WorkerIdle}
	for _, tc := range []struct {
		p    agl.QueryWorkersParams
		want string
	}{
		{agl.QueryWorkersParams{}, "wx wb ia"},
		{agl.QueryWorkersParams{Logic: agl.FilterOr}, "wx wb ia"},
		{agl.QueryWorkersParams{StatusIn: idle}, "ia"},
		{agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{}}, "-"},
		{agl.QueryWorkersParams{WorkerIDContains: "w"}, "wx wb"},
		{agl.QueryWorkersParams{WorkerIDContains: "b", StatusIn: idle, Logic: agl.FilterOr}, "wb ia"},
		{agl.QueryWorkersParams{WorkerIDContains: "b", StatusIn: idle}, "-"},
		{agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "worker_id"}}, "ia wb wx"},
		{agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "status"}}, "wb ia wx"},
		{agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "last_busy_time"}}, "wb wx ia"},
		{agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "current_rollout_id"}}, "wx ia wb"},
		{agl.QueryWorkersParams{Paging: agl.Paging{Limit: 1, Offset: 2}}, "ia"},
	} {
		got := must(h.Store.QueryWorkers(h.ctx, tc.p))(h)
		equal(h, "workers", ids(got.Items, func(w *agl.Worker) string { return w.WorkerID }), tc.want)
	}
}
