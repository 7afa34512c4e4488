package driver

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// AttemptKey names an attempt. Exports contain it in its JSON form: see package archive.
type AttemptKey struct {
	RolloutID string `json:"rollout_id"`
	AttemptID string `json:"attempt_id"`
}

// SpanKey names a span.
type SpanKey struct{ RolloutID, AttemptID, SpanID string }

// DocumentKey names a document.
type DocumentKey struct{ Kind, ID string }

// LoadParams names what a transaction needs. Ids may repeat.
type LoadParams struct {
	Now      agl.Timestamp // idempotency records that have expired by then are left out
	Rollouts []string
	Attempts []AttemptKey
	// SpanAttempts are the attempts that spans are added to. They are loaded like Attempts, but need not come with
	// their workers, which spans do not change.
	SpanAttempts []AttemptKey
	Workers      []string
	Resources    []string
	Sequences    []string // rollouts, existing or not, whose sequence is needed
	Spans        []SpanKey
	Keys         []string // idempotency scopes
	Documents    []DocumentKey
	// ResourcesInUse names bundles for which Loaded.InUse says whether an unfinished rollout names
	// them.
	ResourcesInUse []string
}

// Loaded is what a transaction starts from.
type Loaded struct {
	Rollouts  []LoadedRollout
	Attempts  []*agl.Attempt
	Workers   []LoadedWorker
	Resources []*agl.ResourcesUpdate
	Sequences []Sequence // of the rollouts that have one
	Spans     []SpanKey  // those that exist
	Keys      []IdempotencyRecord
	Documents []*agl.Document
	InUse     []string // bundles of LoadParams.ResourcesInUse that an unfinished rollout names

	LatestResources agl.Null[string]
	QueueClosed     bool
	// SpanRoom is how many more bytes of payloads fit, after evicting everything that can be evicted; null means no
	// limit.
	SpanRoom agl.Null[int64]
}

// LoadedRollout is a rollout before the transaction.
type LoadedRollout struct {
	Rollout *agl.Rollout
	Latest  string // the latest attempt's id, "" when there is none
}

// LoadedWorker is a worker before the transaction. LiveAttempts is the number of live attempts, each the latest of
// its rollout, that carry the worker's id. If that is not 0, a worker that does not exist is included with a nil
// Worker.
type LoadedWorker struct {
	Worker       *agl.Worker
	WorkerID     string
	LiveAttempts int
}

// Sequence is the last sequence id that a rollout's spans were given.
type Sequence struct {
	RolloutID string
	Last      int64
}

// Changes is everything that a transaction writes. A rollout is in the queue exactly while its status is queuing or
// requeuing: one that gets such a status goes to the back, in the order of Rollouts, and leaves the queue when its
// status changes.
type Changes struct {
	Now              agl.Timestamp
	Rollouts         []RolloutChange
	Attempts         []AttemptChange
	ReturnedAttempts []AttemptKey // attempts of returned claims, to be removed with their spans
	Workers          []*agl.Worker
	Resources        []*agl.ResourcesUpdate
	LatestResources  agl.Null[string] // the id of the new latest bundle; null changes nothing
	Spans            []SpanRecord
	Sequences        []Sequence
	QueueClosed      agl.Null[bool]
	// Keys replace the records of their scopes. If another process has written a record that Load did not find, Apply
	// fails with ErrRetry, so that two servers never act on one key.
	Keys          []IdempotencyRecord
	ForgottenKeys []string
	// Documents are created or replaced. Their events are among Events.
	Documents []*agl.Document
	Events    []agl.Event // without ids: the driver issues them in this order

	// Removed after everything else was written.
	EvictedRollouts  []string // their spans; a query for them returns ErrEvicted from now on
	DeletedRollouts  []string // with attempts, spans and sequence
	DeletedWorkers   []string
	DeletedResources []string
	DeletedSequences []string // of rollouts that do not exist
	DeletedDocuments []DocumentKey
}

// RolloutChange is a rollout's new state.
type RolloutChange struct {
	Rollout *agl.Rollout
	New     bool
	// Front queues the rollout at the head instead of the back. Several keep their order.
	Front bool
}

// AttemptChange is an attempt's new state. A new attempt becomes the latest of its
// rollout.
type AttemptChange struct {
	Attempt *agl.Attempt
	New     bool
}

// SpanRecord is a span as drivers keep it: the columns that filters and sorts need,
// and the document.
type SpanRecord struct {
	SpanKey
	SequenceID int64
	TraceID    string
	ParentID   string // "" for none
	Name       string
	StartTime  agl.Null[agl.Timestamp]
	EndTime    agl.Null[agl.Timestamp]
	// Base is the id of the span, of the same attempt and stored before, that Payload is a
	// delta from; "" for none.
	Base    string
	Payload jsontext.Value // the wire form; with a Base, what package spandelta makes of it
}

// StoredSpan is a span as a query returns it.
type StoredSpan struct {
	SpanKey

	Base    string
	Payload jsontext.Value // as in SpanRecord
}

// NewSpanRecord returns the record of a span whose payload is its wire form. It copies the columns, so that a short
// id does not keep a large document in memory.
func NewSpanRecord(span *agl.Span, payload jsontext.Value) SpanRecord {
	return SpanRecord{
		SpanKey:    SpanKey{span.RolloutID, span.AttemptID, strings.Clone(span.SpanID)},
		SequenceID: span.SequenceID,
		TraceID:    strings.Clone(span.TraceID),
		ParentID:   strings.Clone(span.ParentID.V),
		Name:       strings.Clone(span.Name),
		StartTime:  span.StartTime,
		EndTime:    span.EndTime,
		Payload:    payload,
	}
}

// IdempotencyRecord records what a write with an idempotency key has created. Drivers keep it for
// Lifetimes.IdempotencyTTL.
type IdempotencyRecord struct {
	Scope       string // the operation, the ids of its path, and the key
	Fingerprint string // of the arguments; "" for a revoked key
	CreateTime  agl.Timestamp
	Made        []AttemptKey // rollouts, with an attempt where one was made
	ResourcesID string
}

// Record is one record of an export; exactly one of its fields is set.
type Record struct {
	Resources *agl.ResourcesUpdate
	Worker    *agl.Worker
	Rollout   *RolloutRecord
	Attempt   *agl.Attempt
	Span      *SpanRecord
	Sequence  *Sequence
	Document  *agl.Document
	Key       *IdempotencyRecord
	State     *State
}

// RolloutRecord is a rollout of an export.
type RolloutRecord struct {
	Rollout *agl.Rollout
	// Place is the place in the queue: of two rollouts the one with the smaller number
	// is claimed first. Null when it is not queued.
	Place   agl.Null[int64]
	Evicted bool
}

// State holds the singletons: the queue's state and the latest resources' id.
type State struct {
	QueueClosed     bool
	LatestResources agl.Null[string]
}
