package grpo

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Source supplies the tasks of training. It is used by one goroutine.
type Source interface {
	// Next returns the next n tasks. It may wait for them until ctx ends.
	Next(ctx context.Context, n int) ([]Task, error)
	// State returns the source's position, any JSON. Restore goes back to a position.
	State() (jsontext.Value, error)
	Restore(state jsontext.Value) error
	// Fingerprint identifies the sequence of tasks.
	Fingerprint() string
}

// Task is one task of a [Source].
type Task struct {
	// Input is the rollouts' input.
	Input jsontext.Value
	// Index is the task's position in its dataset, for the rollouts' metadata.
	Index int
}

// datasetSource goes through a dataset, in a new order each epoch.
type datasetSource struct {
	data        agl.Dataset
	order       *algorithm.Shuffle
	next        int // position in the endless sequence
	fingerprint string
}

// NewDatasetSource makes a source that goes through a dataset repeatedly, each time in another order, which seed decides. It
// reads the dataset once for its fingerprint, a hash of every task.
func NewDatasetSource(data agl.Dataset, seed uint64) (Source, error) {
	if data == nil || data.Len() == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "the train dataset is empty; at least one task is required")
	}
	fingerprint, err := algorithm.Fingerprint(data)
	if err != nil {
		return nil, fmt.Errorf("read train dataset: %w", err)
	}
	return &datasetSource{data: data, order: algorithm.NewShuffle(data.Len(), seed), fingerprint: fingerprint}, nil
}

// Next implements [Source].
func (s *datasetSource) Next(_ context.Context, n int) ([]Task, error) {
	tasks := make([]Task, n)
	for i := range tasks {
		index := s.order.At(s.next + i)
		input, err := s.data.Task(index)
		if err != nil {
			return nil, fmt.Errorf("read train dataset: %w", err)
		}
		tasks[i] = Task{Input: input, Index: index}
	}
	s.next += n
	return tasks, nil
}

type datasetState struct {
	Next int `json:"next"`
}

// State implements [Source].
func (s *datasetSource) State() (jsontext.Value, error) {
	return json.Marshal(datasetState{Next: s.next})
}

// Restore implements [Source].
func (s *datasetSource) Restore(state jsontext.Value) error {
	var st datasetState
	if err := json.Unmarshal(state, &st); err != nil {
		return agl.Errorf(agl.CodeInvalid, "position in the train dataset: %w", err)
	}
	if st.Next < 0 {
		return agl.Errorf(agl.CodeInvalid, "position in the train dataset: %d is negative", st.Next)
	}
	s.next = st.Next
	return nil
}

// Fingerprint implements [Source].
func (s *datasetSource) Fingerprint() string { return s.fingerprint }
