package agl

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// OutcomeKind says why an attempt ended as it did.
type OutcomeKind string

// The kinds of outcome. Only OutcomeOK and OutcomeAgentError say something
// about the agent; the others are failures of what is around it, which
// algorithms mask instead of counting them as reward 0.
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

// Masked reports whether algorithms leave such an attempt out.
func (k OutcomeKind) Masked() bool { return k != OutcomeOK && k != OutcomeAgentError }

// Outcome is the typed result of an attempt, kept in its metadata under
// [MetadataOutcome].
type Outcome struct {
	Kind    OutcomeKind
	Message string
}

// Outcome reads the outcome out of the attempt's metadata. An attempt that
// carries none (a Python runner's) gets the kind that its status implies, and
// ok is false while it is live.
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

// WithOutcome returns metadata with the outcome set, other members untouched.
func WithOutcome(metadata jsontext.Value, o Outcome) jsontext.Value {
	return rawjson.Set(metadata, MetadataOutcome, o.AppendJSON(nil))
}

// AppendJSON appends the wire form.
func (o Outcome) AppendJSON(dst []byte) []byte {
	out := rawjson.NewObject(dst)
	out.String("kind", string(o.Kind))
	out.String("message", o.Message)
	return out.End()
}

// MarshalJSON returns the wire form.
func (o Outcome) MarshalJSON() ([]byte, error) { return o.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (o *Outcome) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, o) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (o *Outcome) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*o = Outcome{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "kind":
			return in.String((*string)(&o.Kind))
		case "message":
			return in.String(&o.Message)
		default:
			return dec.SkipValue()
		}
	})
}

// OutcomeError is an error that knows its [OutcomeKind]. An agent returns one,
// or wraps it, to say that its attempt failed for a reason that is not its own:
// the model was away, the context overflowed, a budget was spent.
type OutcomeError struct {
	Kind OutcomeKind
	Err  error // what happened
}

func (e *OutcomeError) Error() string {
	if e.Err == nil {
		return string(e.Kind)
	}
	return e.Err.Error()
}

func (e *OutcomeError) Unwrap() error { return e.Err }

// OutcomeOf returns the outcome of an agent that ended with err: OutcomeOK for
// nil, the kind of the first [OutcomeError] in the chain, else
// OutcomeAgentError.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Kind: OutcomeOK}
	}
	var typed *OutcomeError
	if errors.As(err, &typed) && typed.Kind != OutcomeOK && slices.Contains(OutcomeKinds(), typed.Kind) {
		return Outcome{Kind: typed.Kind, Message: err.Error()}
	}
	return Outcome{Kind: OutcomeAgentError, Message: err.Error()}
}
