package store

import (
	"context"
	"strconv"

	"github.com/agl-go/agl"
)

type heartbeatCommand struct {
	header

	params agl.UpdateWorkerParams
	result agl.Worker
}

func (c *heartbeatCommand) load(want *LoadParams) {
	want.Workers = append(want.Workers, c.params.WorkerID)
}

func (c *heartbeatCommand) run(w *work) error {
	e := w.worker(c.params.WorkerID)
	w.setWorker(e, workerHeartbeat(*e.cur, c.params.HeartbeatStats, w.now))
	c.result = *e.cur
	if !e.cur.CurrentAttemptID.Valid {
		return nil
	}
	r := w.rollout(e.cur.CurrentRolloutID.V)
	if r == nil || r.latest == nil || !worksOn(e.cur, r.latest.cur) {
		return nil
	}
	// Several processes may call themselves by one name: then a heartbeat does
	// not say which of their attempts is alive. Nor does that of a worker that has
	// asked for work since it got this one: it is another process of that name, or
	// the same one started again.
	asked := e.cur.LastDequeueTime.V > e.cur.LastBusyTime.V
	if a := *r.latest.cur; a.Status.Live() && a.WorkerID.V == c.params.WorkerID && !asked && w.liveAttempts(e) == 1 {
		a.LastHeartbeatTime = agl.Some(w.now)
		w.setAttempt(r.latest, &a)
	}
	return nil
}

// UpdateWorker implements agl.Store.
func (s *Store) UpdateWorker(ctx context.Context, p agl.UpdateWorkerParams) (_ agl.Worker, err error) {
	end, err := s.begin(ctx, "UpdateWorker")
	defer func() { end(err) }()
	if err != nil {
		return agl.Worker{}, err
	}
	if err := checkIDs(givenID{"worker_id", p.WorkerID}); err != nil {
		return agl.Worker{}, err
	}
	if err := checkObject("heartbeat_stats", p.HeartbeatStats, false); err != nil {
		return agl.Worker{}, err
	}
	c := &heartbeatCommand{params: p}
	if err := s.submit(ctx, c); err != nil {
		return agl.Worker{}, err
	}
	return c.result, nil
}

// GetWorker implements agl.Store.
func (s *Store) GetWorker(ctx context.Context, p agl.GetWorkerParams) (_ agl.Worker, err error) {
	end, err := s.begin(ctx, "GetWorker")
	defer func() { end(err) }()
	if err != nil {
		return agl.Worker{}, err
	}
	return s.driver.Worker(ctx, p.WorkerID)
}

// QueryWorkers implements agl.Store.
func (s *Store) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (_ agl.Page[agl.Worker], err error) {
	end, err := s.begin(ctx, "QueryWorkers")
	defer func() { end(err) }()
	if err == nil {
		err = checkQuery(&p.Paging, p.Logic, sortWorkers)
	}
	for i, status := range p.StatusIn {
		if err == nil && status != agl.WorkerIdle && status != agl.WorkerBusy && status != agl.WorkerUnknown {
			err = agl.Errorf(agl.CodeInvalid, "status_in[%s]: got %q, must be one of %v", strconv.Itoa(i), status, agl.WorkerStatuses())
		}
	}
	if err != nil {
		return agl.Page[agl.Worker]{}, err
	}
	return s.driver.QueryWorkers(ctx, p)
}
