// Package console writes the output of commands for people and scripts: standard output and error, tables, trees of spans,
// JSON without secret keys, new files, and text of unknown origin in a form that is safe on a terminal.
//
// It must not know commands, flags or stores.
package console

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"github.com/agl-go/agl/internal/terminal"
)

// Console is where a command writes.
type Console struct {
	Out, Err io.Writer
	// Listening, if not nil, is called with the base URL of a server that has started.
	Listening func(url string)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// CanRedraw reports whether w is a terminal that can be drawn on again and has a size.
func CanRedraw(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || !IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return false
	}
	width, height, err := term.GetSize(f.Fd())
	return err == nil && width > 0 && height > 0
}

// Printf writes to standard output, without what a terminal would take for a command. A closed reader, such as a pager, is an error like any other.
func (c *Console) Printf(format string, args ...any) error {
	return c.print(terminal.Safe(fmt.Sprintf(format, args...)))
}

func (c *Console) print(text string) error {
	_, err := io.WriteString(c.Out, text)
	return outputError(err)
}

// Summarize writes one line to standard error, for commands whose standard output may be the result itself.
func (c *Console) Summarize(format string, args ...any) error {
	if _, err := fmt.Fprintln(c.Err, terminal.Safe(fmt.Sprintf("agl: "+format, args...))); err != nil {
		return fmt.Errorf("write to standard error: %w", err)
	}
	return nil
}

// Document is a value that can write itself as JSON.
type Document interface {
	AppendJSON(dst []byte) []byte
}

// JSON prints a document on a line of its own, with its keys replaced by [Redacted].
func (c *Console) JSON(doc Document) error {
	text, err := RedactJSON(doc.AppendJSON(nil))
	if err != nil {
		return err
	}
	return c.print(terminal.SafeJSON(string(text)) + "\n")
}

// Styled calls write with a buffered standard output that removes the styles which the terminal cannot show, or all if there
// is no terminal. A style must be written in one piece.
func (c *Console) Styled(write func(w io.Writer) error) error {
	buffer := bufio.NewWriter(c.Out)
	err := write(&colorprofile.Writer{Forward: buffer, Profile: colorprofile.Detect(c.Out, os.Environ())})
	if err == nil {
		err = buffer.Flush()
	}
	return outputError(err)
}

// OutputError is why standard output cannot be written.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "write to standard output: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

func outputError(err error) error {
	if err != nil {
		return &OutputError{err}
	}
	return nil
}
