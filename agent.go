package agl

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Task is what an agent is asked to do: one attempt of a rollout with the
// resources to do it with.
type Task struct {
	Rollout   Rollout
	Attempt   Attempt
	Resources Resources
}

// Input returns the task's input.
func (t Task) Input() jsontext.Value { return t.Rollout.Input }

// DecodeInput decodes the task's input into v; an input that does not fit is
// ErrInvalid.
func (t Task) DecodeInput(v any) error {
	if err := rawjson.Unmarshal(t.Rollout.Input, v); err != nil {
		return Errorf(CodeInvalid, "task input of rollout %s: %w", t.Rollout.RolloutID, err)
	}
	return nil
}

// LLM returns the first model endpoint of the task's resources, made this
// attempt's own.
func (t Task) LLM() (LLM, error) {
	return t.Resources.LLM(t.Rollout.RolloutID, t.Attempt.AttemptID)
}

// Agent does tasks. Run is called by several runners at once. The context ends
// when the rollout is cancelled or its runner stops; it carries the tracer, so
// that calls and emitted spans land in the right attempt. An error fails the
// attempt; a panic does too and never ends the runner.
type Agent interface {
	Run(ctx context.Context, task Task) (Result, error)
}

// AgentFunc makes a function an Agent.
type AgentFunc func(ctx context.Context, task Task) (Result, error)

// Run calls the function.
func (f AgentFunc) Run(ctx context.Context, task Task) (Result, error) { return f(ctx, task) }

// Result is what an agent hands back besides what was traced: at most one of
// its fields is set, and the zero value adds nothing.
type Result struct {
	// Rewards become one reward span, the primary dimension first.
	Rewards []Reward
	// Spans are stored as they are; their rollout and attempt ids must be the
	// task's or empty, and a sequence id that is not positive is issued.
	Spans []Span
	// Drafts are completed to spans of the attempt.
	Drafts []SpanDraft
}

// RewardResult is the result of an agent that hands back one scalar reward.
func RewardResult(value float64) Result {
	return Result{Rewards: []Reward{{Name: "primary", Value: value}}}
}
