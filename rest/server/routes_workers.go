package server

import (
	"hash/maphash"
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
	if err := x.decode(wire.UpdateWorker(&p), bodyOptional); err != nil {
		return err
	}
	worker, err := s.store.UpdateWorker(x.context(), p)
	return x.answer(http.StatusOK, &worker, err)
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
	return (&listing[agl.Worker]{
		paging: &p.Paging,
		read:   func() (agl.Page[agl.Worker], error) { return s.store.QueryWorkers(x.context(), p) },
		one:    appendTo[agl.Worker],
		key:    func(h *maphash.Hash, it *agl.Worker) { _, _ = h.WriteString(it.WorkerID) },
	}).answer(x)
}
