package drivertest

import (
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func testQueueCounts(d *harness) {
	counts := func(limit int) driver.QueueCounts {
		d.Helper()
		return must(d.Queue(d.ctx, limit, 100))(d)
	}
	equal(d, "an empty store", counts(10), driver.QueueCounts{})

	next, second, third, taken := rollout("next", agl.RolloutQueuing), rollout("second", agl.RolloutQueuing), rollout("third", agl.RolloutQueuing), rollout("taken", agl.RolloutPreparing)
	next.StartTime = 7
	d.apply(driver.Changes{Rollouts: created(next, second, third, taken), Attempts: begun(attempt("taken", 1, agl.AttemptPreparing, ""))})
	var workers []*agl.Worker
	for i, w := range []agl.Worker{
		{Status: agl.WorkerIdle, LastHeartbeatTime: agl.Some(agl.Timestamp(100))},
		{Status: agl.WorkerIdle, LastHeartbeatTime: agl.Some(agl.Timestamp(50)), LastDequeueTime: agl.Some(agl.Timestamp(101))},
		{Status: agl.WorkerIdle, LastIdleTime: agl.Some(agl.Timestamp(99))}, // has left
		{Status: agl.WorkerBusy, LastBusyTime: agl.Some(agl.Timestamp(102))},
		{Status: agl.WorkerBusy, LastBusyTime: agl.Some(agl.Timestamp(3))}, // has died
		{Status: agl.WorkerUnknown, LastHeartbeatTime: agl.Some(agl.Timestamp(102))},
	} {
		w.WorkerID = fmt.Sprintf("w%d", i)
		workers = append(workers, &w)
	}
	d.apply(driver.Changes{Workers: workers})
	want := driver.QueueCounts{Queued: 3, Since: agl.Some(agl.Timestamp(7)), Idle: 2, Busy: 1}
	equal(d, "three wait", counts(10), want)
	want.Queued = 2
	equal(d, "counted up to a limit", counts(2), want)

	// A rollout that is queued again waits since the end of its attempt.
	ended := attempt("taken", 1, agl.AttemptFailed, "")
	ended.EndTime = agl.Some(agl.Timestamp(9))
	for _, r := range []**agl.Rollout{&next, &second, &third} {
		copied := **r
		copied.Status = agl.RolloutCancelled
		*r = &copied
	}
	d.apply(driver.Changes{Rollouts: changed(next, second, third, rollout("taken", agl.RolloutRequeuing)), Attempts: []driver.AttemptChange{{Attempt: ended}}})
	want.Queued, want.Since = 1, agl.Some(agl.Timestamp(9))
	equal(d, "one is queued again", counts(10), want)
}
