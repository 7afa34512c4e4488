// Package display shows a person how a run proceeds: bars and rows that are
// redrawn on a terminal, one line per step anywhere else.
//
// Whoever runs something reports an [Update] at each step. The package must not know what is run.
package display

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl/algorithm"
)

// Display shows a run. Its methods may be called from several goroutines.
type Display interface {
	// Update shows how the run stands.
	Update(u Update)
	// Notice shows a text that a person should read.
	Notice(text string)
	// Close ends a live view; what is printed afterwards stays below it.
	Close()
}

// Update is how a run stands after something has happened.
type Update struct {
	// Line is printed where there is no live view, with time and tokens; empty prints nothing.
	Line string
	// Rows replace those rows of a live view that have the same labels. New ones are added below.
	Rows []Row
}

// Row is a row of a live view.
type Row struct {
	Label string
	// Done of Total draws a bar; a zero Total draws none.
	Done, Total int
	// Text follows the bar.
	Text string
	// Timed adds the time so far and an estimate of the rest, by the progress since
	// the last update before Done changed for the first time.
	Timed bool
}

// Options configure a [Display]. Every field but Out may be zero.
type Options struct {
	Out io.Writer
	// Began is the beginning of the run; zero means now.
	Began time.Time
	// Tokens returns the tokens of all model calls so far; nil shows none. It must not block.
	Tokens func() Tokens
	// Log is a log that is shown on the same terminal; nil is none.
	Log *Log
}

// Tokens is the usage of model calls.
type Tokens struct {
	Calls, Prompt, Completion int64
}

func (t Tokens) String() string {
	return fmt.Sprintf("%s (%s prompt, %s completion) in %s",
		Plural(t.Prompt+t.Completion, "token"), Count(t.Prompt), Count(t.Completion), Plural(t.Calls, "call"))
}

// New makes a display: a live view on a terminal, lines of text otherwise.
func New(terminal bool, o Options) Display {
	if o.Began.IsZero() {
		o.Began = time.Now()
	}
	if terminal {
		return newLive(o)
	}
	return &plain{Options: o}
}

// Count writes a number with a space between groups of three digits.
func Count(n int64) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if left := len(digits) - i; i > 0 && left%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// Plural writes a number of things, whose name is given in the singular.
func Plural[N int | int64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Count(int64(n)) + " " + thing
}

// Rate writes a pass rate with its interval.
func Rate(r algorithm.Rate) string {
	return fmt.Sprintf("%.3f of %d (95%% interval %.3f to %.3f)", r.PassRate, r.N, r.CI95[0], r.CI95[1])
}

// Forms writes the pass rate of each form of task.
func Forms(forms map[string]algorithm.Rate) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, forms[name].PassRate))
	}
	return strings.Join(parts, " ")
}
