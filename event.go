package agl

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events. EventReset says that the events since the id asked for
// are gone: the reader must look at everything anew.
const (
	EventRollout   EventKind = "rollout"
	EventAttempt   EventKind = "attempt"
	EventResources EventKind = "resources"
	EventWorker    EventKind = "worker"
	EventQueue     EventKind = "queue"
	EventReset     EventKind = "reset"
)

// Event is one change in the store: ids and a status, no payload.
type Event struct {
	ID          string // opaque; resume after it with EventsParams.Since
	Kind        EventKind
	RolloutID   string
	AttemptID   string
	ResourcesID string
	WorkerID    string
	Status      string // of the rollout, attempt, worker, or "open" and "closed"; "deleted" for a rollout that is gone
}

// EventsParams are the arguments of Store.Events.
type EventsParams struct {
	Since string // the last event seen; empty streams from now on
}

// AppendJSON appends the wire form. Empty ids are left out.
func (e *Event) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("id", e.ID)
	o.String("kind", string(e.Kind))
	o.NonEmpty("rollout_id", e.RolloutID)
	o.NonEmpty("attempt_id", e.AttemptID)
	o.NonEmpty("resources_id", e.ResourcesID)
	o.NonEmpty("worker_id", e.WorkerID)
	o.NonEmpty("status", e.Status)
	return o.End()
}

// MarshalJSON returns the wire form.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (e *Event) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, e) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (e *Event) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*e = Event{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "id":
			return in.String(&e.ID)
		case "kind":
			return in.String((*string)(&e.Kind))
		case "rollout_id":
			return in.String(&e.RolloutID)
		case "attempt_id":
			return in.String(&e.AttemptID)
		case "resources_id":
			return in.String(&e.ResourcesID)
		case "worker_id":
			return in.String(&e.WorkerID)
		case "status":
			return in.String(&e.Status)
		default:
			return dec.SkipValue()
		}
	})
}
