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

	// StoreURL is the address of the store for programs that the algorithm starts. It does not contain the token. It
	// is empty if other processes cannot reach the store.
	StoreURL string
	// Proxy is the LLM proxy of the run; nil if there is none.
	Proxy AlgorithmProxy
	// Runs keeps runs and their metrics; nil if the store keeps none.
	Runs Runs
	// Collector hands out finished rollouts, whoever started them; nil if the store has no collector.
	Collector Collector
	// Adapter is what the trainer was configured with: an [Adapter] whose type argument is what the algorithm learns
	// from. Nil leaves the choice to the algorithm.
	Adapter any
}

// AlgorithmProxy is the part of the LLM proxy that an algorithm uses.
type AlgorithmProxy interface {
	// URL is the address of the proxy; its admin routes are below URL()/admin, with the
	// bearer token Token.
	URL() string
	Token() string
	// Flush returns when every call that has begun for the rollouts is stored.
	Flush(ctx context.Context, rolloutIDs []string) error
	// Drain holds new calls back and returns when none is running, so that weights can be changed. Resume lets calls
	// through again.
	Drain(ctx context.Context) error
	Resume(ctx context.Context) error
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
