package main

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// helpText is what --help and the manual page say of a command beside its flags. Below a line with the command's name are
// paragraphs, and indented lines, which stay lines.
//
//go:embed help.txt
var helpText string

// describeCommands gives each command its part of helpText.
func describeCommands(app *kong.Application) error {
	withinParagraph := regexp.MustCompile(`(\S)\n(\S)`)
	details := map[string]string{} // by command
	for part := range strings.SplitSeq(strings.TrimPrefix(helpText, "# "), "\n# ") {
		command, text, _ := strings.Cut(part, "\n")
		details[command] = withinParagraph.ReplaceAllString(strings.TrimSpace(text), "$1 $2")
	}
	err := kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if command, ok := node.(*kong.Node); ok {
			command.Detail = details[command.FullPath()]
			delete(details, command.FullPath())
		}
		return next(nil)
	})
	if err == nil && len(details) > 0 {
		err = fmt.Errorf("help.txt is about %q, which are no commands", slices.Sorted(maps.Keys(details)))
	}
	return err
}
