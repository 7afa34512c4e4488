package tracer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/agl-go/agl"
)

// ModelFailure returns how the last model call of the trace in ctx failed, or
// nil if it did not, or none was made. It lets a runner tell an agent that
// failed from one whose model did, whatever SDK the agent uses. A call that the
// backend rejected as malformed is the agent's own failure and gives nil.
func ModelFailure(ctx context.Context) *agl.OutcomeError {
	if t, ok := FromContext(ctx); ok {
		return t.failure.Load()
	}
	return nil
}

// callFailure is a model call that went wrong.
type callFailure struct {
	cause error
	typed *agl.OutcomeError // nil when the model is not to blame
}

func modelFailure(cause error) *callFailure {
	return &callFailure{cause: cause, typed: &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: cause}}
}

// outcome reads the reply and tells whether the call went wrong.
func (c *chatCall) outcome(err error) (chatReply, *callFailure) {
	if err != nil && !errors.Is(err, io.EOF) {
		var reply chatReply
		if c.streamed {
			reply, _ = parseStream(c.replyBytes()) // err is the better reason
		}
		if c.done() != nil || agl.IsContextError(err) {
			return reply, &callFailure{cause: err}
		}
		return reply, modelFailure(err)
	}
	body := c.replyBytes()
	if c.status >= http.StatusBadRequest {
		return chatReply{}, statusFailure(c.status, body)
	}
	parse := parseReply
	if c.streamed {
		parse = parseStream
	}
	reply, parseErr := parse(body)
	if parseErr != nil && !c.truncated && err != nil {
		// The whole reply came, and it is garbage.
		return reply, modelFailure(parseErr)
	}
	return reply, nil
}

// statusFailure classifies an error reply.
func statusFailure(status int, body []byte) *callFailure {
	var doc struct {
		Error apiError `json:"error"`
	}
	// Backends differ in the shape of their errors; what does not fit is told as text.
	if agl.DecodeJSON(body, &doc) != nil || doc.Error.Message == "" {
		const enough = 500
		doc.Error.Message = string(body[:min(len(body), enough)])
	}
	cause := fmt.Errorf("HTTP %d %s: %s", status, http.StatusText(status), doc.Error.Message)
	switch {
	case doc.Error.overflow():
		return &callFailure{cause: cause, typed: &agl.OutcomeError{Kind: agl.OutcomeContextOverflow, Err: cause}}
	case doc.Error.Code == "budget_exceeded": // what the proxy answers when a rollout's budget is spent
		return &callFailure{cause: cause, typed: &agl.OutcomeError{Kind: agl.OutcomeBudget, Err: cause}}
	case status >= http.StatusInternalServerError:
		return modelFailure(cause)
	}
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return modelFailure(cause)
	}
	return &callFailure{cause: cause}
}

// apiError is the error object of OpenAI's API.
type apiError struct {
	Message string `json:"message"`
	Code    any    `json:"code"` // a string or, in some backends, a number
}

// overflow reports whether the prompt was too long. There is a code for that,
// which not every backend uses.
func (e apiError) overflow() bool {
	if e.Code == "context_length_exceeded" {
		return true
	}
	message := strings.ToLower(e.Message)
	return strings.Contains(message, "maximum context length") || strings.Contains(message, "context length exceeded") ||
		strings.Contains(message, "context window")
}
