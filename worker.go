package agl

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// WorkerStatus says what a worker does.
type WorkerStatus string

// The statuses of a worker.
const (
	WorkerIdle    WorkerStatus = "idle"
	WorkerBusy    WorkerStatus = "busy"
	WorkerUnknown WorkerStatus = "unknown" // never dequeued, or its attempt ran out of time
)

// WorkerStatuses returns every status.
func WorkerStatuses() []WorkerStatus { return []WorkerStatus{WorkerIdle, WorkerBusy, WorkerUnknown} }

// Worker is one runner loop as the store knows it.
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

// AppendJSON appends the wire form.
func (w *Worker) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("worker_id", w.WorkerID)
	o.String("status", string(w.Status))
	o.Raw("heartbeat_stats", w.HeartbeatStats)
	nullTime(&o, "last_heartbeat_time", w.LastHeartbeatTime)
	nullTime(&o, "last_dequeue_time", w.LastDequeueTime)
	nullTime(&o, "last_busy_time", w.LastBusyTime)
	nullTime(&o, "last_idle_time", w.LastIdleTime)
	nullString(&o, "current_rollout_id", w.CurrentRolloutID)
	nullString(&o, "current_attempt_id", w.CurrentAttemptID)
	return o.End()
}

// MarshalJSON returns the wire form.
func (w Worker) MarshalJSON() ([]byte, error) { return w.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (w *Worker) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, w) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (w *Worker) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*w = Worker{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "worker_id":
			return in.String(&w.WorkerID)
		case "status":
			return rawjson.Enum(in, &w.Status, WorkerStatuses())
		case "heartbeat_stats":
			return in.RawDictOrNull(&w.HeartbeatStats)
		case "last_heartbeat_time":
			return w.LastHeartbeatTime.UnmarshalJSONFrom(dec)
		case "last_dequeue_time":
			return w.LastDequeueTime.UnmarshalJSONFrom(dec)
		case "last_busy_time":
			return w.LastBusyTime.UnmarshalJSONFrom(dec)
		case "last_idle_time":
			return w.LastIdleTime.UnmarshalJSONFrom(dec)
		case "current_rollout_id":
			return w.CurrentRolloutID.UnmarshalJSONFrom(dec)
		case "current_attempt_id":
			return w.CurrentAttemptID.UnmarshalJSONFrom(dec)
		default:
			return dec.SkipValue()
		}
	})
}
