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

// helpText is what --help and the manual page say of each command beside its flags. The part of a command begins with "# " and its full name.
// The lines of a paragraph are joined; indented lines stay as they are.
//
//go:embed help.txt
var helpText string

// describeCommands gives each command its part of helpText.
func describeCommands(app *kong.Application) error {
	withinParagraph := regexp.MustCompile(`(\S)\n(\S)`)
	details := map[string]string{} // by command
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.ReplaceAll(helpText, "\r\n", "\n"), "# "), "\n# ") {
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
		err = fmt.Errorf("help.txt: got parts for %q, each must be a command such as \"agl store\"", slices.Sorted(maps.Keys(details)))
	}
	return err
}
