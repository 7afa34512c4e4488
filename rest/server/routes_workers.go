package server

import (
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Placeholder of routes.
const workerID = "worker_id"

// workers serves the workers and their heartbeats.
type workers struct{ store agl.Store }

func (s workers) update(x *exchange) error {
	p := agl.UpdateWorkerParams{WorkerID: x.request.PathValue(workerID)}
	return answerTo(x, http.StatusOK, x.decode(wire.UpdateWorker(&p), bodyOptional), &p, s.store.UpdateWorker)
}

func (s workers) get(x *exchange) error {
	found, err := s.store.GetWorker(x.context(), agl.GetWorkerParams{WorkerID: x.request.PathValue(workerID)})
	return x.answerFound(&found, err)
}

func (s workers) query(x *exchange) error {
	var p agl.QueryWorkersParams
	if err := x.query(wire.QueryWorkers(&p)); err != nil {
		return err
	}
	return answerList(x, &p.Paging, func() (agl.Page[agl.Worker], error) { return s.store.QueryWorkers(x.context(), p) },
		func(it *agl.Worker) string { return it.WorkerID })
}
