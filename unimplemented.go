package agl

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// UnimplementedStore answers every operation with ErrUnimplemented, declares no
// capabilities and is always ready. Embed it in an implementation of [Store].
type UnimplementedStore struct{}

var _ Store = UnimplementedStore{}

func unimplemented(op string) error { return Errorf(CodeUnimplemented, "this store has no %s", op) }

// Capabilities returns none.
func (UnimplementedStore) Capabilities() Capabilities { return Capabilities{} }

// Ready returns nil.
func (UnimplementedStore) Ready(_ context.Context) error { return nil }

// EnqueueRollouts returns ErrUnimplemented.
func (UnimplementedStore) EnqueueRollouts(_ context.Context, _ EnqueueRolloutsParams) ([]Rollout, error) {
	return nil, unimplemented("EnqueueRollouts")
}

// StartRollout returns ErrUnimplemented.
func (UnimplementedStore) StartRollout(_ context.Context, _ StartRolloutParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("StartRollout")
}

// DequeueRollouts returns ErrUnimplemented.
func (UnimplementedStore) DequeueRollouts(_ context.Context, _ DequeueRolloutsParams) (DequeueResult, error) {
	return DequeueResult{}, unimplemented("DequeueRollouts")
}

// ReturnClaims returns ErrUnimplemented.
func (UnimplementedStore) ReturnClaims(_ context.Context, _ ReturnClaimsParams) error {
	return unimplemented("ReturnClaims")
}

// StartAttempt returns ErrUnimplemented.
func (UnimplementedStore) StartAttempt(_ context.Context, _ StartAttemptParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("StartAttempt")
}

// UpdateRollout returns ErrUnimplemented.
func (UnimplementedStore) UpdateRollout(_ context.Context, _ UpdateRolloutParams) (Rollout, error) {
	return Rollout{}, unimplemented("UpdateRollout")
}

// UpdateAttempt returns ErrUnimplemented.
func (UnimplementedStore) UpdateAttempt(_ context.Context, _ UpdateAttemptParams) (Attempt, error) {
	return Attempt{}, unimplemented("UpdateAttempt")
}

// CancelRollout returns ErrUnimplemented.
func (UnimplementedStore) CancelRollout(_ context.Context, _ CancelRolloutParams) (Rollout, error) {
	return Rollout{}, unimplemented("CancelRollout")
}

// DeleteRollout returns ErrUnimplemented.
func (UnimplementedStore) DeleteRollout(_ context.Context, _ DeleteRolloutParams) error {
	return unimplemented("DeleteRollout")
}

// GetRollout returns ErrUnimplemented.
func (UnimplementedStore) GetRollout(_ context.Context, _ GetRolloutParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("GetRollout")
}

// QueryRollouts returns ErrUnimplemented.
func (UnimplementedStore) QueryRollouts(_ context.Context, _ QueryRolloutsParams) (Page[AttemptedRollout], error) {
	return Page[AttemptedRollout]{}, unimplemented("QueryRollouts")
}

// QueryAttempts returns ErrUnimplemented.
func (UnimplementedStore) QueryAttempts(_ context.Context, _ QueryAttemptsParams) (Page[Attempt], error) {
	return Page[Attempt]{}, unimplemented("QueryAttempts")
}

// GetLatestAttempt returns ErrUnimplemented.
func (UnimplementedStore) GetLatestAttempt(_ context.Context, _ GetLatestAttemptParams) (Attempt, error) {
	return Attempt{}, unimplemented("GetLatestAttempt")
}

// WaitForRollouts returns ErrUnimplemented.
func (UnimplementedStore) WaitForRollouts(_ context.Context, _ WaitForRolloutsParams) ([]Rollout, error) {
	return nil, unimplemented("WaitForRollouts")
}

// AddResources returns ErrUnimplemented.
func (UnimplementedStore) AddResources(_ context.Context, _ AddResourcesParams) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("AddResources")
}

// UpdateResources returns ErrUnimplemented.
func (UnimplementedStore) UpdateResources(_ context.Context, _ UpdateResourcesParams) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("UpdateResources")
}

// GetResources returns ErrUnimplemented.
func (UnimplementedStore) GetResources(_ context.Context, _ GetResourcesParams) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("GetResources")
}

// GetLatestResources returns ErrUnimplemented.
func (UnimplementedStore) GetLatestResources(_ context.Context) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("GetLatestResources")
}

// QueryResources returns ErrUnimplemented.
func (UnimplementedStore) QueryResources(_ context.Context, _ QueryResourcesParams) (Page[ResourcesUpdate], error) {
	return Page[ResourcesUpdate]{}, unimplemented("QueryResources")
}

// UpdateWorker returns ErrUnimplemented.
func (UnimplementedStore) UpdateWorker(_ context.Context, _ UpdateWorkerParams) (Worker, error) {
	return Worker{}, unimplemented("UpdateWorker")
}

// GetWorker returns ErrUnimplemented.
func (UnimplementedStore) GetWorker(_ context.Context, _ GetWorkerParams) (Worker, error) {
	return Worker{}, unimplemented("GetWorker")
}

// QueryWorkers returns ErrUnimplemented.
func (UnimplementedStore) QueryWorkers(_ context.Context, _ QueryWorkersParams) (Page[Worker], error) {
	return Page[Worker]{}, unimplemented("QueryWorkers")
}

// AddSpans returns ErrUnimplemented.
func (UnimplementedStore) AddSpans(_ context.Context, _ AddSpansParams) (AddSpansResult, error) {
	return AddSpansResult{}, unimplemented("AddSpans")
}

// AddSpansJSON returns ErrUnimplemented.
func (UnimplementedStore) AddSpansJSON(_ context.Context, _ AddSpansJSONParams) (AddSpansResult, error) {
	return AddSpansResult{}, unimplemented("AddSpansJSON")
}

// QuerySpans returns ErrUnimplemented.
func (UnimplementedStore) QuerySpans(_ context.Context, _ QuerySpansParams) (Page[Span], error) {
	return Page[Span]{}, unimplemented("QuerySpans")
}

// QuerySpansJSON returns ErrUnimplemented.
func (UnimplementedStore) QuerySpansJSON(_ context.Context, _ QuerySpansParams) (Page[jsontext.Value], error) {
	return Page[jsontext.Value]{}, unimplemented("QuerySpansJSON")
}

// ReserveSequenceIDs returns ErrUnimplemented.
func (UnimplementedStore) ReserveSequenceIDs(_ context.Context, _ ReserveSequenceIDsParams) (int64, error) {
	return 0, unimplemented("ReserveSequenceIDs")
}

// ReserveSequenceIDsOf returns ErrUnimplemented.
func (UnimplementedStore) ReserveSequenceIDsOf(_ context.Context, _ []ReserveSequenceIDsParams) ([]int64, error) {
	return nil, unimplemented("ReserveSequenceIDsOf")
}

// Events returns ErrUnimplemented.
func (UnimplementedStore) Events(_ context.Context, _ EventsParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { yield(Event{}, unimplemented("Events")) }
}

// CloseQueue returns ErrUnimplemented.
func (UnimplementedStore) CloseQueue(_ context.Context) error { return unimplemented("CloseQueue") }

// OpenQueue returns ErrUnimplemented.
func (UnimplementedStore) OpenQueue(_ context.Context) error { return unimplemented("OpenQueue") }

// Statistics returns ErrUnimplemented.
func (UnimplementedStore) Statistics(_ context.Context) (Statistics, error) {
	return Statistics{}, unimplemented("Statistics")
}
