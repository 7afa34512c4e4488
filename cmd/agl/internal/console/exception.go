package console

import (
	"fmt"
	"io"
	"strings"

	"github.com/agl-go/agl"
)

const exceptionEvent = "exception" // the name of the event in which OpenTelemetry records one

// exceptionOf is the exception that ended a span, as an event of the span; nil if there is none.
func exceptionOf(s *agl.Span) *agl.SpanEvent {
	if s.Status.Code != agl.StatusError {
		return nil
	}
	for i := len(s.Events) - 1; i >= 0; i-- {
		if e := &s.Events[i]; e.Name == exceptionEvent && exceptionText(e) != "" {
			return e
		}
	}
	return nil
}

// exceptionText is the type and the message of an exception.
func exceptionText(e *agl.SpanEvent) string {
	kind, _ := e.Attributes.GetString(agl.AttrExceptionType)
	message, _ := e.Attributes.GetString(agl.AttrExceptionMessage)
	if kind == "" || message == "" {
		return kind + message
	}
	return kind + ": " + message
}

// Stacks writes the stack traces of exceptions that ended spans. If one passed through several spans, only the innermost's is written.
func Stacks(w io.Writer, spans []agl.Span) error {
	passed := map[[2]string]bool{} // by parent and exception
	for i := range spans {
		if e := exceptionOf(&spans[i]); e != nil && spans[i].ParentID.V != "" && stackOf(e) != "" {
			passed[[2]string{spans[i].ParentID.V, exceptionText(e)}] = true
		}
	}
	var b strings.Builder
	for i := range spans {
		s := &spans[i]
		e := exceptionOf(s)
		if e == nil || passed[[2]string{s.SpanID, exceptionText(e)}] {
			continue
		}
		if stack := stackOf(e); stack != "" {
			fmt.Fprintf(&b, "\n%s\n", Strong.Render("exception in "+Printable(s.Name)))
			Block(&b, "  ", "  ", stack)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stackOf is the stack trace of an exception, empty if it has none.
func stackOf(e *agl.SpanEvent) string {
	stack, _ := e.Attributes.GetString(agl.AttrExceptionStacktrace)
	return stack
}
