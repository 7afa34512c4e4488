package storetest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// runTests are skipped if the store does not keep runs.
func runTests(a *area) {
	a.test("started, changed and deleted", testRun)
	a.test("started again", testRunAgain)
	a.test("the last started first", testRunsInOrder)
	a.test("metrics of steps", testRunMetrics)
	a.test("repeated steps double nothing", testRunMetricsAgain)
	a.test("metrics from many writers", testRunMetricsTogether)
	a.test("one event a change", testRunEvents)
	a.test("refused", testRunsRefused)
	a.test("over a restart", testRunsRestart)
}

func (h *harness) runs() agl.Runs {
	h.Helper()
	runs := agl.RunsOf(h.Store)
	if runs == nil {
		h.Skip("the store keeps no runs")
	}
	return runs
}

func (h *harness) startRun(p agl.StartRunParams) agl.Run {
	h.Helper()
	return must(h.runs().StartRun(h.ctx, p))(h)
}

func (h *harness) addMetrics(runID string, metrics ...agl.RunMetrics) agl.Run {
	h.Helper()
	return must(h.runs().AddRunMetrics(h.ctx, agl.AddRunMetricsParams{RunID: runID, Metrics: metrics}))(h)
}

// series returns a run's metrics as text.
func (h *harness) series(p agl.QueryRunMetricsParams) string {
	h.Helper()
	page := must(h.runs().QueryRunMetrics(h.ctx, p))(h)
	parts := make([]string, len(page.Items))
	for i, m := range page.Items {
		parts[i] = fmt.Sprint(m.Step, m.Values)
		equal(h, "has a time", m.Time > 0, true)
	}
	return strings.Join(parts, " ")
}

func values(step int, name string, value float64) agl.RunMetrics {
	return agl.RunMetrics{Step: step, Values: map[string]float64{name: value}}
}

func testRun(h *harness) {
	metadata := []byte(`{"seed": 7.0}`)
	started := h.startRun(agl.StartRunParams{RunID: "ru.1:a-B_", Name: "first", Algorithm: "grpo", Metadata: metadata})
	copy(metadata, `xxxxxxxxxxxxx`) // the caller's memory
	equal(h, "status", started.Status, agl.RunRunning)
	got := must(h.runs().GetRun(h.ctx, "ru.1:a-B_"))(h)
	equal(h, "read", string(got.AppendJSON(nil)), string(started.AppendJSON(nil)))
	equal(h, "metadata", string(got.Metadata), `{"seed": 7.0}`)
	equal(h, "no step", got.Step.Valid || got.EndTime.Valid, false)
	failed, why := agl.RunFailed, "no GPU"
	got = must(h.runs().UpdateRun(h.ctx, agl.UpdateRunParams{RunID: started.RunID, Status: &failed, Error: &why}))(h)
	equal(h, "end", string(got.Status)+" "+got.Error+" "+got.Name+" "+strconv.FormatBool(got.EndTime.Valid), "failed no GPU first true")
	for step := range 1200 { // more than one write deletes
		if step%400 == 0 {
			var metrics []agl.RunMetrics
			for i := range 400 {
				metrics = append(metrics, values(step+i, "loss", 1))
			}
			h.addMetrics(started.RunID, metrics...)
		}
	}
	h.ok(h.runs().DeleteRun(h.ctx, started.RunID))
	h.wantError(errorOf(h.runs().GetRun(h.ctx, started.RunID)), agl.ErrNotFound, "run ru.1:a-B_ not found")
	h.wantError(errorOf(h.runs().QueryRunMetrics(h.ctx, agl.QueryRunMetricsParams{RunID: started.RunID})), agl.ErrNotFound, "")
	h.startRun(agl.StartRunParams{RunID: started.RunID})
	equal(h, "no metrics are left", h.series(agl.QueryRunMetricsParams{RunID: started.RunID}), "")
}

func testRunAgain(h *harness) {
	started := h.startRun(agl.StartRunParams{Name: "first", Algorithm: "apo"})
	equal(h, "an id is made", strings.HasPrefix(started.RunID, "ru-"), true)
	h.addMetrics(started.RunID, values(1, "loss", 0.5))
	interrupted, why := agl.RunInterrupted, "Ctrl-C"
	must(h.runs().UpdateRun(h.ctx, agl.UpdateRunParams{RunID: started.RunID, Status: &interrupted, Error: &why}))(h)
	again := h.startRun(agl.StartRunParams{RunID: started.RunID, Metadata: jsontext.Value(`{"a":1}`)})
	equal(h, "runs", fmt.Sprint(again.Status, again.Error, again.EndTime.Valid), "runningfalse")
	equal(h, "keeps", fmt.Sprint(again.Name, again.Algorithm, again.StartTime == started.StartTime, again.Step.V, again.Metrics), "firstapotrue 1 map[loss:0.5]")
	equal(h, "takes", string(again.Metadata), `{"a":1}`)
}

func testRunsInOrder(h *harness) {
	var want []string
	for i := range 5 {
		h.startRun(agl.StartRunParams{RunID: fmt.Sprint("r", (i*3)%5)})
		want = append([]string{fmt.Sprint("r", (i*3)%5)}, want...)
	}
	page := must(h.runs().QueryRuns(h.ctx, agl.QueryRunsParams{}))(h)
	equal(h, "all", ids(page.Items, func(r *agl.Run) string { return r.RunID }), strings.Join(want, " "))
	page = must(h.runs().QueryRuns(h.ctx, agl.QueryRunsParams{Limit: 2, Offset: 1}))(h)
	equal(h, "a page", ids(page.Items, func(r *agl.Run) string { return r.RunID }), strings.Join(want[1:3], " "))
	equal(h, "total", page.Total, 5)
}

func testRunMetrics(h *harness) {
	run := h.startRun(agl.StartRunParams{}).RunID
	got := h.addMetrics(run, values(10, "loss", 0.25), values(2, "reward \"mean\"/ü", 1))
	equal(h, "step", got.Step.V, 10)
	equal(h, "latest", fmt.Sprint(got.Metrics), `map[loss:0.25 reward "mean"/ü:1]`)
	h.addMetrics(run, values(10, "kl", -1e-9), values(3, "loss", 2))
	equal(h, "all", h.series(agl.QueryRunMetricsParams{RunID: run}), `2 map[reward "mean"/ü:1] 3 map[loss:2] 10 map[kl:-1e-09 loss:0.25]`)
	equal(h, "from", h.series(agl.QueryRunMetricsParams{RunID: run, From: agl.Some(3), To: agl.Some(9)}), `3 map[loss:2]`)
	equal(h, "a page", h.series(agl.QueryRunMetricsParams{RunID: run, Limit: 1, Offset: 1}), `3 map[loss:2]`)
	other := h.startRun(agl.StartRunParams{}).RunID
	equal(h, "of another run", h.series(agl.QueryRunMetricsParams{RunID: other}), "")
}

// A run that resumes from an earlier step writes some steps again.
func testRunMetricsAgain(h *harness) {
	run := h.startRun(agl.StartRunParams{}).RunID
	for _, step := range []int{1, 2, 3, 2, 3, 4} {
		h.addMetrics(run, values(step, "loss", float64(step)))
	}
	h.addMetrics(run, values(2, "loss", 9))
	equal(h, "series", h.series(agl.QueryRunMetricsParams{RunID: run}), "1 map[loss:1] 2 map[loss:9] 3 map[loss:3] 4 map[loss:4]")
}

func testRunMetricsTogether(h *harness) {
	run := h.startRun(agl.StartRunParams{}).RunID
	const writers = 6
	h.together(writers, func(i int) error {
		metrics := []agl.RunMetrics{values(1, fmt.Sprint("m", i), float64(i))}
		return errorOf(h.runs().AddRunMetrics(h.ctx, agl.AddRunMetricsParams{RunID: run, Metrics: metrics}))
	})
	equal(h, "nothing is lost", h.series(agl.QueryRunMetricsParams{RunID: run}), "1 map[m0:0 m1:1 m2:2 m3:3 m4:4 m5:5]")
	equal(h, "latest", len(must(h.runs().GetRun(h.ctx, run))(h).Metrics), writers)
}

func testRunEvents(h *harness) {
	h.runs()
	next, stop := h.follow(h.beginning())
	defer stop()
	run := h.startRun(agl.StartRunParams{RunID: "r1"}).RunID
	h.addMetrics(run, values(1, "loss", 1), values(2, "loss", 1))
	h.ok(h.runs().DeleteRun(h.ctx, run))
	for _, want := range []string{"run/r1 written", "run/r1 written", "run/r1 deleted"} {
		e := next()
		equal(h, "event", e.Document+" "+e.Status, want)
	}
}

func testRunsRefused(h *harness) {
	run := h.startRun(agl.StartRunParams{RunID: "r1"}).RunID
	for id, want := range map[string]string{
		"a/b": `run_id: got "a/b", must be 1 to 128 letters, digits and ._:-`,
		"..":  `run_id: got "..", must be 1 to 128 letters, digits and ._:-`,
	} {
		h.wantError(errorOf(h.runs().StartRun(h.ctx, agl.StartRunParams{RunID: id})), agl.ErrInvalid, want)
	}
	add := func(metrics ...agl.RunMetrics) error {
		return errorOf(h.runs().AddRunMetrics(h.ctx, agl.AddRunMetricsParams{RunID: run, Metrics: metrics}))
	}
	h.wantError(add(), agl.ErrInvalid, "metrics: got 0 steps, must be 1 to 500")
	h.wantError(add(values(-1, "a", 1)), agl.ErrInvalid, "step: got -1, must be at least 0")
	h.wantError(add(values(1, "a", 1), values(1, "b", 1)), agl.ErrInvalid, "step: got 1 twice, must differ in each of the metrics")
	h.wantError(add(values(1, "", 1)), agl.ErrInvalid, `values: the name "" must have 1 to 200 bytes of UTF-8`)
	h.wantError(add(values(1, "a", math.NaN())), agl.ErrInvalid, "")
	h.wantError(add(values(1, "a", math.Inf(1))), agl.ErrInvalid, "")
	many := agl.RunMetrics{Step: 1, Values: map[string]float64{}}
	for i := range agl.MaxRunMetricNames + 1 {
		many.Values[strconv.Itoa(i)] = 1
	}
	h.wantError(add(many), agl.ErrInvalid, "values: the run would have 2001 names, must be at most 2000")
	equal(h, "nothing is written", h.series(agl.QueryRunMetricsParams{RunID: run}), "")
	unknown := agl.RunStatus("done")
	h.wantError(errorOf(h.runs().UpdateRun(h.ctx, agl.UpdateRunParams{RunID: run, Status: &unknown})), agl.ErrInvalid, "")
	h.wantError(errorOf(h.runs().UpdateRun(h.ctx, agl.UpdateRunParams{RunID: "r2"})), agl.ErrNotFound, "run r2 not found")
	h.wantError(h.runs().DeleteRun(h.ctx, "r2"), agl.ErrNotFound, "run r2 not found")
}

func testRunsRestart(h *harness) {
	h.runs()
	run := h.startRun(agl.StartRunParams{}).RunID
	h.addMetrics(run, values(1, "loss", 0.5))
	h.restart()
	h.addMetrics(run, values(2, "loss", 0.25))
	equal(h, "series", h.series(agl.QueryRunMetricsParams{RunID: run}), "1 map[loss:0.5] 2 map[loss:0.25]")
}
