package quota

import (
	"fmt"
	"net/http"

	"github.com/agl-go/agl/proxy/openai"
)

// Budget limits what one attempt may spend. Zero is unlimited. A call that is running
// when the time is over is cancelled at its backend, and so is a stream whose tokens
// exceed the budget; an agent that has received part of the reply sees the connection
// close. The tokens of a reply that does not stream are known only at its end, so they
// count for later calls.
type Budget struct {
	Calls int64 `json:"calls,omitzero"`
	// Tokens is for prompts and replies together.
	Tokens int64 `json:"tokens,omitzero"`
	// Seconds is counted from the start of the attempt's first call.
	Seconds float64    `json:"seconds,omitzero"`
	Over    OverBudget `json:"over,omitzero"`
}

// ExceededCode is the code of the error that answers a call over a budget.
const ExceededCode = "budget_exceeded"

// OverBudget says how a call is answered when the budget is spent. Either way the
// header Agl-Outcome says "budget", and so does the record.
type OverBudget string

// The answers to calls over a budget.
const (
	// OverError is an error with status 429 that tells clients not to retry.
	OverError OverBudget = ""
	// OverLength is an empty reply with the finish reason length, so that an agent that
	// cannot handle errors ends as if the model had reached its length limit.
	OverLength OverBudget = "length"
)

// SpentError says which budget of an attempt is spent. It wraps the *openai.Error
// that answers a call with OverError.
type SpentError struct {
	Over   OverBudget
	answer *openai.Error
}

func (e *SpentError) Error() string { return e.answer.Message }

func (e *SpentError) Unwrap() error { return e.answer }

func (b *Budget) spent(format string, args ...any) *SpentError {
	message := fmt.Sprintf("the attempt's budget of "+format, args...)
	return &SpentError{b.Over, openai.NewError(http.StatusTooManyRequests, openai.RateLimitError, ExceededCode, message)}
}

func (b *Budget) tokensSpent(used int64) *SpentError {
	return b.spent("%d tokens is spent: it has used %d", b.Tokens, used)
}

func (b *Budget) timeSpent() *SpentError { return b.spent("%v seconds is spent", b.Seconds) }
