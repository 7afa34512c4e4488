//nolint:revive // the methods of UnimplementedStore do what its comment says
package agl

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// UnimplementedStore returns ErrUnimplemented from every method, declares no
// capabilities and is always ready. Embed it in an implementation of [Store].
type UnimplementedStore struct{}

var _ Store = UnimplementedStore{}

func unimplemented(op string) error {
	return Errorf(CodeUnimplemented, "this store does not implement %s", op)
}

func (UnimplementedStore) Capabilities() Capabilities  { return Capabilities{} }
func (UnimplementedStore) Ready(context.Context) error { return nil }
func (UnimplementedStore) EnqueueRollouts(context.Context, EnqueueRolloutsParams) ([]Rollout, error) {
	return nil, unimplemented("EnqueueRollouts")
}

func (UnimplementedStore) StartRollout(context.Context, StartRolloutParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("StartRollout")
}

func (UnimplementedStore) CreateRollouts(context.Context, CreateRolloutsParams) ([]AttemptedRollout, error) {
	return nil, unimplemented("CreateRollouts")
}

func (UnimplementedStore) DequeueRollouts(context.Context, DequeueRolloutsParams) (DequeueResult, error) {
	return DequeueResult{}, unimplemented("DequeueRollouts")
}

func (UnimplementedStore) ReturnClaims(context.Context, ReturnClaimsParams) error {
	return unimplemented("ReturnClaims")
}

func (UnimplementedStore) StartAttempt(context.Context, StartAttemptParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("StartAttempt")
}

func (UnimplementedStore) UpdateRollout(context.Context, UpdateRolloutParams) (Rollout, error) {
	return Rollout{}, unimplemented("UpdateRollout")
}

func (UnimplementedStore) ReviseRollout(context.Context, ReviseRolloutParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("ReviseRollout")
}

func (UnimplementedStore) UpdateAttempt(context.Context, UpdateAttemptParams) (Attempt, error) {
	return Attempt{}, unimplemented("UpdateAttempt")
}

func (UnimplementedStore) CancelRollout(context.Context, CancelRolloutParams) (Rollout, error) {
	return Rollout{}, unimplemented("CancelRollout")
}

func (UnimplementedStore) DeleteRollout(context.Context, DeleteRolloutParams) error {
	return unimplemented("DeleteRollout")
}

func (UnimplementedStore) GetRollout(context.Context, GetRolloutParams) (AttemptedRollout, error) {
	return AttemptedRollout{}, unimplemented("GetRollout")
}

func (UnimplementedStore) QueryRollouts(context.Context, QueryRolloutsParams) (Page[AttemptedRollout], error) {
	return Page[AttemptedRollout]{}, unimplemented("QueryRollouts")
}

func (UnimplementedStore) QueryAttempts(context.Context, QueryAttemptsParams) (Page[Attempt], error) {
	return Page[Attempt]{}, unimplemented("QueryAttempts")
}

func (UnimplementedStore) GetLatestAttempt(context.Context, GetLatestAttemptParams) (Attempt, error) {
	return Attempt{}, unimplemented("GetLatestAttempt")
}

func (UnimplementedStore) WaitForRollouts(context.Context, WaitForRolloutsParams) ([]Rollout, error) {
	return nil, unimplemented("WaitForRollouts")
}

func (UnimplementedStore) AddResources(context.Context, AddResourcesParams) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("AddResources")
}

func (UnimplementedStore) UpdateResources(context.Context, UpdateResourcesParams) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("UpdateResources")
}

func (UnimplementedStore) GetResources(context.Context, GetResourcesParams) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("GetResources")
}

func (UnimplementedStore) GetLatestResources(context.Context) (ResourcesUpdate, error) {
	return ResourcesUpdate{}, unimplemented("GetLatestResources")
}

func (UnimplementedStore) QueryResources(context.Context, QueryResourcesParams) (Page[ResourcesUpdate], error) {
	return Page[ResourcesUpdate]{}, unimplemented("QueryResources")
}

func (UnimplementedStore) UpdateWorker(context.Context, UpdateWorkerParams) (Worker, error) {
	return Worker{}, unimplemented("UpdateWorker")
}

func (UnimplementedStore) GetWorker(context.Context, GetWorkerParams) (Worker, error) {
	return Worker{}, unimplemented("GetWorker")
}

func (UnimplementedStore) QueryWorkers(context.Context, QueryWorkersParams) (Page[Worker], error) {
	return Page[Worker]{}, unimplemented("QueryWorkers")
}

func (UnimplementedStore) AddSpans(context.Context, AddSpansParams) (AddSpansResult, error) {
	return AddSpansResult{}, unimplemented("AddSpans")
}

func (UnimplementedStore) AddSpansJSON(context.Context, AddSpansJSONParams) (AddSpansResult, error) {
	return AddSpansResult{}, unimplemented("AddSpansJSON")
}

func (UnimplementedStore) QuerySpans(context.Context, QuerySpansParams) (Page[Span], error) {
	return Page[Span]{}, unimplemented("QuerySpans")
}

func (UnimplementedStore) QuerySpansJSON(context.Context, QuerySpansParams) (Page[jsontext.Value], error) {
	return Page[jsontext.Value]{}, unimplemented("QuerySpansJSON")
}

func (UnimplementedStore) QueryShortSpans(context.Context, QueryShortSpansParams) (ShortSpans, error) {
	return ShortSpans{}, unimplemented("QueryShortSpans")
}

func (UnimplementedStore) ReserveSequenceIDs(context.Context, ReserveSequenceIDsParams) (int64, error) {
	return 0, unimplemented("ReserveSequenceIDs")
}

func (UnimplementedStore) ReserveSequenceIDsOf(context.Context, []ReserveSequenceIDsParams) ([]int64, error) {
	return nil, unimplemented("ReserveSequenceIDsOf")
}

func (UnimplementedStore) Events(context.Context, EventsParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { yield(Event{}, unimplemented("Events")) }
}

func (UnimplementedStore) CloseQueue(context.Context) error { return unimplemented("CloseQueue") }

func (UnimplementedStore) OpenQueue(context.Context) error { return unimplemented("OpenQueue") }

func (UnimplementedStore) Statistics(context.Context) (Statistics, error) {
	return Statistics{}, unimplemented("Statistics")
}
