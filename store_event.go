package agl

import "time"

// EventKind says what changed in an [Event].
type EventKind string

// The kinds of events. EventReset means that the events since the requested id are
// no longer available: the reader must read the whole state again.
const (
	EventRollout   EventKind = "rollout"
	EventAttempt   EventKind = "attempt"
	EventResources EventKind = "resources"
	EventWorker    EventKind = "worker"
	EventQueue     EventKind = "queue"
	EventDocument  EventKind = "document"
	EventSpans     EventKind = "spans"    // spans came to an attempt whose rollout had finished
	EventTraining  EventKind = "training" // what a learner has computed came to one: spans named SpanTraining, which collectors need not read
	EventReset     EventKind = "reset"
)

// Event is one change in the store. It has ids and a status, and no payload. An input, a config or metadata that changes
// alone is none: who waits for events waits for statuses, and must not take a rollout for one that has ended again.
type Event struct {
	ID          string // opaque; EventsParams.Since resumes after it
	Kind        EventKind
	RolloutID   string
	AttemptID   string
	ResourcesID string
	WorkerID    string
	Document    string // the kind and id of a document, with a slash between them
	// Status is the new status of the rollout, attempt or worker, or "deleted" for a rollout that is gone; "written" or
	// "deleted" for a document; the number of new spans; "open" or "closed" for the queue.
	Status string
}

// EventsParams are the arguments of Store.Events.
type EventsParams struct {
	// Since is the id of the last event seen. Empty starts with the next event: after this call, or, with a store
	// behind a network, after the first read has opened the stream.
	Since string
	// Every is how long the store may wait between events, and lets it yield one EventReset in place of many events.
	// It is for readers that only want to know when to look again. 0 yields every event at once. A store may ignore
	// it.
	Every time.Duration
}

func (e *Event) members(w *wireForm) *wireForm {
	w.string("id", &e.ID)
	w.string("kind", (*string)(&e.Kind))
	w.nonEmpty("rollout_id", &e.RolloutID)
	w.nonEmpty("attempt_id", &e.AttemptID)
	w.nonEmpty("resources_id", &e.ResourcesID)
	w.nonEmpty("worker_id", &e.WorkerID)
	w.nonEmpty("document", &e.Document)
	w.nonEmpty("status", &e.Status)
	return w
}
