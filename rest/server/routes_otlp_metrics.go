package server

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/otlp"
)

// exportMetrics receives metrics of runs by OTLP over HTTP.
func (t *otlpReceiver) exportMetrics(x *exchange) error {
	encoding, err := t.open(x)
	if err != nil {
		return t.fail(x, encoding, err)
	}
	if t.runs == nil {
		return t.fail(x, encoding, runs{}.missing())
	}
	batch, err := otlp.DecodeMetrics(x.body, encoding)
	if err == nil {
		err = t.addMetrics(x, &batch)
	}
	if err != nil {
		return t.fail(x, encoding, err)
	}
	if batch.Rejected > 0 {
		x.log.Warn("OTLP metrics rejected", "rejected", batch.Rejected, "accepted", len(batch.Points), "reason", batch.Reason)
	}
	return t.send(x, http.StatusOK, encoding, otlp.AppendMetricsResponse(x.out, encoding, batch.Rejected, batch.Reason))
}

// runPoints are the points of a request for one run.
type runPoints struct {
	service string
	steps   map[agl.Null[int]]*stepPoints
}

type stepPoints struct {
	values map[string]float64
	points int
}

// addMetrics stores the points of a request. It rejects those of a run that the store refuses, and keeps the others.
func (t *otlpReceiver) addMetrics(x *exchange, batch *otlp.Metrics) error {
	runs := map[string]*runPoints{}
	for _, p := range batch.Points {
		run := runs[p.RunID]
		if run == nil {
			run = &runPoints{service: p.Service, steps: map[agl.Null[int]]*stepPoints{}}
			runs[p.RunID] = run
		}
		run.add(p.Step, p.Values)
	}
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		if err := t.addRun(x, batch, id, runs[id]); err != nil {
			return err
		}
	}
	return nil
}

func (r *runPoints) add(step agl.Null[int], values []otlp.Value) {
	at := r.steps[step]
	if at == nil {
		at = &stepPoints{values: map[string]float64{}}
		r.steps[step] = at
	}
	at.points++
	for _, v := range values {
		at.values[v.Name] = v.Value
	}
}

// addRun stores the points of one run. The first points of an unknown run start it.
func (t *otlpReceiver) addRun(x *exchange, batch *otlp.Metrics, id string, given *runPoints) error {
	run, err := t.runs.GetRun(x.context(), id)
	if errors.Is(err, agl.ErrNotFound) {
		run, err = t.runs.StartRun(x.context(), agl.StartRunParams{RunID: id, Name: given.service})
	}
	if err != nil && !refused(err) {
		return err
	}
	points, metrics := given.byStep(run.Step.V)
	for len(metrics) > 0 {
		part := metrics[:min(len(metrics), agl.MaxRunSteps)]
		metrics = metrics[len(part):]
		if err == nil {
			_, err = t.runs.AddRunMetrics(x.context(), agl.AddRunMetricsParams{RunID: id, Metrics: part})
		}
		if err == nil {
			continue
		}
		if !refused(err) {
			return err
		}
		for _, m := range part {
			batch.Reject(points[m.Step], err.Error())
		}
	}
	return nil
}

// byStep returns the metrics by step, and the number of points in each. Points without a step belong to the newest
// one.
func (r *runPoints) byStep(newest int) (points map[int]int, metrics []agl.RunMetrics) {
	points = map[int]int{}
	values := map[int]map[string]float64{}
	for step, at := range r.steps {
		n := step.V
		if !step.Valid {
			n = newest
		}
		points[n] += at.points
		if values[n] == nil {
			values[n] = at.values
		} else {
			maps.Copy(values[n], at.values)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(values)) {
		metrics = append(metrics, agl.RunMetrics{Step: n, Values: values[n]})
	}
	return points, metrics
}
