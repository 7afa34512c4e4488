package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/agl-go/agl/cmd/agl/internal/console"
)

type manCommand struct{}

func (manCommand) describe(out *console.Console, app *kong.Application) error {
	return out.Printf("%s", manPage(app))
}

// manPage writes the declarations of all commands as a manual page.
func manPage(app *kong.Application) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH AGL 1 \"\" %s\n.SH NAME\nagl \\- train AI agents\n.SH SYNOPSIS\n.B agl\n.I command\n[\\fIflags\\fR]\n.SH DESCRIPTION\n%s\n.SH COMMANDS\n",
		roffQuote("agl "+version()), roff(app.Help))
	for _, leaf := range app.Leaves(true) {
		fmt.Fprintf(&b, ".SS %s\n%s\n", roffQuote(leaf.Summary()), roff(leaf.Help))
		if detail := strings.TrimSpace(leaf.Detail); detail != "" {
			fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", roff(detail))
		}
		for _, argument := range leaf.Positional {
			fmt.Fprintf(&b, ".TP\n%s\n%s\n", roff(argument.Summary()), roff(argument.Help))
		}
		for _, flag := range flagsOf(leaf) {
			if flag.Name == "help" {
				continue
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(flag.String()), roff(flag.Help))
		}
	}
	return b.String()
}

// roff escapes text: no line of it is a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func roffQuote(text string) string {
	return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"`
}
