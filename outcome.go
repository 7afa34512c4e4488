package agl

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// OutcomeKind says why an attempt ended as it did.
type OutcomeKind string

// The kinds of outcome. Only OutcomeOK and OutcomeAgentError say something about the agent. The others are failures of its
// surroundings: algorithms mask them instead of counting them as reward 0.
const (
	OutcomeOK              OutcomeKind = "ok"
	OutcomeAgentError      OutcomeKind = "agent_error"
	OutcomePanic           OutcomeKind = "panic"
	OutcomeTimeout         OutcomeKind = "timeout"
	OutcomeUnresponsive    OutcomeKind = "unresponsive"
	OutcomeCancelled       OutcomeKind = "cancelled"
	OutcomeContextOverflow OutcomeKind = "context_overflow"
	OutcomeModelError      OutcomeKind = "model_error"
	OutcomeBudget          OutcomeKind = "budget"
	OutcomeSetupError      OutcomeKind = "setup_error"
)

// OutcomeKinds returns every kind.
func OutcomeKinds() []OutcomeKind {
	return []OutcomeKind{
		OutcomeOK, OutcomeAgentError, OutcomePanic, OutcomeTimeout, OutcomeUnresponsive, OutcomeCancelled,
		OutcomeContextOverflow, OutcomeModelError, OutcomeBudget, OutcomeSetupError,
	}
}

// Masked reports whether algorithms leave out attempts of this kind.
func (k OutcomeKind) Masked() bool { return k != OutcomeOK && k != OutcomeAgentError }

// Outcome is the typed result of an attempt, kept in its metadata under [MetadataOutcome].
type Outcome struct {
	Kind    OutcomeKind
	Message string
}

// Outcome returns the outcome in the attempt's metadata. Where there is none (a Python runner writes none) it is what the
// status implies. ok is false while the attempt is live and has none.
func (a *Attempt) Outcome() (outcome Outcome, ok bool) {
	if raw, found := rawjson.Get(a.Metadata, MetadataOutcome); found {
		var o Outcome
		if rawjson.Unmarshal(raw, &o) == nil && slices.Contains(OutcomeKinds(), o.Kind) {
			return o, true
		}
	}
	switch a.Status {
	case AttemptSucceeded:
		return Outcome{Kind: OutcomeOK}, true
	case AttemptFailed:
		return Outcome{Kind: OutcomeAgentError}, true
	case AttemptTimeout:
		return Outcome{Kind: OutcomeTimeout}, true
	case AttemptUnresponsive:
		return Outcome{Kind: OutcomeUnresponsive}, true
	case AttemptPreparing, AttemptRunning:
	}
	return Outcome{}, false
}

// WithOutcome returns metadata with the outcome set and other members unchanged.
func WithOutcome(metadata jsontext.Value, o Outcome) jsontext.Value {
	return rawjson.Set(metadata, MetadataOutcome, o.AppendJSON(nil))
}

func (o *Outcome) members(w *wireForm) *wireForm {
	w.string("kind", (*string)(&o.Kind))
	w.string("message", &o.Message)
	return w
}

// OutcomeError is an error that knows its [OutcomeKind]. An agent returns one, or wraps one, to report a failure that is not
// its own: the model was unavailable, the context overflowed, a budget was spent.
type OutcomeError struct {
	Kind OutcomeKind
	Err  error // the cause
}

func (e *OutcomeError) Error() string {
	if e.Err == nil {
		return string(e.Kind)
	}
	return e.Err.Error()
}

func (e *OutcomeError) Unwrap() error { return e.Err }

// OutcomeOf returns the outcome of an agent that returned err: OutcomeOK for nil,
// the kind of the first [OutcomeError] in the chain, else OutcomeAgentError.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Kind: OutcomeOK}
	}
	if typed, ok := errors.AsType[*OutcomeError](err); ok && typed.Kind != OutcomeOK && slices.Contains(OutcomeKinds(), typed.Kind) {
		return Outcome{Kind: typed.Kind, Message: err.Error()}
	}
	return Outcome{Kind: OutcomeAgentError, Message: err.Error()}
}
