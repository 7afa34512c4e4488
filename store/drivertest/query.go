package drivertest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func queryTests() map[string]func(*harness) {
	return map[string]func(*harness){
		"rollouts sorted":       testSortRollouts,
		"attempts sorted":       testSortAttempts,
		"workers sorted":        testSortWorkers,
		"resources sorted":      testSortResources,
		"spans sorted":          testSortSpans,
		"pages":                 testPages,
		"strings sort by bytes": testSortBytes,
		"many ids":              testManyIDs,
		"contains is literal":   testContains,
	}
}

// sorting is a field to sort by, and the ids that a query must return in ascending and in
// descending order. Ties have the same order in both.
type sorting struct{ by, ascending, descending string }

func (d *harness) checkSorts(what string, sorts []sorting, query func(agl.Paging) (ids []string, total int, err error)) {
	d.Helper()
	for _, s := range sorts {
		for order, want := range map[agl.SortOrder]string{"": s.ascending, agl.Ascending: s.ascending, agl.Descending: s.descending} {
			all := strings.Fields(want)
			for _, p := range []agl.Paging{
				{Limit: -1}, {Limit: 2}, {Limit: 2, Offset: 1}, {Limit: 100, Offset: len(all) - 1}, {Limit: -1, Offset: 1},
				{Limit: 1, Offset: len(all)}, {Limit: -1, Offset: len(all) + 5}, {Limit: 3, Offset: math.MaxInt},
			} {
				p.SortBy, p.Order = s.by, order
				got, total, err := query(p)
				if err != nil {
					d.Fatalf("%s by %q: %v", what, s.by, err)
				}
				from := min(p.Offset, len(all))
				to := len(all)
				if p.Limit > 0 {
					to = min(from+p.Limit, to)
				}
				if fmt.Sprint(got) != fmt.Sprint(all[from:to]) || total != len(all) {
					d.Errorf("%s by %q %s, limit %d, offset %d: got %v of %d, want %v of %d",
						what, s.by, order, p.Limit, p.Offset, got, total, all[from:to], len(all))
				}
			}
		}
	}
}

func pageIDs[T any](page agl.Page[T], err error, id func(*T) string) ([]string, int, error) {
	var out []string
	for i := range page.Items {
		out = append(out, id(&page.Items[i]))
	}
	return out, page.Total, err
}

func (d *harness) rolloutIDs(p agl.QueryRolloutsParams) ([]string, int, error) {
	page, err := d.QueryRollouts(d.ctx, p)
	return pageIDs(page, err, func(r *agl.AttemptedRollout) string { return r.RolloutID })
}

func (d *harness) workerIDs(p agl.QueryWorkersParams) ([]string, int, error) {
	page, err := d.QueryWorkers(d.ctx, p)
	return pageIDs(page, err, func(w *agl.Worker) string { return w.WorkerID })
}

func (d *harness) resourcesIDs(p agl.QueryResourcesParams) ([]string, int, error) {
	page, err := d.QueryResources(d.ctx, p)
	return pageIDs(page, err, func(u *agl.ResourcesUpdate) string { return u.ResourcesID })
}

func (d *harness) spanIDs(p agl.QuerySpansParams) ([]string, int, error) {
	page, err := d.QuerySpans(d.ctx, p)
	return pageIDs(page, err, func(s *driver.StoredSpan) string { return strings.Trim(string(s.Payload), `"`) })
}

// wantIDs returns a function that checks the ids of a query that has no limit.
func (d *harness) wantIDs(what any, want string) func(got []string, total int, err error) {
	return func(got []string, total int, err error) {
		d.Helper()
		if err != nil || fmt.Sprint(got) != want || total != len(got) {
			d.Errorf("%+v: got %v of %d, error %v, want %s", what, got, total, err, want)
		}
	}
}

func at(t agl.Timestamp) agl.Null[agl.Timestamp] { return agl.Some(t) }

func testSortRollouts(d *harness) {
	c := created(rollout("d", agl.RolloutFailed), rollout("b", agl.RolloutQueuing), rollout("a", agl.RolloutFailed), rollout("c", agl.RolloutRunning))
	set := func(i int, start agl.Timestamp, end agl.Null[agl.Timestamp], mode agl.Mode, resources agl.Null[string]) {
		r := c[i].Rollout
		r.StartTime, r.EndTime, r.Mode, r.ResourcesID = start, end, mode, resources
	}
	set(0, 3, at(9), agl.ModeVal, agl.Some("x"))
	set(1, 1, agl.Null[agl.Timestamp]{}, agl.ModeNone, agl.Null[string]{})
	set(2, 3, at(8), agl.ModeTrain, agl.Some(""))
	set(3, 2, agl.Null[agl.Timestamp]{}, agl.ModeVal, agl.Some("w"))
	d.apply(driver.Changes{Rollouts: c})
	d.checkSorts("rollouts", []sorting{
		{"", "d b a c", "d b a c"},
		{"rollout_id", "a b c d", "d c b a"},
		{"start_time", "b c d a", "d a c b"},
		{"end_time", "a d b c", "b c d a"},
		{"mode", "b a d c", "d c a b"},
		{"resources_id", "b a c d", "d c b a"},
		{"status", "d a b c", "c b d a"},
	}, func(p agl.Paging) ([]string, int, error) { return d.rolloutIDs(agl.QueryRolloutsParams{Paging: p}) })
}

func testSortAttempts(d *harness) {
	one, two, three := attempt("r", 1, agl.AttemptFailed, "w"), attempt("r", 2, agl.AttemptRunning, ""), attempt("r", 3, agl.AttemptFailed, "v")
	one.AttemptID, one.StartTime, one.EndTime = "y", 5, at(9)
	two.AttemptID, two.StartTime, two.LastHeartbeatTime = "z", 4, at(7)
	three.AttemptID, three.StartTime, three.EndTime = "x", 5, at(9)
	d.apply(driver.Changes{
		Rollouts: created(rollout("r", agl.RolloutRunning), rollout("other", agl.RolloutRunning)),
		Attempts: begun(one, attempt("other", 1, agl.AttemptRunning, ""), two, three),
	})
	d.checkSorts("attempts", []sorting{
		{"", "y z x", "x z y"},
		{"sequence_id", "y z x", "x z y"},
		{"attempt_id", "x y z", "z y x"},
		{"rollout_id", "y z x", "y z x"},
		{"start_time", "z y x", "y x z"},
		{"end_time", "y x z", "z y x"},
		{"status", "y x z", "z y x"},
		{"worker_id", "z x y", "y x z"},
		{"last_heartbeat_time", "z y x", "y x z"},
	}, func(p agl.Paging) ([]string, int, error) {
		page, err := d.QueryAttempts(d.ctx, agl.QueryAttemptsParams{RolloutID: "r", Paging: p})
		return pageIDs(page, err, func(a *agl.Attempt) string { return a.AttemptID })
	})
}

func testSortWorkers(d *harness) {
	d.apply(driver.Changes{Workers: []*agl.Worker{
		{WorkerID: "c", Status: agl.WorkerIdle, LastHeartbeatTime: at(3), LastIdleTime: at(2)},
		{WorkerID: "a", Status: agl.WorkerBusy, LastDequeueTime: at(5), CurrentRolloutID: agl.Some("r2"), CurrentAttemptID: agl.Some("a1")},
		{WorkerID: "b", Status: agl.WorkerIdle, LastHeartbeatTime: at(3), LastBusyTime: at(-1), CurrentRolloutID: agl.Some("r1"), CurrentAttemptID: agl.Some("a2")},
	}})
	d.checkSorts("workers", []sorting{
		{"", "c a b", "c a b"},
		{"worker_id", "a b c", "c b a"},
		{"status", "a c b", "c b a"},
		{"last_heartbeat_time", "c b a", "a c b"},
		{"last_dequeue_time", "a c b", "c b a"},
		{"last_busy_time", "b c a", "c a b"},
		{"last_idle_time", "c a b", "a b c"},
		{"current_rollout_id", "c b a", "a b c"},
		{"current_attempt_id", "c a b", "b a c"},
	}, func(p agl.Paging) ([]string, int, error) { return d.workerIDs(agl.QueryWorkersParams{Paging: p}) })
}

func testSortResources(d *harness) {
	d.apply(driver.Changes{Resources: []*agl.ResourcesUpdate{
		{ResourcesID: "b", CreateTime: 1, UpdateTime: 9, Version: 2}, {ResourcesID: "c", CreateTime: 2, UpdateTime: 2, Version: 10},
		{ResourcesID: "a", CreateTime: 2, UpdateTime: 3, Version: 2},
	}})
	d.checkSorts("resources", []sorting{
		{"", "b c a", "b c a"},
		{"resources_id", "a b c", "c b a"},
		{"create_time", "b c a", "c a b"},
		{"update_time", "c a b", "b a c"},
		{"version", "b a c", "c b a"},
	}, func(p agl.Paging) ([]string, int, error) { return d.resourcesIDs(agl.QueryResourcesParams{Paging: p}) })
}

// spanWith returns a span with these columns; its payload is its id.
func spanWith(a *agl.Attempt, id string, sequence int64, start, end agl.Null[agl.Timestamp], trace, parent, name string) driver.SpanRecord {
	return driver.SpanRecord{
		SpanKey:    driver.SpanKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: id},
		SequenceID: sequence, StartTime: start, EndTime: end, TraceID: trace, ParentID: parent, Name: name,
		Payload: jsontext.Value(`"` + id + `"`),
	}
}

func testSortSpans(d *harness) {
	one, two := attempt("r", 1, agl.AttemptFailed, ""), attempt("r", 2, agl.AttemptRunning, "")
	none := agl.Null[agl.Timestamp]{}
	d.apply(driver.Changes{
		Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(one, two),
		Spans: []driver.SpanRecord{
			spanWith(two, "d", 4, at(1), none, "t2", "", "n"),
			spanWith(one, "b", 2, none, at(5), "t1", "p", "N"),
			spanWith(one, "c", 10, at(1), at(5), "t1", "", "n"),
			spanWith(two, "a", 3, at(0), at(4), "t2", "o", "m"),
		},
	})
	d.checkSorts("spans", []sorting{
		{"", "b a d c", "b a d c"},
		{"sequence_id", "b a d c", "c d a b"},
		{"rollout_id", "d b c a", "d b c a"},
		{"attempt_id", "b c d a", "d a b c"},
		{"trace_id", "b c d a", "d a b c"},
		{"span_id", "a b c d", "d c b a"},
		{"parent_id", "d c a b", "b a d c"},
		{"name", "b a d c", "d c a b"},
		{"start_time", "a d c b", "b d c a"},
		{"end_time", "a b c d", "d b c a"},
	}, func(p agl.Paging) ([]string, int, error) {
		return d.spanIDs(agl.QuerySpansParams{RolloutID: "r", Paging: p})
	})
}

func testPages(d *harness) {
	page := must(d.QueryRollouts(d.ctx, agl.QueryRolloutsParams{Paging: agl.Paging{Limit: 7, Offset: 3}}))(d)
	equal(d, "total", page.Total, 0)
	equal(d, "limit", page.Limit, 7)
	equal(d, "offset", page.Offset, 3)
	equal(d, "items are no nil", page.Items != nil, true)
	attempts := must(d.QueryAttempts(d.ctx, agl.QueryAttemptsParams{RolloutID: "nope", Paging: agl.Paging{Limit: -1}}))(d)
	if attempts.Total != 0 || attempts.Items == nil || attempts.Limit != -1 {
		d.Errorf("attempts of nobody %+v, want an empty page", attempts)
	}
	equal(d, "spans of nobody are no nil", d.allSpans("nope", 0) != nil, true)
}

func testSortBytes(d *harness) {
	ids := []string{"b", "B", "a b", "a", "ab", "é", "z", "_", "-", "\uff5e", "😀", "日", "10", "9"}
	var c driver.Changes
	for _, id := range ids {
		c.Rollouts = append(c.Rollouts, created(rollout(id, agl.RolloutFailed))...)
	}
	d.apply(c)
	slices.Sort(ids)
	d.wantIDs("by id", fmt.Sprint(ids))(d.rolloutIDs(agl.QueryRolloutsParams{Paging: agl.Paging{Limit: -1, SortBy: "rollout_id"}}))
}

func testManyIDs(d *harness) {
	d.apply(driver.Changes{Rollouts: created(rollout("ro-1", agl.RolloutFailed), rollout("ro-2", agl.RolloutQueuing))})
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("none-%d", i))
	}
	page := must(d.QueryRollouts(d.ctx, agl.QueryRolloutsParams{RolloutIDIn: append(many, "ro-2"), Paging: agl.Paging{Limit: -1}}))(d)
	equal(d, "total", page.Total, 1)
	found, err := d.Rollouts(d.ctx, append(many, "ro-2", "ro-1", "ro-2"))
	if err != nil || len(found) != 3 || found[1].RolloutID != "ro-1" {
		d.Errorf("got %d of many ids, error %v, want three in order", len(found), err)
	}
}

// testContains searches for texts that a pattern language would interpret.
func testContains(d *harness) {
	names := []string{"a%b", "aXb", "a_b", `a\b`, "a'b", `a"b`, "a*b", "a?b", "a[x]b", "É", "é", "日本語", "A%B", "^a$"}
	a := attempt("r", 1, agl.AttemptRunning, "")
	c := driver.Changes{Rollouts: created(rollout("r", agl.RolloutRunning)), Attempts: begun(a)}
	for i, name := range names {
		s := spanOf(a, name, int64(i))
		s.Name, s.TraceID, s.ParentID, s.Payload = name, name, name, jsontext.Value(fmt.Sprintf("%q", name))
		c.Spans = append(c.Spans, s)
		c.Rollouts = append(c.Rollouts, created(rollout(name, agl.RolloutFailed))...)
		c.Workers = append(c.Workers, &agl.Worker{WorkerID: name, Status: agl.WorkerIdle})
		c.Resources = append(c.Resources, &agl.ResourcesUpdate{ResourcesID: name, Version: 1})
	}
	d.apply(c)
	for _, part := range []string{"%", "_", `\`, "'", `"`, "*", "?", "[x]", "É", "é", "本", "a%", "A%", "a_", "^a$", "%%", "__", "x", "X"} {
		want := 0
		for _, name := range names {
			if strings.Contains(name, part) {
				want++
			}
		}
		check := func(what string) func(_ []string, total int, err error) {
			return func(_ []string, total int, err error) {
				d.Helper()
				if err != nil || total != want {
					d.Errorf("%s with %q: %d, error %v, want %d", what, part, total, err, want)
				}
			}
		}
		all := agl.Paging{Limit: -1}
		for what, p := range map[string]agl.QuerySpansParams{
			"name": {NameContains: part}, "trace id": {TraceIDContains: part}, "span id": {SpanIDContains: part}, "parent id": {ParentIDContains: part},
		} {
			p.RolloutID, p.Paging = "r", all
			check(what)(d.spanIDs(p))
		}
		check("rollouts")(d.rolloutIDs(agl.QueryRolloutsParams{RolloutIDContains: part, Paging: all}))
		check("workers")(d.workerIDs(agl.QueryWorkersParams{WorkerIDContains: part, Paging: all}))
		check("resources")(d.resourcesIDs(agl.QueryResourcesParams{ResourcesIDContains: part, Paging: all}))
	}
}
