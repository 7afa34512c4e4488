package tracer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/modelerror"
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
	o := modelerror.Outcome(status, body)
	cause := fmt.Errorf("HTTP %d %s: %s", status, http.StatusText(status), o.Message)
	if o.Kind == "" {
		return &callFailure{cause: cause}
	}
	return &callFailure{cause: cause, typed: &agl.OutcomeError{Kind: o.Kind, Err: cause}}
}
