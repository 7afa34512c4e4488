package agl

import (
	"context"
	"iter"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Store is the task queue and trace store in the middle: algorithms and runners
// meet only here. Implementations are safe for concurrent use. Embed
// [UnimplementedStore] in an implementation, so that a new method breaks
// nobody.
//
// An unknown id is ErrNotFound, a value that is never right ErrInvalid, a call
// that the present state forbids ErrIllegalState, and any call after the store
// was closed ErrUnavailable. Values handed out are immutable snapshots. A write
// with an IdempotencyKey that was used before for the same operation returns
// the first answer and does nothing; the same key with other arguments is
// ErrConflict.
type Store interface {
	// Capabilities says which of the optional methods the store implements. A
	// store that wraps another one returns the other's.
	Capabilities() Capabilities
	// Ready reports whether the store can serve right now: ErrUnavailable when it
	// is closing or its database is unreachable, ErrExhausted when its storage is
	// full.
	Ready(ctx context.Context) error

	// EnqueueRollouts appends rollouts to the queue, in order. A null resources
	// id becomes the latest resources' id; an id is not checked to exist.
	EnqueueRollouts(ctx context.Context, p EnqueueRolloutsParams) ([]Rollout, error)
	// StartRollout makes a rollout with its first attempt, past the queue.
	StartRollout(ctx context.Context, p StartRolloutParams) (AttemptedRollout, error)
	// DequeueRollouts claims up to Limit rollouts, oldest first, each with a new
	// attempt. With Wait it blocks until there is one, the queue is closed, or
	// the time is over; no work is an empty result.
	DequeueRollouts(ctx context.Context, p DequeueRolloutsParams) (DequeueResult, error)
	// ReturnClaims undoes claims of DequeueRollouts: their attempts are removed and
	// their rollouts go to the head of the queue. A claim that has been worked on
	// (a span, a status) stays, and one that is unknown is ignored. A caller that
	// never got the answer to its dequeue names it by its idempotency key.
	// Optional: without it a claim that nobody works on waits for its deadline.
	ReturnClaims(ctx context.Context, p ReturnClaimsParams) error
	// StartAttempt begins another attempt of a rollout of any status. It ignores
	// MaxAttempts and reopens a finished rollout.
	StartAttempt(ctx context.Context, p StartAttemptParams) (AttemptedRollout, error)
	// UpdateRollout replaces the fields that are set.
	UpdateRollout(ctx context.Context, p UpdateRolloutParams) (Rollout, error)
	// UpdateAttempt replaces the fields that are set and derives the rollout's
	// status from a new status of its latest attempt.
	UpdateAttempt(ctx context.Context, p UpdateAttemptParams) (Attempt, error)
	// CancelRollout makes the rollout cancelled and ends its live attempt. A
	// rollout that has already finished stays as it is.
	CancelRollout(ctx context.Context, p CancelRolloutParams) (Rollout, error)
	// DeleteRollout removes a finished rollout, its attempts and its spans.
	DeleteRollout(ctx context.Context, p DeleteRolloutParams) error
	// GetRollout returns a rollout with its latest attempt.
	GetRollout(ctx context.Context, p GetRolloutParams) (AttemptedRollout, error)
	// QueryRollouts returns a page of rollouts, in the order of their creation
	// unless sorted.
	QueryRollouts(ctx context.Context, p QueryRolloutsParams) (Page[AttemptedRollout], error)
	// QueryAttempts returns a page of a rollout's attempts, by sequence id unless
	// sorted; an unknown rollout gives an empty page.
	QueryAttempts(ctx context.Context, p QueryAttemptsParams) (Page[Attempt], error)
	// GetLatestAttempt returns the attempt with the highest sequence id.
	GetLatestAttempt(ctx context.Context, p GetLatestAttemptParams) (Attempt, error)
	// WaitForRollouts returns those of the rollouts that are finished once all
	// are, or once the timeout is over, in the order of the ids. Unknown ids are
	// dropped at once.
	WaitForRollouts(ctx context.Context, p WaitForRolloutsParams) ([]Rollout, error)

	// AddResources stores a new bundle under a new id and makes it the latest.
	AddResources(ctx context.Context, p AddResourcesParams) (ResourcesUpdate, error)
	// UpdateResources stores a bundle under the id given, creating it or raising
	// its version, and makes it the latest.
	UpdateResources(ctx context.Context, p UpdateResourcesParams) (ResourcesUpdate, error)
	// GetResources returns a bundle by its id.
	GetResources(ctx context.Context, p GetResourcesParams) (ResourcesUpdate, error)
	// GetLatestResources returns the bundle that was written last.
	GetLatestResources(ctx context.Context) (ResourcesUpdate, error)
	// QueryResources returns a page of bundles.
	QueryResources(ctx context.Context, p QueryResourcesParams) (Page[ResourcesUpdate], error)

	// UpdateWorker records a heartbeat. The worker that comes back names the
	// attempt it should be working on.
	UpdateWorker(ctx context.Context, p UpdateWorkerParams) (Worker, error)
	// GetWorker returns a worker by its id.
	GetWorker(ctx context.Context, p GetWorkerParams) (Worker, error)
	// QueryWorkers returns a page of workers.
	QueryWorkers(ctx context.Context, p QueryWorkersParams) (Page[Worker], error)

	// AddSpans stores spans; each counts as a heartbeat of its attempt. Spans
	// that are already there are skipped. All attempts are checked first: an
	// unknown one rejects the whole call, naming the index and the id. A store
	// copies what it keeps: the memory that the spans refer to is the caller's
	// again when the call returns, and so is what the answer shares with it.
	AddSpans(ctx context.Context, p AddSpansParams) (AddSpansResult, error)
	// AddSpansJSON is AddSpans for spans that have sequence ids and are given as
	// JSON documents in their wire form. Its result lists no stored spans. Optional:
	// a store behind a network sends the documents as they are; for others use
	// AddSpans.
	AddSpansJSON(ctx context.Context, p AddSpansJSONParams) (AddSpansResult, error)
	// QuerySpans returns a page of a rollout's spans, by sequence id unless
	// sorted. Spans that had to make room are ErrEvicted.
	QuerySpans(ctx context.Context, p QuerySpansParams) (Page[Span], error)
	// QuerySpansJSON is QuerySpans with each span as a JSON document in its wire
	// form. Optional: a store that keeps documents hands them out without decoding
	// them; for others use QuerySpans.
	QuerySpansJSON(ctx context.Context, p QuerySpansParams) (Page[jsontext.Value], error)
	// ReserveSequenceIDs issues Count consecutive sequence ids of a rollout and
	// returns the first. The ids need not be used; the rollout need not exist.
	ReserveSequenceIDs(ctx context.Context, p ReserveSequenceIDsParams) (first int64, err error)
	// ReserveSequenceIDsOf is ReserveSequenceIDs for several attempts; it returns
	// the first id of each. When it fails for one of them it fails, and ids of the
	// others may be lost. Optional: a store behind a network needs one request
	// instead of many; for others use ReserveSequenceIDs.
	ReserveSequenceIDsOf(ctx context.Context, p []ReserveSequenceIDsParams) (first []int64, err error)

	// Events streams changes, see [Event]. The stream ends with an error, unless
	// its reader stops: ctx's own error when ctx ends, ErrUnavailable when the
	// store closes.
	Events(ctx context.Context, p EventsParams) iter.Seq2[Event, error]
	// CloseQueue makes every dequeue, blocked ones included, return at once with
	// Closed set, until OpenQueue. Enqueueing goes on.
	CloseQueue(ctx context.Context) error
	// OpenQueue undoes CloseQueue.
	OpenQueue(ctx context.Context) error
	// Statistics counts what the store holds.
	Statistics(ctx context.Context) (Statistics, error)
}

// Capabilities says which of the optional methods of a [Store] are implemented;
// each field stands for the method of its name, which otherwise returns
// ErrUnimplemented. The zero value is the least capable store.
type Capabilities struct {
	ReturnClaims         bool
	AddSpansJSON         bool
	QuerySpansJSON       bool
	ReserveSequenceIDsOf bool
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

// DequeueRolloutsParams are the arguments of Store.DequeueRollouts.
type DequeueRolloutsParams struct {
	Limit          int // how many at most; none when it is not positive
	WorkerID       Null[string]
	Wait           time.Duration // 0 does not block
	IdempotencyKey string
}

// DequeueResult is the answer of Store.DequeueRollouts.
type DequeueResult struct {
	Rollouts []AttemptedRollout // each with its new attempt
	Closed   bool               // the queue is closed
}

// Claim names an attempt that DequeueRollouts has made.
type Claim struct{ RolloutID, AttemptID string }

// ClaimsOf returns the claims of rollouts that DequeueRollouts handed out.
func ClaimsOf(rollouts ...AttemptedRollout) []Claim {
	claims := make([]Claim, 0, len(rollouts))
	for i := range rollouts {
		if a := rollouts[i].Attempt; a != nil {
			claims = append(claims, Claim{a.RolloutID, a.AttemptID})
		}
	}
	return claims
}

// ReturnClaimsParams are the arguments of Store.ReturnClaims. Give Claims,
// IdempotencyKey or both.
type ReturnClaimsParams struct {
	// Claims are the claims to return. When there are none, those of the dequeue
	// with IdempotencyKey are returned; one that is under way is waited for.
	Claims []Claim
	// IdempotencyKey is the dequeue's. It is forgotten with its claims: a repeat of
	// the dequeue claims anew.
	IdempotencyKey string
	// RevokeKey makes the key unusable instead: a dequeue with it that is under
	// way, or arrives later, claims nothing.
	RevokeKey bool
}

// StartAttemptParams are the arguments of Store.StartAttempt.
type StartAttemptParams struct {
	RolloutID      string
	WorkerID       Null[string]
	IdempotencyKey string
}

// UpdateRolloutParams are the arguments of Store.UpdateRollout. A nil field
// stays as it is; Input and Metadata may be the document null.
type UpdateRolloutParams struct {
	RolloutID   string
	Input       jsontext.Value
	Mode        *Mode // ModeNone sets null
	ResourcesID *Null[string]
	Status      *RolloutStatus
	Config      *RolloutConfig
	Metadata    jsontext.Value
}

// LatestAttempt stands for the latest attempt's id in UpdateAttemptParams and
// QuerySpansParams.
const LatestAttempt = "latest"

// UpdateAttemptParams are the arguments of Store.UpdateAttempt. A nil field
// stays as it is.
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
	// Timeout bounds the wait; null waits until ctx ends, 0 does not wait.
	Timeout Null[time.Duration]
}

// AddResourcesParams are the arguments of Store.AddResources.
type AddResourcesParams struct {
	Resources      Resources
	IdempotencyKey string
}

// UpdateResourcesParams are the arguments of Store.UpdateResources.
type UpdateResourcesParams struct {
	ResourcesID    string
	Resources      Resources
	IdempotencyKey string
}

// GetResourcesParams are the arguments of Store.GetResources.
type GetResourcesParams struct{ ResourcesID string }

// UpdateWorkerParams are the arguments of Store.UpdateWorker.
type UpdateWorkerParams struct {
	WorkerID       string
	HeartbeatStats jsontext.Value // an object; nil leaves the last ones
}

// GetWorkerParams are the arguments of Store.GetWorker.
type GetWorkerParams struct{ WorkerID string }

// AddSpansParams are the arguments of Store.AddSpans.
type AddSpansParams struct {
	Spans []Span
	// IssueSequenceIDs gives every span whose SequenceID is not positive the next
	// id of its rollout, in the order of the spans.
	IssueSequenceIDs bool
}

// AddSpansResult is the answer of Store.AddSpans.
type AddSpansResult struct {
	Stored []Span // those that were new, in order, with their sequence ids
	// Cancelled lists the attempts, among those of the call, that ended because
	// their rollout was cancelled: their agents should stop.
	Cancelled []string
}

// AddSpansJSONParams are the arguments of Store.AddSpansJSON.
type AddSpansJSONParams struct {
	Spans []jsontext.Value
}

// ReserveSequenceIDsParams are the arguments of Store.ReserveSequenceIDs.
type ReserveSequenceIDsParams struct {
	RolloutID string
	AttemptID string // named for the reader; ids are counted per rollout
	Count     int    // 0 means 1
}

// SortOrder is the direction of a sorted query.
type SortOrder string

// The sort orders; the empty one is ascending.
const (
	Ascending  SortOrder = "asc"
	Descending SortOrder = "desc"
)

// FilterLogic joins the filters of a query.
type FilterLogic string

// The filter logics; the empty one is and.
const (
	FilterAnd FilterLogic = "and"
	FilterOr  FilterLogic = "or"
)

// Paging cuts and sorts the answer of a query. Its zero value is everything in
// the default order.
type Paging struct {
	Limit  int // at most so many; 0 and -1 are all
	Offset int
	SortBy string // a scalar field by its wire name; the empty one is the query's default
	Order  SortOrder
}

// Page is a part of a query's answer.
type Page[T any] struct {
	Items  []T
	Limit  int // -1 is all
	Offset int
	Total  int // matches before paging
}

// QueryRolloutsParams are the arguments of Store.QueryRollouts. A nil list is
// no filter, an empty one matches nothing.
type QueryRolloutsParams struct {
	StatusIn          []RolloutStatus
	RolloutIDIn       []string
	RolloutIDContains string
	Logic             FilterLogic
	Paging
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

// QuerySpansParams are the arguments of Store.QuerySpans. RolloutID and
// AttemptID always hold; the other filters are joined by Logic. An empty string
// is no filter.
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
	Paging
}
