package exchange

import (
	"context"

	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/upstream"
)

// Allowance is what the caller of a request may spend.
type Allowance interface {
	// Measured reports whether tokens count, so that the most that a call may use must be known.
	Measured() bool
	// Reserve reserves what a call of a model uses at most. If that is much of what is left,
	// exact finds out what its prompt uses exactly; ok is false if it cannot. The error is an
	// *openai.Error, or that of ctx.
	Reserve(ctx context.Context, model string, most Usage, exact func(ctx context.Context) (u Usage, ok bool)) (Reserved, error)
}

// Reserved is what a call may spend. It belongs to one goroutine.
type Reserved interface {
	// Again reserves as much once more, for a request that is repeated although a backend may
	// have executed it: what was reserved for that is spent.
	Again(ctx context.Context) error
	// Settle spends what the request has used, and returns the rest. Nil is all that was
	// reserved. It must be called once.
	Settle(used *Usage)
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

// measured reports whether the tokens of the call count for its caller's budget.
func (c *call) measured() bool { return c.allowance != nil && c.allowance.Measured() }

// again reserves for a repeat of the call.
func (c *call) again(ctx context.Context) error {
	if c.reserved == nil {
		return nil
	}
	return c.reserved.Again(ctx)
}

// outcome takes from a reply what settle needs to know.
func (c *call) outcome(reply *upstream.Reply) { c.lost, c.answered = reply.Lost, reply.Status != 0 }

// settle settles what the call has used: what the backend has counted, nothing if it has
// refused or was not reached, and what was reserved where nobody knows.
func (c *call) settle() {
	if c.reserved == nil {
		return
	}
	used := c.meter.count()
	switch {
	case c.in.Cached || !c.answered && !c.lost || c.in.Path == CountTokens:
		c.reserved.Settle(&Usage{})
	case c.lost || !c.meter.given:
		c.reserved.Settle(nil)
	case c.meter.stream && !c.in.Delivered: // the backend may go on, or has generated more than it has counted
		used.Completion = max(used.Completion, c.most.Completion)
		c.reserved.Settle(&used)
	default:
		c.reserved.Settle(&used)
	}
}
