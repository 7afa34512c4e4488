package agl

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Algorithm drives a training run: it enqueues rollouts, waits for them, learns from their spans, and publishes resources.
// Run returns when training is done or ctx ends.
type Algorithm interface {
	Run(ctx context.Context, in AlgorithmInput) error
}

// AlgorithmFunc makes a function an Algorithm.
type AlgorithmFunc func(ctx context.Context, in AlgorithmInput) error

// Run calls the function.
func (f AlgorithmFunc) Run(ctx context.Context, in AlgorithmInput) error { return f(ctx, in) }

// AlgorithmInput is what a trainer gives to an algorithm.
type AlgorithmInput struct {
	Store            Store
	Train            Dataset // nil when there is none
	Val              Dataset // nil when there is none
	InitialResources Resources
}

// Dataset is a list of tasks, each the input of a rollout.
type Dataset interface {
	Len() int
	// Task returns the i-th task, for 0 ≤ i < Len.
	Task(i int) (jsontext.Value, error)
}

// Tasks is a Dataset in memory.
type Tasks []jsontext.Value

// Len returns the number of tasks.
func (t Tasks) Len() int { return len(t) }

// Task returns the i-th task.
func (t Tasks) Task(i int) (jsontext.Value, error) {
	if i < 0 || i >= len(t) {
		return nil, Errorf(CodeInvalid, "task %d: out of range, the dataset has %d tasks", i, len(t))
	}
	return t[i], nil
}
