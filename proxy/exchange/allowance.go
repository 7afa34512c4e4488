package exchange

import (
	"context"

	"github.com/agl-go/agl/proxy/openai"
)

// Allowance is the budget of whoever makes a call: a key, or the subject of one.
type Allowance interface {
	// Measured reports whether the budget counts tokens, so that every call needs an upper
	// bound.
	Measured() bool
	// Reserve reserves the upper bound of a call of a model. If little of the budget is left,
	// Reserve may call exact for a tighter bound; ok is false if there is none. The error is an
	// *openai.Error, or that of ctx.
	Reserve(ctx context.Context, model string, most Usage, exact func(ctx context.Context) (u Usage, ok bool)) (Reserved, error)
}

// Reserved is the reservation of one call. It belongs to one goroutine.
type Reserved interface {
	// Again spends the reservation and makes another of the same size, for a request that is
	// repeated although a backend may have executed it.
	Again(ctx context.Context) error
	// Settle spends what the request has used and returns the rest. Nil spends the whole
	// reservation. It must be called once.
	Settle(used *Usage)
}

// bounded returns an upper bound of what a request can use, and the body, which gets a limit
// of its output if it has none.
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

// outputMember returns the name of the member that limits the output of a request.
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

// again makes the reservation for a repeat of the request.
func (c *call) again(ctx context.Context) error {
	if c.reserved == nil {
		return nil
	}
	return c.reserved.Again(ctx)
}

// settle spends what the call has used: the backend's count; nothing if the backend refused
// the call or was not reached; the whole reservation if the usage is unknown.
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
	default:
		if c.meter.stream && !c.in.Delivered { // the backend may still generate, or has generated more than it counted
			used.Completion = max(used.Completion, c.most.Completion)
		}
		c.reserved.Settle(&used)
	}
}
