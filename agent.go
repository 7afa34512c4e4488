package agl

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Task is what an agent is asked to do: one attempt of a rollout, and the
// resources for it.
type Task struct {
	Rollout   Rollout
	Attempt   Attempt
	Resources Resources
}

// Input returns the task's input.
func (t Task) Input() jsontext.Value { return t.Rollout.Input }

// DecodeInput decodes the task's input into v. It returns ErrInvalid for an input that does not fit v, and for a
// member that v has no field for: a misspelt or miscased name would silently leave the field zero. Options such as
// json.RejectUnknownMembers(false) change that. If a name occurs twice, its last value counts.
func (t Task) DecodeInput(v any, options ...json.Options) error {
	options = append([]json.Options{rawjson.Options(), json.RejectUnknownMembers(true)}, options...)
	if err := json.Unmarshal(t.Rollout.Input, v, options...); err != nil {
		if errors.Is(err, json.ErrUnknownName) {
			const help = "each member needs a field with its exact name, such as one with the tag `json:\"question\"`; json.RejectUnknownMembers(false) ignores members without a field"
			return Errorf(CodeInvalid, "task input: %w; %s", err, help)
		}
		return Errorf(CodeInvalid, "task input: %w", err) // the rollout is left out, so that equal errors are counted together
	}
	return nil
}

// LLM returns the first model endpoint of the task's resources, with the URL and the key of this attempt. Resources
// without an endpoint are ErrNotFound.
func (t Task) LLM() (LLM, error) {
	return t.Resources.LLM(t.Rollout.RolloutID, t.Attempt.AttemptID)
}

// Agent carries out tasks. Run must be safe for concurrent use. Its context carries the tracer, which assigns model
// calls and emitted spans to the right attempt, and ends when the rollout is cancelled or the runner stops. An error
// fails the attempt, and so does a panic, which the runner survives.
type Agent interface {
	Run(ctx context.Context, task Task) (Result, error)
}

// AgentFunc makes a function an Agent.
type AgentFunc func(ctx context.Context, task Task) (Result, error)

// Run calls the function.
func (f AgentFunc) Run(ctx context.Context, task Task) (Result, error) { return f(ctx, task) }

// Result is what an agent returns besides what was traced. The zero value adds nothing.
type Result struct {
	// Rewards become one reward span, the last one of the attempt. The primary dimension comes first.
	Rewards []Reward
	// Spans are stored as they are. Their rollout and attempt ids must be the task's
	// or empty; the store issues a sequence id where there is no positive one.
	Spans []Span
	// Drafts become spans of the attempt.
	Drafts []SpanDraft
}

// RewardResult is the result of an agent that returns one scalar reward.
func RewardResult(value float64) Result {
	return Result{Rewards: []Reward{{Name: "primary", Value: value}}}
}
