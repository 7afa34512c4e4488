// Package syntax parses the source of a template into a tree. It knows the grammar of Jinja2 3.1 and nothing of values.
//
// [Parse] calls lexer.go, which cuts the source into tokens and removes white space around tags. statement.go reads
// statements and expression.go expressions, both by means of parser.go, into the nodes of node.go.
package syntax

import "fmt"

// Error says why a source cannot be parsed.
type Error struct {
	Line    int // from 1
	Message string
}

func failf(line int, format string, args ...any) {
	panic(&Error{Line: line, Message: fmt.Sprintf(format, args...)})
}
