// Package driver is the seam between the engine in package store and the databases that keep its data. A database
// implements [Driver] to serve a store, and [Database] for an operator's work on it. The drivers are packages
// store/memory, store/sqlite and store/postgres. Every driver must pass the suite of package store/drivertest and,
// behind the engine, that of package store/storetest, which tests filters.
//
// A write is one transaction: the engine calls [Driver.Begin], then [Tx.Load] for
// every row that its commands name, decides in memory, and calls [Tx.Apply] with
// all [Changes]. Queries go straight to the Driver.
//
// A driver must not know any rule of a rollout's lifecycle: it loads, stores and
// finds.
package driver

import (
	"context"
	"iter"
	"math"

	"github.com/agl-go/agl"
)

// Driver keeps the data of a store.
//
// A Driver is safe for concurrent use. Values behind pointers that it returns or receives are immutable from then on,
// for both sides; slices in params and results belong to the caller after the call. Errors are *agl.Error where a
// code applies: CodeUnavailable if the database is unreachable. The caller validates Paging: Limit is positive or -1
// for all, SortBy is empty or the wire name of a scalar field.
type Driver interface {
	Capabilities() Capabilities
	// Begin opens a transaction. An engine has one open at a time; the driver isolates
	// several engines on one database from each other.
	Begin(ctx context.Context) (Tx, error)

	// Rollouts returns those of the rollouts that exist, each with its latest attempt,
	// in the order of the ids, repeated ids included.
	Rollouts(ctx context.Context, ids []string) ([]agl.AttemptedRollout, error)
	// QueryRollouts finds rollouts, in the order of their creation unless sorted.
	QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error)
	// QueryAttempts finds a rollout's attempts, by sequence id unless sorted; an
	// unknown rollout has none.
	QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error)
	// Live returns every preparing or running rollout that has an attempt, with its
	// latest one.
	Live(ctx context.Context) ([]agl.AttemptedRollout, error)

	// Resources returns a bundle by its id; ErrNotFound.
	Resources(ctx context.Context, id string) (agl.ResourcesUpdate, error)
	// LatestResources returns the bundle that was written last; ErrNotFound.
	LatestResources(ctx context.Context) (agl.ResourcesUpdate, error)
	// QueryResources finds bundles, in the order of their creation unless sorted.
	QueryResources(ctx context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error)

	// Worker returns a worker by its id; ErrNotFound.
	Worker(ctx context.Context, id string) (agl.Worker, error)
	// QueryWorkers finds workers, in the order of their creation unless sorted.
	QueryWorkers(ctx context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error)

	// QuerySpans finds a rollout's spans and returns their payloads as stored. Without
	// a sort they are ordered by sequence id, start time, end time and insertion, null
	// times last; with one, ties are in the order of insertion. A rollout whose spans
	// were evicted is ErrEvicted, for ever.
	QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[StoredSpan], error)
	// SpanChains returns the spans of an attempt that have these ids, with their bases, the
	// bases of those, and so on, each once and in any order. Unknown ids are left out.
	SpanChains(ctx context.Context, attempt AttemptKey, ids []string) ([]StoredSpan, error)

	// QueryDocuments finds documents: those of a series in its order, others by kind and id. An empty Kind means
	// every kind. Limit is positive or -1.
	QueryDocuments(ctx context.Context, p agl.QueryDocumentsParams) (agl.Page[agl.Document], error)
	// Document returns a document; ErrNotFound.
	Document(ctx context.Context, key DocumentKey) (agl.Document, error)

	// Events returns up to limit events after the one with that id. Ids are in the
	// order of commits.
	Events(ctx context.Context, after string, limit int) (EventList, error)
	// Queue counts the queued rollouts, up to a limit, and the workers whose [LastContact] is not before heard.
	Queue(ctx context.Context, limit int, heard agl.Timestamp) (QueueCounts, error)
	// Oldest returns up to limit of the records that retention may remove, the oldest first, in one consistent view.
	Oldest(ctx context.Context, kind Removable, limit int) (OldestList, error)
	// Ping reports whether the driver can read and write: CodeUnavailable when its
	// database is unreachable, CodeExhausted when its storage is full.
	Ping(ctx context.Context) error
	// Close releases what the driver holds. No call is in flight or follows.
	Close(ctx context.Context) error

	Exporter
}

// Exporter is what an export reads: a Driver, or a Database that servers may be using.
type Exporter interface {
	// Export yields everything except the event log, in one consistent view: the resources in the order of creation;
	// the workers; the rollouts in the order of creation, each followed by its attempts and by its spans in the order
	// of insertion; the sequences; the documents by kind and id; the idempotency records; and one State at the end.
	// It stops after the first error.
	Export(ctx context.Context) iter.Seq2[Record, error]
	// Statistics counts what is stored; the engine sets the uptime.
	Statistics(ctx context.Context) (agl.Statistics, error)
}

// UnfinishedImport names the document that a database has from the first commit of an import to its last. Meanwhile
// nobody may serve the database, and no sequence ids are issued.
func UnfinishedImport() DocumentKey { return DocumentKey{Kind: "import", ID: "unfinished"} }

// ClockNote names the document in which a store notes its clock for the next process. It belongs to the machine, so
// exports leave it out.
func ClockNote() DocumentKey { return DocumentKey{Kind: "clock", ID: "machine"} }

// Capabilities says what a driver can do. The zero value is the least capable.
type Capabilities struct {
	// Notices receives changes that other processes have committed to the same database; nil if there are no other
	// processes.
	Notices <-chan Notice
}

// Notice says that another process has changed something.
type Notice struct {
	Resync   bool     // notices may have been lost: everything must be read again
	Queue    bool     // rollouts were queued, or the queue was opened or closed
	Rollouts []string // these finished, were deleted, or have other deadlines
}

// Tx is one transaction: Load and Claim read, locking the rows where the database
// has locks, and Apply writes everything in one commit.
type Tx interface {
	// Load appends what want names to got. The rows are locked until the transaction ends. Each rollout comes with
	// its latest attempt, each worker with its current attempt and that attempt's rollout, each attempt with its
	// rollout and its worker. Unknown ids are left out.
	Load(ctx context.Context, want *LoadParams, got *Loaded) error
	// Claim appends the next rollouts of the queue to got, up to limit, as Load would, and returns their ids. It sees
	// the queue as it was before the transaction; a second call continues after the first. It skips rows that another
	// process has locked.
	Claim(ctx context.Context, limit int, got *Loaded) (claimed []string, err error)
	// Apply commits the changes and ends the transaction.
	Apply(ctx context.Context, changes *Changes) error
	// Discard ends the transaction without a change. It does nothing after Apply.
	Discard()
}

// EventList is a part of the event log.
type EventList struct {
	Events []agl.Event
	// Last is the id of the newest event, or of the log's beginning.
	Last string
	// Reset says that events after the id asked for are missing: it is too old, or
	// unknown. Events is then empty.
	Reset bool
}

// QueueCounts has the number of queued rollouts, how long the head has been queued, and the numbers of workers.
type QueueCounts struct {
	Queued int
	// Since is the end of the latest attempt of the queue's head or, if that has not ended or there is none, the head's start time. A client
	// that has put an old rollout back makes it earlier than the wait began.
	Since      agl.Null[agl.Timestamp]
	Idle, Busy int // workers of these statuses; others are not counted
}

// Removable is a kind of records that retention may remove.
type Removable string

// The kinds, each with the time that its records are ordered by.
const (
	RemovableSpans     Removable = "spans"     // finished rollouts that hold spans, by end time
	RemovableRollouts  Removable = "rollouts"  // finished rollouts, by end time
	RemovableWorkers   Removable = "workers"   // workers that are not busy, by their last contact
	RemovableResources Removable = "resources" // bundles that are neither the latest nor named by an unfinished rollout, by update time
	RemovableSequences Removable = "sequences" // sequences of rollouts that do not exist, by their last use
)

// OldestList lists records of one kind that retention may remove.
type OldestList struct {
	Items []Oldest
	Count int // how many records there are of the kind
	// SpanBytes is the size of the payloads of all stored spans, including those of unfinished rollouts. Only
	// RemovableSpans has it.
	SpanBytes int64
}

// Oldest is one record that retention may remove.
type Oldest struct {
	ID        string // of the rollout, worker or bundle
	Time      agl.Timestamp
	SpanBytes int64 // of a rollout: the size of the payloads of its stored spans
}

// SortTime returns a time in the form in which it is compared: infinity for null, which sorts last.
func SortTime(t agl.Null[agl.Timestamp]) float64 {
	if !t.Valid {
		return math.Inf(1)
	}
	return float64(t.V)
}

// LastContact is the time by which workers are ordered for retention.
func LastContact(w *agl.Worker) agl.Timestamp {
	return max(w.LastHeartbeatTime.V, w.LastDequeueTime.V, w.LastBusyTime.V, w.LastIdleTime.V)
}
