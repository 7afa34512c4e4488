package exchange

import (
	"context"

	"github.com/agl-go/agl/proxy/openai"
)

// Allowance is what the caller of a request may spend.
type Allowance interface {
	// Reserve reserves what a call of a model uses at most. settle must be called once, with
	// what it has used. The error is an *openai.Error, or that of ctx.
	Reserve(ctx context.Context, model string, most Usage) (settle func(used Usage), err error)
}

// BudgetExceeded is the code of the error that refuses a call for which a budget has no room.
const BudgetExceeded = "budget_exceeded"

// bounded returns the most that a request can use. A body that limits no output gets a limit.
func bounded(path string, body []byte) ([]byte, Usage, error) {
	if path == CountTokens {
		return body, Usage{}, nil
	}
	if !Generates(path) {
		return body, Usage{Prompt: openai.PromptBound(body)}, nil
	}
	body, output, err := openai.BoundOutput(body, outputMember(path))
	return body, Usage{Prompt: openai.PromptBound(body), Completion: output}, err
}

// outputMember is the member that limits the output of a request.
func outputMember(path string) string {
	switch formOf(path) {
	case formOf("/responses"):
		return "max_output_tokens"
	case formOf("/chat/completions"):
		return "max_completion_tokens"
	default:
		return "max_tokens"
	}
}

// reserve reserves what the call uses at most, where its caller has a budget.
func (c *call) reserve(ctx context.Context) (err error) {
	if c.allowance != nil {
		c.settle, err = c.allowance.Reserve(ctx, c.serving, c.most)
	}
	return err
}

// settleAllowance settles what the call has used, and what it may have used where nobody
// knows.
func (c *call) settleAllowance() {
	switch {
	case c.settle == nil:
	case c.in.Cached || c.in.Tries == 0 || c.in.Path == CountTokens:
		c.settle(Usage{})
	case !c.in.Delivered && !c.meter.given: // the backend may go on, and asks for its price
		c.settle(c.most)
	default:
		c.settle(c.meter.count())
	}
}
