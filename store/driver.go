package store

import (
	"context"
	"errors"
	"iter"

	"github.com/agl-go/agl"
	"github.com/go-json-experiment/json/jsontext"
)

// Driver keeps what the engine decides. It knows no rule of a rollout's life:
// it loads, stores and finds.
//
// A Driver is safe for concurrent use. Values behind the pointers that it hands
// out or takes in are immutable from then on, for both sides; slices of params
// and results belong to the caller once the call is over. Errors are *agl.Error
// where a code applies: CodeUnavailable when the database is away. Paging comes
// checked: Limit is positive or -1 for all, SortBy is empty or the
// wire name of a scalar field.
type Driver interface {
	Capabilities() Capabilities
	// Begin opens a batch. The engine has one batch open at a time; several
	// engines over one database are kept apart by the driver.
	Begin(ctx context.Context) (Batch, error)

	// Rollouts returns those of the rollouts that exist, each with its latest
	// attempt, in the order of the ids, repeated ids included.
	Rollouts(ctx context.Context, ids []string) ([]agl.AttemptedRollout, error)
	// QueryRollouts finds rollouts, in the order of their creation unless sorted.
	QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error)
	// QueryAttempts finds a rollout's attempts, by sequence id unless sorted; an
	// unknown rollout has none.
	QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error)
	// Live returns every preparing or running rollout that has an attempt, with
	// its latest one.
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

	// QuerySpans finds a rollout's spans and returns their payloads as they were
	// stored. Without a sort they come by sequence id, start time, end time and
	// insertion, null times last; with one, ties come in the order of insertion.
	// A rollout whose spans had to make room is ErrEvicted, for good.
	QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error)

	// Events returns up to limit events after the one with that id. Ids follow
	// the order of commits.
	Events(ctx context.Context, after string, limit int) (EventList, error)
	// Statistics counts what is stored. The engine fills in the uptime.
	Statistics(ctx context.Context) (agl.Statistics, error)
	// Evictable returns the finished rollouts that hold spans, up to limit, those
	// that ended first first.
	Evictable(ctx context.Context, limit int) (EvictableList, error)
	// Export yields everything that is kept but the event log, as it is at one
	// moment: the resources in the order of their creation, the workers, the
	// rollouts in the order of theirs, each followed by its attempts and its spans
	// in the order of insertion, the sequences, the idempotency records, and one
	// State at the end. It stops behind the first error.
	Export(ctx context.Context) iter.Seq2[Record, error]
	// Ping reports whether the driver can read and write; CodeUnavailable when its
	// database is away, CodeExhausted when it has no room.
	Ping(ctx context.Context) error
	// Close releases what the driver holds. No call is under way or follows.
	Close(ctx context.Context) error
}

// Capabilities says what a driver can do. The zero value is the least capable.
type Capabilities struct {
	// Notices receives what other processes have committed to the same database;
	// nil when there are none.
	Notices <-chan Notice
}

// ErrRetry is in the error of a Begin, Load, Claim or Apply whose batch another
// process was in the way of (a deadlock, a serialization failure). The batch has
// changed nothing; the engine discards it and runs it again.
var ErrRetry = errors.New("another process was in the way")

// Notice says that another process changed something.
type Notice struct {
	// Resync says that notices may have been lost: everything is to be looked at.
	Resync   bool
	Queue    bool     // rollouts were queued, or the queue was opened or closed
	Rollouts []string // these finished, were deleted, or have other deadlines
}

// Batch is one unit of work: Load and Claim read, locking where the database
// has locks, and Apply writes everything in one commit.
type Batch interface {
	// Load appends what want names to got. The rows it returns are locked until
	// the batch ends. Each rollout comes with its latest attempt, each worker with
	// the attempt that it works on and that one's rollout, and each attempt with
	// its rollout and its worker. Unknown ids are left out.
	Load(ctx context.Context, want *LoadParams, got *Loaded) error
	// Claim appends to got the next rollouts of the queue, up to limit, as Load
	// would, as the queue was before the batch; a second call goes on behind the
	// first. Rows that another process holds are passed over.
	Claim(ctx context.Context, limit int, got *Loaded) (claimed []string, err error)
	// Apply commits the changes and ends the batch.
	Apply(ctx context.Context, changes *Changes) error
	// Discard ends the batch without a change. It does nothing after Apply.
	Discard()
}

// AttemptKey names an attempt.
type AttemptKey struct{ RolloutID, AttemptID string }

// SpanKey names a span.
type SpanKey struct{ RolloutID, AttemptID, SpanID string }

// LoadParams names what a batch needs. Ids may repeat.
type LoadParams struct {
	Now       agl.Timestamp // what has expired by then is left out
	Rollouts  []string
	Attempts  []AttemptKey
	Workers   []string
	Resources []string
	Sequences []string // rollouts, known or not, whose sequence counter is needed
	Spans     []SpanKey
	Keys      []string // idempotency scopes
}

// Loaded is what a batch starts from.
type Loaded struct {
	Rollouts  []LoadedRollout
	Attempts  []*agl.Attempt
	Workers   []LoadedWorker
	Resources []*agl.ResourcesUpdate
	Sequences []Sequence // of those that have one
	Spans     []SpanKey  // those that exist
	Keys      []IdempotencyRecord

	LatestResources agl.Null[string]
	QueueClosed     bool
	// SpanRoom is how many bytes of payload fit in, counting those that can be
	// evicted; null is no limit.
	SpanRoom agl.Null[int64]
}

// LoadedRollout is a rollout as a batch finds it.
type LoadedRollout struct {
	Rollout *agl.Rollout
	Latest  string // the latest attempt's id, "" when there is none
}

// LoadedWorker is a worker as a batch finds it. LiveAttempts counts the live
// attempts, each the latest of its rollout, that carry the worker's id; a
// worker that does not exist comes with a nil Worker when it has any.
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

// Changes is everything that a batch writes. A rollout is in the queue exactly
// while its status is queuing or requeuing: one that becomes so goes to the back,
// in the order of Rollouts, and leaves it when it becomes something else.
type Changes struct {
	Now              agl.Timestamp
	Rollouts         []RolloutChange
	Attempts         []AttemptChange
	ReturnedAttempts []AttemptKey // claims that were taken back: to be removed
	Workers          []*agl.Worker
	Resources        []*agl.ResourcesUpdate // the last one becomes the latest
	Spans            []SpanRecord
	Sequences        []Sequence
	DeletedRollouts  []string // with attempts, spans and counters
	EvictedRollouts  []string // their spans, those of this batch too, are removed; to ask for them is ErrEvicted from now on
	QueueClosed      agl.Null[bool]
	// Keys replace what their scopes held. When another process has written one
	// since this batch's Load did not find it, Apply fails with ErrRetry, so that
	// the engine finds it: two servers never act on one key.
	Keys          []IdempotencyRecord
	ForgottenKeys []string
	Events        []agl.Event // without ids, which the driver gives in this order
}

// RolloutChange is a rollout's new state.
type RolloutChange struct {
	Rollout *agl.Rollout
	New     bool
	// Front queues it at the head instead of the back, the first of several first.
	Front bool
}

// AttemptChange is an attempt's new state. A new attempt is the latest of its
// rollout.
type AttemptChange struct {
	Attempt *agl.Attempt
	New     bool
}

// SpanRecord is a span as drivers keep it: the columns that filters and sorts
// need, and the document.
type SpanRecord struct {
	SpanKey
	SequenceID int64
	TraceID    string
	ParentID   string // "" for none
	Name       string
	StartTime  agl.Null[agl.Timestamp]
	EndTime    agl.Null[agl.Timestamp]
	Payload    jsontext.Value // the wire form
}

// IdempotencyRecord remembers what a keyed write has made. Drivers keep it for
// as long as they promise: 10 minutes in memory, a day in a database.
type IdempotencyRecord struct {
	Scope       string // the operation, the ids of its path, and the key
	Fingerprint string // of the arguments; "" for a key that was revoked
	CreateTime  agl.Timestamp
	Made        []AttemptKey // rollouts, with an attempt where one was made
	ResourcesID string
}

// EventList is a part of the event log.
type EventList struct {
	Events []agl.Event
	// Last is the id of the newest event there is, or of the log's beginning.
	Last string
	// Reset says that the events after the id asked for are not all there: it is
	// too old, or unknown. Events is then empty.
	Reset bool
}

// EvictableList says what can make room for new spans.
type EvictableList struct {
	Rollouts []EvictableRollout
	// SpanBytes is the size of all spans that are stored, those of live rollouts
	// too, as they were sent.
	SpanBytes int64
}

// EvictableRollout is a finished rollout that holds spans.
type EvictableRollout struct {
	RolloutID string
	EndTime   agl.Timestamp
	SpanBytes int64
}

// Record is one thing of an export; exactly one of its fields is set.
type Record struct {
	Resources *agl.ResourcesUpdate
	Worker    *agl.Worker
	Rollout   *RolloutRecord
	Attempt   *agl.Attempt
	Span      *SpanRecord
	Sequence  *Sequence
	Key       *IdempotencyRecord
	State     *State
}

// RolloutRecord is a rollout of an export.
type RolloutRecord struct {
	Rollout *agl.Rollout
	// Place is the rollout's place in the queue: of two the one with the smaller
	// number is claimed first. Null when it is not queued.
	Place   agl.Null[int64]
	Evicted bool
}

// State is what there is one of.
type State struct {
	QueueClosed     bool
	LatestResources agl.Null[string]
}
