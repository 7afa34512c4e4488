package agl

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
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
	// Reward is the final reward of the spans that have arrived, as package adapter reads it. It outlives the spans.
	Reward Null[AttemptReward]
}

// AttemptReward is the final reward of an attempt. A later reward replaces it if its priority is higher, or if the
// priorities are equal and the sequence id of its span is not lower.
type AttemptReward struct {
	Value      float64       // the primary dimension
	Priority   Null[float64] // null for the reward of a single call, which any reward of the whole attempt replaces
	SequenceID int64         // of the span that carries it
}

// Replaces reports whether r replaces old, the reward that the attempt has now.
func (r *AttemptReward) Replaces(old Null[AttemptReward]) bool {
	switch {
	case !old.Valid:
		return true
	case r.Priority.Valid != old.V.Priority.Valid:
		return r.Priority.Valid
	case r.Priority.V != old.V.Priority.V:
		return r.Priority.V > old.V.Priority.V
	}
	return r.SequenceID >= old.V.SequenceID
}

func (r *AttemptReward) members(w *wireForm) *wireForm {
	field(w, "value", &r.Value, rawjson.AppendFloat, rawjson.Float)
	nullNumber(w, "priority", &r.Priority)
	integer(w, "sequence_id", &r.SequenceID)
	return w
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
	if w.reading || a.Reward.Valid { // left out instead of null: version 0.3 of Agent-lightning does not know it
		field(w, "reward", &a.Reward,
			func(dst []byte, r Null[AttemptReward]) []byte { return r.V.AppendJSON(dst) },
			func(in rawjson.Reader, r *Null[AttemptReward]) error {
				*r = Null[AttemptReward]{}
				null, err := in.Null()
				if null || err != nil {
					return err
				}
				r.Valid = true
				return r.V.UnmarshalJSONFrom(in.Decoder)
			})
	}
	return w
}
