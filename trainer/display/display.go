// Package display shows a training run to a person while it goes on: bars that are
// redrawn on a terminal, a line per step anywhere else, and a curve at the end.
//
// It must not know how a run is made, nor keep anything of it but the curve.
package display

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
)

// Display is told what a run does. Calls may come from several goroutines.
type Display interface {
	// OnStart, OnRollouts, OnValidation and OnWarning are those of algorithm.Progress.
	OnStart(s algorithm.Start)
	OnRollouts(phase algorithm.Phase, step, done, total int)
	OnValidation(step int, r algorithm.Report)
	OnWarning(w algorithm.Warning)
	// OnStep is called after each step of reinforcement learning.
	OnStep(r grpo.StepReport)
	// OnWarmStart is called after each step of supervised training that comes first.
	OnWarmStart(r sft.StepReport)
	// OnRound is called after each round of a search for prompts.
	OnRound(r apo.Round)
	// OnTask is called as each task of a trial run is done.
	OnTask(f baseline.Finished)
	// OnNotice is called when a person should read something.
	OnNotice(text string)
	// Close ends a live view; what is printed afterwards stays below it.
	Close()
}

// Progress makes a display hear the runs of an algorithm.
func Progress(d Display) algorithm.Progress {
	return algorithm.Progress{OnStart: d.OnStart, OnRollouts: d.OnRollouts, OnValidation: d.OnValidation, OnWarning: d.OnWarning}
}

// Options configure a [Display]. Every field but Out may be zero.
type Options struct {
	Out io.Writer
	// WarmSteps and Steps are how many there will be; zero draws no bar of them.
	// Rounds are those of a search for prompts.
	WarmSteps, Steps, Rounds int
	// Began is when the run began; zero is now.
	Began time.Time
	// Tokens, if not nil, tells the tokens of all model calls so far. It must not
	// block.
	Tokens func() Tokens
	// Log, if not nil, is that of a program whose log is read on the same terminal.
	Log *Log
}

// Tokens are what model calls have used.
type Tokens struct {
	Calls, Prompt, Completion int64
}

func (t Tokens) String() string {
	return fmt.Sprintf("%s tokens (%s prompt, %s completion) in %s calls",
		Count(t.Prompt+t.Completion), Count(t.Prompt), Count(t.Completion), Count(t.Calls))
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

// Count writes a number with a space between each three digits.
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

// withForms appends the breakdown by form, if there is one.
func withForms(text string, forms map[string]algorithm.Rate) string {
	if len(forms) == 0 {
		return text
	}
	return text + ", " + Forms(forms)
}

func sumMasked(masked map[algorithm.Mask]int) int {
	n := 0
	for _, c := range masked {
		n += c
	}
	return n
}

// Curve is a [Display] that also collects the pass rate of each step.
type Curve struct {
	Display
	// Values are the pass rates, the last of which is that of Last.
	Values []float64
	Last   int
}

// OnStep implements [Display].
func (c *Curve) OnStep(s grpo.StepReport) {
	if s.Step > 0 {
		c.Values, c.Last = append(c.Values, s.PassRate), s.Step
	}
	c.Display.OnStep(s)
}

// String draws the curve for a terminal; it is empty where there are no steps.
func (c *Curve) String() string {
	const columns, rows = 70, 8
	return chart(c.Last-len(c.Values)+1, c.Values, columns, rows)
}
