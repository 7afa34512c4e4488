package server

import (
	"hash/maphash"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Placeholder of routes.
const runID = "run_id"

// runs serves the runs of algorithms and their metrics.
type runs struct{ store agl.Runs }

func newRuns(store agl.Store) runs { return runs{agl.RunsOf(store)} }

// missing is the error of a server without runs, and nil otherwise.
func (s runs) missing() error {
	return unimplementedUnless(s.store != nil, "this server's store keeps no runs")
}

func (s runs) start(x *exchange) error {
	var p agl.StartRunParams
	return answerTo(x, http.StatusOK, x.decode(wire.StartRun(&p), bodyOptional), &p, s.store.StartRun)
}

func (s runs) update(x *exchange) error {
	p := agl.UpdateRunParams{RunID: x.request.PathValue(runID)}
	if err := x.decode(wire.UpdateRun(&p), bodyRequired); err != nil {
		return err
	}
	if p.Status == nil && p.Error == nil && p.Name == nil && p.Metadata == nil {
		x.audited = false // the heartbeat of a run, several a minute
	}
	run, err := s.store.UpdateRun(x.context(), p)
	return x.answer(http.StatusOK, &run, err)
}

func (s runs) addMetrics(x *exchange, metrics *wire.AddRunMetrics) error {
	run, err := s.store.AddRunMetrics(x.context(), agl.AddRunMetricsParams{RunID: x.request.PathValue(runID), Metrics: *metrics})
	return x.answer(http.StatusOK, &run, err)
}

func (s runs) get(x *exchange) error {
	run, err := s.store.GetRun(x.context(), x.request.PathValue(runID))
	return x.answer(http.StatusOK, &run, err)
}

func (s runs) query(x *exchange) error {
	var p agl.QueryRunsParams
	if err := x.query(wire.QueryRuns(&p)); err != nil {
		return err
	}
	paging := agl.Paging{Limit: p.Limit, Offset: p.Offset}
	return answerList(x, &paging, func() (agl.Page[agl.Run], error) {
		return s.store.QueryRuns(x.context(), agl.QueryRunsParams{Limit: paging.Limit, Offset: paging.Offset})
	}, func(it *agl.Run) string { return it.RunID })
}

func (s runs) queryMetrics(x *exchange) error {
	p := agl.QueryRunMetricsParams{RunID: x.request.PathValue(runID)}
	if err := x.query(wire.QueryRunMetrics(&p)); err != nil {
		return err
	}
	paging := agl.Paging{Limit: p.Limit, Offset: p.Offset}
	return (&listing[agl.RunMetrics]{
		paging: &paging,
		read: func() (agl.Page[agl.RunMetrics], error) {
			p.Limit, p.Offset = paging.Limit, paging.Offset
			return s.store.QueryRunMetrics(x.context(), p)
		},
		one: appendTo[agl.RunMetrics],
		key: func(h *maphash.Hash, m *agl.RunMetrics) { maphash.WriteComparable(h, m.Step) },
	}).answer(x)
}

func (s runs) delete(x *exchange) error {
	if err := s.store.DeleteRun(x.context(), x.request.PathValue(runID)); err != nil {
		return err
	}
	return x.answerText(http.StatusOK, "null")
}
