package agl

import (
	"errors"
	"strings"
)

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

// CallOutcome returns what the reply of a model API, by its HTTP status and its
// body, brings about for an agent that fails after it: OutcomeContextOverflow,
// OutcomeBudget or OutcomeModelError, with the reply's message. The kind is empty
// when the reply is no error, and when the call was rejected as malformed, which
// is the agent's own failure.
func CallOutcome(status int, body []byte) Outcome {
	const (
		clientError, serverError = 400, 500
		enough                   = 500 // of a body of another form
	)
	if status < clientError {
		return Outcome{}
	}
	var doc struct {
		Error callError `json:"error"`
	}
	// Backends differ in the shape of their errors; what does not fit is told as text.
	if DecodeJSON(body, &doc) != nil || doc.Error.Message == "" {
		doc.Error.Message = string(body[:min(len(body), enough)])
	}
	switch o := (Outcome{Message: doc.Error.Message}); {
	case doc.Error.overflow():
		o.Kind = OutcomeContextOverflow
		return o
	case doc.Error.Code == "budget_exceeded": // what the proxy answers when an attempt's budget is spent
		o.Kind = OutcomeBudget
		return o
	case status >= serverError || refusedForNow(status):
		o.Kind = OutcomeModelError
		return o
	default:
		return o
	}
}

// refusedForNow are the errors of the 4xx that are not about what was asked.
func refusedForNow(status int) bool {
	switch status {
	case 401, 402, 403, 404, 408, 409, 425, 429:
		return true
	}
	return false
}

// callError is the error object of OpenAI's API.
type callError struct {
	Message string `json:"message"`
	Code    any    `json:"code"` // a string or, in some backends, a number
}

// overflow reports whether the prompt was too long. There is a code for that,
// which not every backend uses.
func (e callError) overflow() bool {
	if e.Code == "context_length_exceeded" {
		return true
	}
	message := strings.ToLower(e.Message)
	return strings.Contains(message, "maximum context length") || strings.Contains(message, "context length exceeded") ||
		strings.Contains(message, "context window")
}
