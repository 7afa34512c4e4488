package drivertest

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// A reward may be posted for an attempt on which nobody has worked yet.
func testReturned(d *harness) {
	first, second := attempt("r", 1, agl.AttemptFailed, ""), attempt("r", 2, agl.AttemptPreparing, "w")
	only := attempt("s", 1, agl.AttemptPreparing, "")
	d.apply(driver.Changes{
		Rollouts: created(rollout("r", agl.RolloutPreparing), rollout("s", agl.RolloutPreparing)), Attempts: begun(first, second, only),
		Spans: []driver.SpanRecord{spanOf(first, "x", 1), spanOf(second, "y", 2), spanOf(only, "z", 1)},
	})
	d.apply(driver.Changes{
		Rollouts: []driver.RolloutChange{
			{Rollout: rollout("r", agl.RolloutRequeuing), Front: true}, {Rollout: rollout("s", agl.RolloutQueuing), Front: true},
		},
		ReturnedAttempts: []driver.AttemptKey{{RolloutID: "r", AttemptID: "at-2"}, {RolloutID: "s", AttemptID: "at-1"}},
	})
	got := d.load(driver.LoadParams{Rollouts: []string{"r"}})
	equal(d, "latest", got.Rollouts[0].Latest, "at-1")
	equal(d, "live attempts", d.liveAttempts("w"), 0)
	d.wantCounts(2, 1, 1)
	equal(d, "spans of the attempt before", d.spanCount("r"), 1)
	equal(d, "spans of a rollout without an attempt", d.spanCount("s"), 0)
	for r := range d.records() {
		if r.Span != nil {
			equal(d, "span of an export", r.Span.SpanID, "x")
		}
	}
	d.apply(driver.Changes{Rollouts: changed(ended("r", 3), ended("s", 4))})
	oldest := must(d.Oldest(d.ctx, driver.RemovableSpans, 10))(d)
	equal(d, "rollouts with spans", oldest.Count, 1)
	equal(d, "bytes of all spans", oldest.SpanBytes, int64(len(spanOf(first, "x", 1).Payload)))
}
