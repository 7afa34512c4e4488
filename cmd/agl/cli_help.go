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

// nameProgram makes help name the program as a person types it.
func nameProgram(app *kong.Application, name string) error {
	commands := make([]string, len(app.Children))
	for i, child := range app.Children {
		commands[i] = child.Name
	}
	own := regexp.MustCompile(`\b` + app.Name + `( (?:` + strings.Join(commands, "|") + `)\b|\.fish\b)`)
	app.Name = name
	return kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		switch node := node.(type) {
		case *kong.Node:
			node.Help, node.Detail = own.ReplaceAllString(node.Help, name+"$1"), own.ReplaceAllString(node.Detail, name+"$1")
		case *kong.Value:
			node.Help = own.ReplaceAllString(node.Help, name+"$1")
		}
		return next(nil)
	})
}
