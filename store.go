package agl

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Store is the task queue and trace store in the middle: the only place where algorithms and runners meet. Implementations
// are safe for concurrent use. Embed [UnimplementedStore] in an implementation, so that a new method does not break it.
//
// Errors: an unknown id is ErrNotFound, a value that is wrong in any state ErrInvalid, a call that the present state forbids
// ErrIllegalState, and any call after the store was closed ErrUnavailable. A write that repeats an earlier one's
// IdempotencyKey returns the earlier result and does nothing; the same key with other arguments is ErrConflict.
//
// Values that a store hands out are immutable snapshots.
type Store interface {
	// Capabilities says which of the optional methods the store implements. A
	// store that wraps another one returns the other's.
	Capabilities() Capabilities
	// Ready reports whether the store can serve right now: ErrUnavailable when it is closing or its database is unreachable,
	// ErrExhausted when its storage is full.
	Ready(ctx context.Context) error

	// EnqueueRollouts appends rollouts to the queue, in order. A null resources id
	// becomes the id of the latest resources. Other ids are not checked. All are one commit, for which other writes wait: enqueue
	// many in calls of some thousands.
	EnqueueRollouts(ctx context.Context, p EnqueueRolloutsParams) ([]Rollout, error)
	// StartRollout creates a rollout with its first attempt, bypassing the queue. Names that begin with MetadataGateway are
	// CodeInvalid: who may start a rollout to do its task may not give controllers of that API work.
	StartRollout(ctx context.Context, p StartRolloutParams) (AttemptedRollout, error)
	// CreateRollouts creates rollouts under ids that the caller has chosen, in one commit and in order. A rollout that
	// exists stays as it is and is returned, so the call can be repeated. Optional.
	CreateRollouts(ctx context.Context, p CreateRolloutsParams) ([]AttemptedRollout, error)
	// DequeueRollouts claims up to Limit rollouts, oldest first, each with a new attempt. With Wait it blocks until there is
	// a rollout, the queue is closed, or the time is up. Without work the result is empty.
	DequeueRollouts(ctx context.Context, p DequeueRolloutsParams) (DequeueResult, error)
	// ReturnClaims undoes claims of DequeueRollouts: it removes their attempts and puts their rollouts at the head of the
	// queue. A claim whose agent has sent a span, or that has a new status, stays; an unknown one is ignored. Rewards that
	// were posted for an attempt are removed with it. A caller that never received the result of a dequeue names it by its
	// idempotency key. Optional: without it an abandoned claim waits for its deadline.
	ReturnClaims(ctx context.Context, p ReturnClaimsParams) error
	// StartAttempt starts another attempt of a rollout, whatever its status. It
	// ignores MaxAttempts and reopens a finished rollout.
	StartAttempt(ctx context.Context, p StartAttemptParams) (AttemptedRollout, error)
	// UpdateRollout replaces the fields that are set.
	UpdateRollout(ctx context.Context, p UpdateRolloutParams) (Rollout, error)
	// ReviseRollout replaces the metadata of a rollout and, if set, its status, unless the metadata has changed since the
	// caller read it: then it is ErrConflict, and the caller reads again. Optional.
	ReviseRollout(ctx context.Context, p ReviseRolloutParams) (AttemptedRollout, error)
	// UpdateAttempt replaces the fields that are set. A new status of the latest attempt determines the rollout's status.
	UpdateAttempt(ctx context.Context, p UpdateAttemptParams) (Attempt, error)
	// CancelRollout cancels a rollout and ends its live attempt. A finished rollout stays as it is.
	CancelRollout(ctx context.Context, p CancelRolloutParams) (Rollout, error)
	// DeleteRollout removes a finished rollout, its attempts and its spans.
	DeleteRollout(ctx context.Context, p DeleteRolloutParams) error
	// GetRollout returns a rollout with its latest attempt.
	GetRollout(ctx context.Context, p GetRolloutParams) (AttemptedRollout, error)
	// QueryRollouts returns a page of rollouts, by default in the order of creation.
	QueryRollouts(ctx context.Context, p QueryRolloutsParams) (Page[AttemptedRollout], error)
	// QueryAttempts returns a page of a rollout's attempts, by default in the order of
	// their sequence ids. The page of an unknown rollout is empty.
	QueryAttempts(ctx context.Context, p QueryAttemptsParams) (Page[Attempt], error)
	// GetLatestAttempt returns the attempt with the highest sequence id.
	GetLatestAttempt(ctx context.Context, p GetLatestAttemptParams) (Attempt, error)
	// WaitForRollouts blocks until all the rollouts are finished or the timeout is up,
	// and returns the finished ones in the order of the ids. Unknown ids are ignored.
	WaitForRollouts(ctx context.Context, p WaitForRolloutsParams) ([]Rollout, error)

	// AddResources stores a new bundle under a new id and makes it the latest.
	AddResources(ctx context.Context, p AddResourcesParams) (ResourcesUpdate, error)
	// UpdateResources stores a bundle under a given id and makes it the latest. A bundle that exists gets the next version;
	// rollouts that were enqueued before run with the version of that time.
	UpdateResources(ctx context.Context, p UpdateResourcesParams) (ResourcesUpdate, error)
	// GetResources returns a bundle by its id, or an earlier version of it.
	GetResources(ctx context.Context, p GetResourcesParams) (ResourcesUpdate, error)
	// GetLatestResources returns the bundle that was written last.
	GetLatestResources(ctx context.Context) (ResourcesUpdate, error)
	// QueryResources returns a page of bundles.
	QueryResources(ctx context.Context, p QueryResourcesParams) (Page[ResourcesUpdate], error)

	// UpdateWorker records a heartbeat. The result names the attempt that the worker should be working on.
	UpdateWorker(ctx context.Context, p UpdateWorkerParams) (Worker, error)
	// GetWorker returns a worker by its id.
	GetWorker(ctx context.Context, p GetWorkerParams) (Worker, error)
	// QueryWorkers returns a page of workers.
	QueryWorkers(ctx context.Context, p QueryWorkersParams) (Page[Worker], error)

	// AddSpans stores spans. Each counts as a heartbeat of its attempt; one that is stored already is skipped. If the
	// attempt of any span is unknown, nothing is stored, and the error names the span's index and the id. The store copies
	// what it keeps: once the call returns, the caller may reuse the memory of the spans, which the result may share.
	AddSpans(ctx context.Context, p AddSpansParams) (AddSpansResult, error)
	// AddSpansJSON is AddSpans for spans that have sequence ids and are given as JSON documents in their wire form. Its
	// result does not list the stored spans. Optional: a store behind a network sends the documents as they are; with other
	// stores use AddSpans.
	AddSpansJSON(ctx context.Context, p AddSpansJSONParams) (AddSpansResult, error)
	// QuerySpans returns a page of a rollout's spans, by default in the order of their
	// sequence ids. If the store has evicted them to free memory, it is ErrEvicted.
	QuerySpans(ctx context.Context, p QuerySpansParams) (Page[Span], error)
	// QuerySpansJSON is QuerySpans with each span as a JSON document in its wire form. Optional: a store that keeps
	// documents returns them without decoding them; with other stores use QuerySpans.
	QuerySpansJSON(ctx context.Context, p QuerySpansParams) (Page[jsontext.Value], error)
	// QueryShortSpans is QuerySpans in a form whose size grows with what a conversation says, not with its square, and with
	// only those attributes that the caller reads. Optional: with other stores use QuerySpans. A store that wraps another one
	// and changes the spans of QuerySpans implements this too, or declares it missing.
	QueryShortSpans(ctx context.Context, p QueryShortSpansParams) (ShortSpans, error)
	// ReserveSequenceIDs issues Count consecutive sequence ids of a rollout and
	// returns the first. The rollout need not exist, and the ids need not be used.
	ReserveSequenceIDs(ctx context.Context, p ReserveSequenceIDsParams) (first int64, err error)
	// ReserveSequenceIDsOf is ReserveSequenceIDs for several attempts and returns the first id of each. If it fails for one
	// attempt the call fails, and ids of the others may be lost. Optional: it saves a store behind a network requests; with
	// other stores use ReserveSequenceIDs.
	ReserveSequenceIDsOf(ctx context.Context, p []ReserveSequenceIDsParams) (first []int64, err error)

	// Events streams changes, see [Event]. Unless its reader stops, the stream ends
	// with an error: that of ctx when ctx ends, ErrUnavailable when the store closes.
	Events(ctx context.Context, p EventsParams) iter.Seq2[Event, error]
	// CloseQueue makes every dequeue, including those that are blocked, return at once with Closed set, until
	// OpenQueue. Rollouts can still be enqueued. Optional: without it, a run can close the queue only for the runners
	// that it started or serves.
	CloseQueue(ctx context.Context) error
	// OpenQueue undoes CloseQueue.
	OpenQueue(ctx context.Context) error
	// Statistics counts what the store holds.
	Statistics(ctx context.Context) (Statistics, error)
}

// Capabilities says which optional methods a [Store] implements. Each field stands for the method of that name, which
// returns ErrUnimplemented if the field is false. The zero value describes the least capable store.
type Capabilities struct {
	ReturnClaims         bool
	AddSpansJSON         bool
	QuerySpansJSON       bool
	QueryShortSpans      bool
	ReserveSequenceIDsOf bool
	CreateRollouts       bool
	ReviseRollout        bool
	CloseQueue           bool // and OpenQueue
}

// EnqueueRolloutsParams are the arguments of Store.EnqueueRollouts.
type EnqueueRolloutsParams struct {
	Rollouts       []EnqueueRollout
	IdempotencyKey string
}

// StartRolloutParams are the arguments of Store.StartRollout.
type StartRolloutParams struct {
	EnqueueRollout
	WorkerID       Null[string]
	IdempotencyKey string
}

// CreateRolloutsParams are the arguments of Store.CreateRollouts.
type CreateRolloutsParams struct{ Rollouts []CreateRollout }

// CreateRollout describes a rollout whose id the caller has chosen.
type CreateRollout struct {
	RolloutID string // must not be empty
	EnqueueRollout

	// Start creates the rollout with its first attempt, as StartRollout does, so that no
	// runner claims it. Otherwise it is queued.
	Start bool
}

// DequeueRolloutsParams are the arguments of Store.DequeueRollouts.
type DequeueRolloutsParams struct {
	Limit          int // the most rollouts to claim, of which a store may claim fewer; not positive claims none
	WorkerID       Null[string]
	Wait           time.Duration // how long to block; 0 does not
	IdempotencyKey string        // a repeat with it gets the claims of the first call that are still its own to work on
}

// DequeueResult is the result of Store.DequeueRollouts.
type DequeueResult struct {
	Rollouts []AttemptedRollout // each with its new attempt
	Closed   bool               // the queue is closed
}

// Claim names an attempt that DequeueRollouts created.
type Claim struct{ RolloutID, AttemptID string }

// ClaimsOf returns the claims of rollouts that DequeueRollouts returned.
func ClaimsOf(rollouts ...AttemptedRollout) []Claim {
	claims := make([]Claim, 0, len(rollouts))
	for i := range rollouts {
		if a := rollouts[i].Attempt; a != nil {
			claims = append(claims, Claim{a.RolloutID, a.AttemptID})
		}
	}
	return claims
}

// ReturnClaimsParams are the arguments of Store.ReturnClaims. Give Claims, IdempotencyKey or both.
type ReturnClaimsParams struct {
	// Claims are the claims to return. Without any, those of the dequeue with
	// IdempotencyKey are returned; if that is in progress, the call waits for it.
	Claims []Claim
	// IdempotencyKey is that of the dequeue. The store forgets it with the claims: a repeat of the dequeue claims again.
	// With Claims and the key, the answer with the claims was lost: if a repeat of the dequeue has got them, they stay.
	IdempotencyKey string
	// RevokeKey revokes the key instead: a dequeue with it that is in progress, or arrives later, claims nothing.
	RevokeKey bool
}

// StartAttemptParams are the arguments of Store.StartAttempt.
type StartAttemptParams struct {
	RolloutID      string
	WorkerID       Null[string]
	IdempotencyKey string
}

// UpdateRolloutParams are the arguments of Store.UpdateRollout. A field that is nil
// here stays as it is. Input and Metadata may be the document null.
type UpdateRolloutParams struct {
	RolloutID   string
	Input       jsontext.Value
	Mode        *Mode // ModeNone sets null
	ResourcesID *Null[string]
	Status      *RolloutStatus
	Config      *RolloutConfig
	Metadata    jsontext.Value
}

// ReviseRolloutParams are the arguments of Store.ReviseRollout.
type ReviseRolloutParams struct {
	RolloutID string
	// IfMetadata is the metadata that the caller has read, byte for byte.
	IfMetadata jsontext.Value
	Metadata   jsontext.Value // an object
	// Status, if set, is running, succeeded, failed or cancelled. It is set for the latest attempt, too, as if its
	// runner had reported it.
	Status *RolloutStatus
	// NumberKey, if not empty, names a member of the metadata. The commit sets it to the next id of the sequence of
	// that name (see ReserveSequenceIDs), at least NumberMin. These numbers are in the order of the commits, without
	// gaps.
	NumberKey string
	NumberMin int64
}

// LatestAttempt stands for the id of the latest attempt in UpdateAttemptParams and QuerySpansParams.
const LatestAttempt = "latest"

// UpdateAttemptParams are the arguments of Store.UpdateAttempt. A field that is nil here stays as it is.
type UpdateAttemptParams struct {
	RolloutID         string
	AttemptID         string // or LatestAttempt
	Status            *AttemptStatus
	WorkerID          *string
	LastHeartbeatTime *Timestamp
	Metadata          jsontext.Value // an object
}

// CancelRolloutParams are the arguments of Store.CancelRollout.
type CancelRolloutParams struct{ RolloutID string }

// DeleteRolloutParams are the arguments of Store.DeleteRollout.
type DeleteRolloutParams struct{ RolloutID string }

// GetRolloutParams are the arguments of Store.GetRollout.
type GetRolloutParams struct{ RolloutID string }

// GetLatestAttemptParams are the arguments of Store.GetLatestAttempt.
type GetLatestAttemptParams struct{ RolloutID string }

// WaitForRolloutsParams are the arguments of Store.WaitForRollouts.
type WaitForRolloutsParams struct {
	RolloutIDs []string
	// Timeout bounds the wait. Null waits until ctx ends, 0 does not wait.
	Timeout Null[time.Duration]
}

// AddResourcesParams are the arguments of Store.AddResources.
type AddResourcesParams struct {
	Resources Resources
	// KeepLatest leaves the latest resources as they are: only rollouts that name the new bundle will use it.
	KeepLatest     bool
	IdempotencyKey string
}

// UpdateResourcesParams are the arguments of Store.UpdateResources.
type UpdateResourcesParams struct {
	ResourcesID string
	Resources   Resources
	// KeepLatest leaves the latest resources as they are.
	KeepLatest     bool
	IdempotencyKey string
}

// GetResourcesParams are the arguments of Store.GetResources.
type GetResourcesParams struct {
	ResourcesID string
	// Version asks for an earlier version. The store keeps the last 64, and those that may be in use.
	Version Null[int]
	// RolloutID asks for the version that the bundle had when this rollout was enqueued.
	RolloutID string
}

// UpdateWorkerParams are the arguments of Store.UpdateWorker.
type UpdateWorkerParams struct {
	WorkerID       string
	HeartbeatStats jsontext.Value // an object; nil keeps the previous one
}

// GetWorkerParams are the arguments of Store.GetWorker.
type GetWorkerParams struct{ WorkerID string }

// AddSpansParams are the arguments of Store.AddSpans.
type AddSpansParams struct {
	Spans []Span
	// IssueSequenceIDs gives each span without a positive SequenceID the next one of its rollout, in the order of the spans.
	IssueSequenceIDs bool
	// OrderByTime gives each span the id that was next when the span ended, as far as the store remembers. Such a
	// span shares its id with what came next. It is for spans that an exporter sends late, in batches; times are
	// those of the store's clock.
	OrderByTime bool
}

// AddSpansResult is the result of Store.AddSpans.
type AddSpansResult struct {
	Stored []Span // the spans that were new, in order, with their sequence ids
	// Cancelled lists the attempts of the spans whose rollouts were cancelled. Their agents should stop.
	Cancelled []string
}

// AddSpansJSONParams are the arguments of Store.AddSpansJSON.
type AddSpansJSONParams struct {
	Spans []jsontext.Value
}

// ReserveSequenceIDsParams are the arguments of Store.ReserveSequenceIDs.
type ReserveSequenceIDsParams struct {
	RolloutID string
	AttemptID string // for logs; ids are counted per rollout
	Count     int    // 0 means 1
}

// QueryRolloutsParams are the arguments of Store.QueryRollouts. A nil list is not a filter; an empty one matches nothing.
type QueryRolloutsParams struct {
	StatusIn          []RolloutStatus
	RolloutIDIn       []string
	RolloutIDContains string
	ModeIn            []Mode
	// Labels must all match, or with FilterOr any of them.
	Labels []Label
	// RewardMin and RewardMax are inclusive bounds of the reward of the latest attempt, see [AttemptReward]. Rollouts
	// without a reward match no bounds, and come last in the order by "reward".
	RewardMin, RewardMax Null[float64]
	// After leaves out this rollout and those before it, in the order by creation or by "start_time". Unlike Offset
	// it costs the same at any depth. It applies with any Logic. A rollout that does not exist is ErrInvalid.
	After string
	Logic FilterLogic
	Paging
}

// Label finds rollouts by a member of their metadata: a string, or a number or boolean as its JSON text. Runs label
// their rollouts "run", "step" and "group". Only the first 64 members of a rollout with a name of at most 128 bytes
// and a value of at most 256 bytes can be found.
type Label struct{ Name, Value string }

// String returns the form name=value.
func (l Label) String() string { return l.Name + "=" + l.Value }

// UnmarshalText reads the form name=value.
func (l *Label) UnmarshalText(text []byte) error {
	name, value, found := strings.Cut(string(text), "=")
	if !found || name == "" {
		return Errorf(CodeInvalid, "label: got %.200q, must be name=value, such as run=ru-0123456789ab", text)
	}
	*l = Label{name, value}
	return nil
}

// QueryAttemptsParams are the arguments of Store.QueryAttempts.
type QueryAttemptsParams struct {
	RolloutID string
	Paging
}

// QueryResourcesParams are the arguments of Store.QueryResources.
type QueryResourcesParams struct {
	ResourcesID         string
	ResourcesIDContains string
	Paging
}

// QueryWorkersParams are the arguments of Store.QueryWorkers.
type QueryWorkersParams struct {
	StatusIn         []WorkerStatus
	WorkerIDContains string
	Logic            FilterLogic
	Paging
}

// QuerySpansParams are the arguments of Store.QuerySpans. RolloutID and AttemptID must match in any case; Logic joins the
// other filters. An empty string is not a filter.
type QuerySpansParams struct {
	RolloutID        string
	AttemptID        string // or LatestAttempt; empty is all attempts
	TraceID          string
	TraceIDContains  string
	SpanID           string
	SpanIDContains   string
	ParentID         string
	ParentIDContains string
	Name             string
	NameContains     string
	Logic            FilterLogic
	// AttributeNames are the attributes that the caller reads; a name that ends with * stands for all that begin so. Spans
	// then have these attributes and perhaps others. Empty means all. The calls of a conversation repeat each other, so whole
	// spans grow with the square of its turns.
	AttributeNames []string
	Paging
}
