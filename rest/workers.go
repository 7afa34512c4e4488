package rest

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

func (c *call) workerID() string { return c.request.PathValue("worker_id") }

type updateWorkerRequest struct{ agl.UpdateWorkerParams }

func (r *updateWorkerRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		if string(name) != "heartbeat_stats" {
			return dec.SkipValue()
		}
		if dec.PeekKind() == 'n' {
			return errNullField(string(name))
		}
		return read(dec).RawDict(&r.HeartbeatStats)
	})
}

func (s *Server) updateWorker(c *call) error {
	var req updateWorkerRequest
	if err := c.decode(&req, false); err != nil {
		return err
	}
	req.WorkerID = c.workerID()
	worker, err := s.store.UpdateWorker(c.ctx, req.UpdateWorkerParams)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, worker.AppendJSON(c.out))
}

func (s *Server) getWorker(c *call) error {
	found, err := s.store.GetWorker(c.ctx, agl.GetWorkerParams{WorkerID: c.workerID()})
	return sendFound(c, &found, err)
}

func (s *Server) queryWorkers(c *call) error  { return s.workerPage(c, false) }
func (s *Server) searchWorkers(c *call) error { return s.workerPage(c, true) }

func (s *Server) workerPage(c *call, search bool) error {
	var p agl.QueryWorkersParams
	f := newFilters("", map[string]*string{"worker_id_contains": &p.WorkerIDContains})
	f.lists = func(dec *jsontext.Decoder, name string) (bool, error) {
		if name != "status_in" {
			return false, nil
		}
		return true, readEnums(dec, &p.StatusIn, agl.WorkerStatuses())
	}
	f.queried = func(name string, values []string) (err error) {
		if name == "status_in" {
			p.StatusIn, err = queryEnums(name, values, agl.WorkerStatuses())
		}
		return err
	}
	if err := c.query(f, search); err != nil {
		return err
	}
	p.Paging, p.Logic = f.Paging, f.logic
	page, err := s.store.QueryWorkers(c.ctx, p)
	if err != nil {
		return err
	}
	return sendPage(c, page, appendItem)
}
