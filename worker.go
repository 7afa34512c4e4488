package agl

import "github.com/go-json-experiment/json/jsontext"

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
	dst = append(dst, `{"worker_id":`...)
	dst = appendString(dst, w.WorkerID)
	dst = append(dst, `,"status":`...)
	dst = appendString(dst, string(w.Status))
	dst = append(dst, `,"heartbeat_stats":`...)
	dst = appendRaw(dst, w.HeartbeatStats, "null")
	dst = append(dst, `,"last_heartbeat_time":`...)
	dst = appendNullFloat(dst, w.LastHeartbeatTime)
	dst = append(dst, `,"last_dequeue_time":`...)
	dst = appendNullFloat(dst, w.LastDequeueTime)
	dst = append(dst, `,"last_busy_time":`...)
	dst = appendNullFloat(dst, w.LastBusyTime)
	dst = append(dst, `,"last_idle_time":`...)
	dst = appendNullFloat(dst, w.LastIdleTime)
	dst = append(dst, `,"current_rollout_id":`...)
	dst = appendNullString(dst, w.CurrentRolloutID)
	dst = append(dst, `,"current_attempt_id":`...)
	dst = appendNullString(dst, w.CurrentAttemptID)
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (w *Worker) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, w) }

// UnmarshalJSONFrom reads the wire form.
func (w *Worker) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*w = Worker{}
	return decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "worker_id":
			return readString(dec, &w.WorkerID)
		case "status":
			return readEnum(dec, &w.Status, WorkerStatuses())
		case "heartbeat_stats":
			return readRawObject(dec, &w.HeartbeatStats, true)
		case "last_heartbeat_time":
			return readNullFloat(dec, &w.LastHeartbeatTime)
		case "last_dequeue_time":
			return readNullFloat(dec, &w.LastDequeueTime)
		case "last_busy_time":
			return readNullFloat(dec, &w.LastBusyTime)
		case "last_idle_time":
			return readNullFloat(dec, &w.LastIdleTime)
		case "current_rollout_id":
			return readNullString(dec, &w.CurrentRolloutID)
		case "current_attempt_id":
			return readNullString(dec, &w.CurrentAttemptID)
		default:
			return dec.SkipValue()
		}
	})
}
