package jinja

import "fmt"

// Kind says what kind of failure an [Error] is.
type Kind int

// The kinds of failure.
const (
	// Syntax is a template that cannot be parsed, or that uses what this package does not support.
	Syntax Kind = iota + 1
	// Runtime is an operation that Python refuses, such as a division by zero or a string plus None.
	Runtime
	// Raised is an error that the template raises by raise_exception.
	Raised
	// Limit is a template that exceeds its [Limits].
	Limit
)

func (k Kind) String() string {
	return map[Kind]string{Syntax: "syntax error", Runtime: "error", Raised: "raised", Limit: "limit"}[k]
}

// Error is what [Parse] and [Template.Render] return.
type Error struct {
	Kind Kind
	// Line is the line in the template, from 1, or 0 if there is none.
	Line    int
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("jinja: %s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("jinja: line %d: %s: %s", e.Line, e.Kind, e.Message)
}
