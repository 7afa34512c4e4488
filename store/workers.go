package store

import (
	"cmp"
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// heartbeat records a heartbeat of a worker, which is also one of the attempt that it works on.
func (w *unitOfWork) heartbeat(p *agl.UpdateWorkerParams) agl.Worker {
	e := w.worker(p.WorkerID)
	w.setWorker(e, workerHeartbeat(*e.cur, p.HeartbeatStats, w.now))
	if !e.cur.CurrentAttemptID.Valid {
		return *e.cur
	}
	r := w.rollout(e.cur.CurrentRolloutID.V)
	if r == nil || r.latest == nil || !worksOn(e.cur, r.latest.cur) {
		return *e.cur
	}
	// Several processes may use one worker id; then a heartbeat does not say which of their attempts is alive.
	// Neither does the heartbeat of a worker that has asked for work since it got this attempt: it is another process
	// with the same id, or a restarted one.
	asked := e.cur.LastDequeueTime.V > e.cur.LastBusyTime.V
	if a := *r.latest.cur; a.Status.Live() && a.WorkerID.V == p.WorkerID && !asked && w.liveAttempts(e) == 1 {
		a.LastHeartbeatTime = agl.Some(w.now)
		w.setAttempt(r.latest, &a)
	}
	return *e.cur
}

// busyWorkers returns the ids of the busy workers, by the rollout that each is busy with. When a rollout is deleted they are
// released, because nobody can report their attempts any longer.
func (s *Store) busyWorkers(ctx context.Context) (map[string][]string, error) {
	page, err := s.driver.QueryWorkers(ctx, agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{agl.WorkerBusy}, Paging: agl.Paging{Limit: -1}})
	busy := make(map[string][]string, len(page.Items))
	for i := range page.Items {
		rollout := page.Items[i].CurrentRolloutID.V
		busy[rollout] = append(busy[rollout], page.Items[i].WorkerID)
	}
	return busy, err
}

// UpdateWorker implements agl.Store.
func (s *Store) UpdateWorker(ctx context.Context, p agl.UpdateWorkerParams) (agl.Worker, error) {
	invalid := cmp.Or(checkIDs(givenText{"worker_id", p.WorkerID}), checkObject("heartbeat_stats", p.HeartbeatStats, false))
	wants := func(want *driver.LoadParams) { want.Workers = append(want.Workers, p.WorkerID) }
	return doWrite(ctx, s, "UpdateWorker", invalid, wants, func(w *unitOfWork) (agl.Worker, error) { return w.heartbeat(&p), nil })
}

// GetWorker implements agl.Store.
func (s *Store) GetWorker(ctx context.Context, p agl.GetWorkerParams) (agl.Worker, error) {
	return do(ctx, s, "GetWorker", nil, func() (agl.Worker, error) {
		return s.driver.Worker(ctx, p.WorkerID)
	})
}

// QueryWorkers implements agl.Store.
func (s *Store) QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	invalid := cmp.Or(checkQuery(&p.Paging, p.Logic, sortableWorkers), checkStatuses(p.StatusIn, agl.WorkerStatuses()))
	return do(ctx, s, "QueryWorkers", invalid, func() (agl.Page[agl.Worker], error) {
		return s.driver.QueryWorkers(ctx, p)
	})
}
