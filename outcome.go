package agl

import "errors"

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
	if errors.As(err, &typed) && typed.Kind != OutcomeOK && contains(OutcomeKinds(), typed.Kind) {
		return Outcome{Kind: typed.Kind, Message: err.Error()}
	}
	return Outcome{Kind: OutcomeAgentError, Message: err.Error()}
}
