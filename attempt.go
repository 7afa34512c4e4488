package agl

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// AttemptStatus is the state of an attempt.
type AttemptStatus string

// The statuses of an attempt. Preparing and running attempts are live.
const (
	AttemptPreparing    AttemptStatus = "preparing"
	AttemptRunning      AttemptStatus = "running"
	AttemptFailed       AttemptStatus = "failed"
	AttemptSucceeded    AttemptStatus = "succeeded"
	AttemptUnresponsive AttemptStatus = "unresponsive"
	AttemptTimeout      AttemptStatus = "timeout"
)

// AttemptStatuses returns every status.
func AttemptStatuses() []AttemptStatus {
	return []AttemptStatus{
		AttemptPreparing, AttemptRunning, AttemptFailed, AttemptSucceeded, AttemptUnresponsive, AttemptTimeout,
	}
}

// Live reports whether a runner is working on an attempt of this status.
func (s AttemptStatus) Live() bool { return s == AttemptPreparing || s == AttemptRunning }

// Valid reports whether s is one of [AttemptStatuses].
func (s AttemptStatus) Valid() bool { return slices.Contains(AttemptStatuses(), s) }

// Attempt is one execution of a rollout.
type Attempt struct {
	RolloutID         string
	AttemptID         string
	SequenceID        int // 1 for the first attempt of a rollout
	StartTime         Timestamp
	EndTime           Null[Timestamp]
	Status            AttemptStatus
	WorkerID          Null[string]
	LastHeartbeatTime Null[Timestamp]
	Metadata          jsontext.Value // an object; nil is null
}

func (a *Attempt) members(w *wireForm) *wireForm {
	w.string("rollout_id", &a.RolloutID)
	w.string("attempt_id", &a.AttemptID)
	integer(w, "sequence_id", &a.SequenceID)
	w.time("start_time", &a.StartTime)
	nullNumber(w, "end_time", &a.EndTime)
	enum(w, "status", &a.Status, AttemptStatuses)
	w.nullString("worker_id", &a.WorkerID)
	nullNumber(w, "last_heartbeat_time", &a.LastHeartbeatTime)
	w.nullDict("metadata", &a.Metadata)
	return w
}
