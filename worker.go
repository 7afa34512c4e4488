package agl

import (
	"github.com/go-json-experiment/json/jsontext"
)

// WorkerStatus says what a worker is doing.
type WorkerStatus string

// The statuses of a worker.
const (
	WorkerIdle    WorkerStatus = "idle"
	WorkerBusy    WorkerStatus = "busy"
	WorkerUnknown WorkerStatus = "unknown" // it has never dequeued, or its attempt timed out
)

// WorkerStatuses returns every status.
func WorkerStatuses() []WorkerStatus { return []WorkerStatus{WorkerIdle, WorkerBusy, WorkerUnknown} }

// Worker is one loop of a runner, as the store knows it.
type Worker struct {
	WorkerID          string
	Status            WorkerStatus
	HeartbeatStats    jsontext.Value // an object, or nil for null
	LastHeartbeatTime Null[Timestamp]
	LastDequeueTime   Null[Timestamp]
	LastBusyTime      Null[Timestamp]
	LastIdleTime      Null[Timestamp]
	CurrentRolloutID  Null[string]
	CurrentAttemptID  Null[string]
}

func (k *Worker) members(w *wireForm) *wireForm {
	w.string("worker_id", &k.WorkerID)
	enum(w, "status", &k.Status, WorkerStatuses)
	w.nullDict("heartbeat_stats", &k.HeartbeatStats)
	nullNumber(w, "last_heartbeat_time", &k.LastHeartbeatTime)
	nullNumber(w, "last_dequeue_time", &k.LastDequeueTime)
	nullNumber(w, "last_busy_time", &k.LastBusyTime)
	nullNumber(w, "last_idle_time", &k.LastIdleTime)
	w.nullString("current_rollout_id", &k.CurrentRolloutID)
	w.nullString("current_attempt_id", &k.CurrentAttemptID)
	return w
}
