package jinja

import "fmt"

// Kind says what kind of failure an [Error] is.
type Kind int

// The kinds of failure.
const (
	// Syntax is a template that cannot be parsed, or that uses what this package does not support.
	Syntax Kind = iota + 1
	// Runtime is an operation that Python refuses: a missing method, text plus None, a division by zero.
	Runtime
	// Raised is what the template itself refused, by raise_exception.
	Raised
	// Limit is a template that took more than its [Limits].
	Limit
)

func (k Kind) String() string {
	switch k {
	case Syntax:
		return "syntax error"
	case Runtime:
		return "error"
	case Raised:
		return "raised"
	case Limit:
		return "limit"
	default:
		return fmt.Sprintf("kind %d", int(k))
	}
}

// Error is what [Parse] and [Template.Render] return.
type Error struct {
	Kind Kind
	// Line is the line of the template, from 1; 0 if the failure belongs to none.
	Line    int
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("jinja: %s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("jinja: line %d: %s: %s", e.Line, e.Kind, e.Message)
}

// Inside the package failures are panics with an *Error, as in text/template: an expression has dozens of
// places that can fail. Parse and Render turn them into errors, and let every other panic pass.

// rescue is deferred by the entry points.
func rescue(err *error) {
	switch e := recover().(type) {
	case nil:
	case *Error:
		*err = e
	default:
		panic(e)
	}
}

func failSyntaxf(line int, format string, args ...any) {
	panic(&Error{Kind: Syntax, Line: line, Message: fmt.Sprintf(format, args...)})
}
