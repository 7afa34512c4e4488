package exchange

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
)

// Allowance is what the caller of a request may spend.
type Allowance interface {
	// Reserve reserves what a call of a model uses at most. settle must be called once, with
	// what it has used. The error is an *openai.Error, or that of ctx.
	Reserve(ctx context.Context, model string, most Usage) (settle func(used Usage), err error)
}

// DefaultOutput is the output limit, in tokens, that a call gets which sets none itself and
// whose caller's budget must hold.
const DefaultOutput = 4096

// BudgetExceeded is the code of the error that refuses a call for which a budget has no room.
const BudgetExceeded = "budget_exceeded"

// maxOutput bounds the numbers in a request, so that their product fits an int64.
const maxOutput = math.MaxInt32

// bounded returns the most that a request can use. A body that limits no output gets a
// limit. No tokenizer makes more tokens of a text than it has bytes, and the members around
// a message have more bytes than a chat format has tokens for them.
func bounded(path string, body []byte) ([]byte, Usage, error) {
	if path == CountTokens {
		return body, Usage{}, nil
	}
	if !Generates(path) {
		return body, Usage{Prompt: int64(len(body))}, nil
	}
	var output, choices, prompts int64 = 0, 1, 1
	var wrong *openai.Error
	number := func(name string, value []byte, to *int64) {
		if string(value) == "null" {
			return
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 1 || n > maxOutput {
			wrong = invalid(http.StatusBadRequest, "invalid_body", fmt.Sprintf("%s: got %.40s, must be a number between 1 and %d, because the key of this call has a budget", name, value, maxOutput))
			wrong.Param = name
			return
		}
		*to = max(*to, n)
	}
	openai.Members(body, func(raw, value []byte) {
		switch name := openai.Unquote([]byte(`"` + string(raw) + `"`)); name {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			number(name, value, &output)
		case "n", "best_of":
			number(name, value, &choices)
		case "prompt":
			prompts = max(prompts, openai.Prompts(value))
		}
	})
	if wrong != nil {
		return nil, Usage{}, wrong
	}
	if output == 0 {
		output = DefaultOutput
		body = withMember(body, outputMember(path), strconv.Itoa(DefaultOutput))
	}
	if choices > maxOutput/prompts {
		return nil, Usage{}, invalid(http.StatusBadRequest, "invalid_body", fmt.Sprintf("n: %d replies to %d prompts are too many", choices, prompts))
	}
	return body, Usage{Prompt: int64(len(body)), Completion: output * choices * prompts}, nil
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

// withMember returns an object with one more member. A body that is no object is returned
// as it is, and refused by whoever reads it next.
func withMember(body []byte, name, value string) []byte {
	end := len(body) - 1
	for end >= 0 && (body[end] == ' ' || body[end] == '\n' || body[end] == '\t' || body[end] == '\r') {
		end--
	}
	if end < 1 || body[end] != '}' {
		return body
	}
	out := append(make([]byte, 0, len(body)+len(name)+len(value)+4), body[:end]...) //nolint:mnd // quotes, colon and comma
	return append(append(append(append(append(out, `,"`...), name...), `":`...), value...), '}')
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
