package agl

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// AttemptStatus is where an attempt stands.
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

// Live reports whether an attempt of this status has a runner that works on it.
func (s AttemptStatus) Live() bool { return s == AttemptPreparing || s == AttemptRunning }

// Valid reports whether s is one of [AttemptStatuses].
func (s AttemptStatus) Valid() bool { return slices.Contains(AttemptStatuses(), s) }

// Attempt is one execution of a rollout.
type Attempt struct {
	RolloutID         string
	AttemptID         string
	SequenceID        int // 1 for a rollout's first attempt
	StartTime         Timestamp
	EndTime           Null[Timestamp]
	Status            AttemptStatus
	WorkerID          Null[string]
	LastHeartbeatTime Null[Timestamp]
	Metadata          jsontext.Value // an object, or nil for null
}

// AppendJSON appends the wire form.
func (a *Attempt) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("rollout_id", a.RolloutID)
	o.String("attempt_id", a.AttemptID)
	o.Int("sequence_id", int64(a.SequenceID))
	o.Float("start_time", float64(a.StartTime))
	nullTime(&o, "end_time", a.EndTime)
	o.String("status", string(a.Status))
	nullString(&o, "worker_id", a.WorkerID)
	nullTime(&o, "last_heartbeat_time", a.LastHeartbeatTime)
	o.Raw("metadata", a.Metadata)
	return o.End()
}

// MarshalJSON returns the wire form.
func (a Attempt) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (a *Attempt) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, a) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (a *Attempt) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*a = Attempt{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "rollout_id":
			return in.String(&a.RolloutID)
		case "attempt_id":
			return in.String(&a.AttemptID)
		case "sequence_id":
			return rawjson.Int(in, &a.SequenceID)
		case "start_time":
			return rawjson.Float(in, &a.StartTime)
		case "end_time":
			return a.EndTime.UnmarshalJSONFrom(dec)
		case "status":
			return rawjson.Enum(in, &a.Status, AttemptStatuses())
		case "worker_id":
			return a.WorkerID.UnmarshalJSONFrom(dec)
		case "last_heartbeat_time":
			return a.LastHeartbeatTime.UnmarshalJSONFrom(dec)
		case "metadata":
			return in.RawDictOrNull(&a.Metadata)
		default:
			return dec.SkipValue()
		}
	})
}
