// Package markdown makes text fit into a Markdown report.
package markdown

import (
	"strings"

	"github.com/agl-go/agl/internal/terminal"
)

// Cell makes text fit into one cell of a table.
func Cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|", "`", "'").Replace(terminal.Safe(s))
}

// Fenced writes a text as it is, in a code block.
func Fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + strings.TrimRight(terminal.Safe(text), "\n") + "\n" + fence + "\n"
}
