package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
)

// live redraws a few lines in place: bars for the warm start, the steps and the
// rollouts of the present step, the pass rate of each form, speed and time left.
type live struct {
	grpo.UnimplementedProgress
	program *tea.Program
	done    chan struct{}
}

// newLive starts the view; it leaves signals and the keyboard alone.
func newLive(out io.Writer, warmSteps, steps int) *live {
	l := &live{done: make(chan struct{})}
	now := time.Now()
	model := view{warmSteps: warmSteps, steps: steps, began: now, now: now}
	l.program = tea.NewProgram(model, tea.WithInput(nil), tea.WithOutput(out), tea.WithoutSignalHandler())
	go func() {
		defer close(l.done)
		if _, err := l.program.Run(); err != nil {
			fmt.Fprintln(out, "the live view ended:", err)
		}
	}()
	return l
}

type (
	warmMsg       sft.StepReport
	startMsg      grpo.Start
	stepMsg       grpo.StepReport
	warningMsg    grpo.Warning
	tickMsg       time.Time
	validationMsg struct {
		step   int
		report algorithm.Report
	}
	rolloutsMsg struct {
		phase             grpo.Phase
		step, done, total int
	}
)

func (l *live) OnWarmStart(r sft.StepReport) { l.program.Send(warmMsg(r)) }
func (l *live) OnStart(s grpo.Start)         { l.program.Send(startMsg(s)) }
func (l *live) OnStep(r grpo.StepReport)     { l.program.Send(stepMsg(r)) }
func (l *live) OnWarning(w grpo.Warning)     { l.program.Send(warningMsg(w)) }
func (l *live) OnRollouts(phase grpo.Phase, step, done, total int) {
	l.program.Send(rolloutsMsg{phase, step, done, total})
}

func (l *live) OnValidation(step int, r algorithm.Report) {
	l.program.Send(validationMsg{step, r})
}

// Close draws the last state and waits until the terminal is the program's no
// more.
func (l *live) Close() {
	l.program.Quit()
	<-l.done
}

// view is what the screen shows.
type view struct {
	warmSteps, steps int
	began, now       time.Time
	warm             sft.StepReport
	rollouts         rolloutsMsg
	step             grpo.StepReport
	firstStep        time.Time // when training proper began
	firstDone        int       // steps done by then
	before           *algorithm.Report
	warnings         []string
}

const redraw = 100 * time.Millisecond

func tick() tea.Cmd { return tea.Tick(redraw, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Init starts the clock.
func (v view) Init() tea.Cmd { return tick() }

// Update takes what happened.
func (v view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tickMsg:
		v.now = time.Time(m)
		return v, tick()
	case warmMsg:
		v.warm = sft.StepReport(m)
	case startMsg:
		v.step.Step, v.firstDone = m.Step, m.Step
		v.before = m.Before
	case rolloutsMsg:
		if m.phase == grpo.PhaseTrain && v.firstStep.IsZero() {
			v.firstStep = time.Now()
		}
		v.rollouts = m
	case stepMsg:
		if m.Step > 0 {
			v.step = grpo.StepReport(m)
		}
	case validationMsg:
		if m.step == 0 {
			v.before = &m.report
		}
	case warningMsg:
		v.warnings = append(v.warnings, m.Message)
	}
	return v, nil
}

var (
	labelStyle = lipgloss.NewStyle().Bold(true)
	dimStyle   = lipgloss.NewStyle().Faint(true)
	goodStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	warnStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
)

// View draws the screen.
func (v view) View() tea.View {
	var b strings.Builder
	line := func(label, text string) {
		fmt.Fprintf(&b, "%s %s\n", labelStyle.Render(fmt.Sprintf("%-11s", label)), text)
	}
	warm := fmt.Sprintf("%s %d/%d", bar(v.warm.Step, v.warmSteps), v.warm.Step, v.warmSteps)
	if v.warm.Step > 0 {
		warm += fmt.Sprintf("  loss %.3f  %s", v.warm.Loss, dimStyle.Render(left(v.now.Sub(v.began), v.warm.Step, v.warmSteps)))
	}
	line("warm start", warm)
	if v.before != nil {
		line("before", fmt.Sprintf("pass rate %.2f, %s", v.before.PassRate, formRates(v.before.Forms)))
	}
	line("steps", fmt.Sprintf("%s %d/%d  %s", bar(v.step.Step, v.steps), v.step.Step, v.steps, dimStyle.Render(v.timeLeft())))
	what := "rollouts"
	if v.rollouts.phase == grpo.PhaseValidation {
		what = "validation"
	}
	line(what, fmt.Sprintf("%s %d/%d", bar(v.rollouts.done, v.rollouts.total), v.rollouts.done, v.rollouts.total))
	if v.step.Rollouts > 0 {
		line("reward", fmt.Sprintf("%.2f  %.0f tokens/s  %d masked", v.step.RewardMean, v.step.TokensPerSecond, sumMasked(v.step.Masked)))
		for _, name := range slices.Sorted(maps.Keys(v.step.Forms)) {
			r := v.step.Forms[name].PassRate
			line("  "+name, fmt.Sprintf("%s %.2f", bar(int(r*100), 100), r))
		}
	}
	for _, w := range v.warnings {
		b.WriteString(warnStyle.Render("warning: "+w) + "\n")
	}
	return tea.NewView(b.String())
}

// timeLeft tells how long the run has taken and guesses the rest from the steps
// so far; the first ones are like the last.
func (v view) timeLeft() string {
	text := fmt.Sprintf("%s so far", v.now.Sub(v.began).Round(time.Second))
	if rest := left(v.now.Sub(v.firstStep), v.step.Step-v.firstDone, v.steps-v.firstDone); rest != "" && !v.firstStep.IsZero() {
		text += ", " + rest
	}
	return text
}

// left guesses how long the rest takes; it is empty before the first step and
// after the last.
func left(elapsed time.Duration, done, total int) string {
	if done < 1 || done >= total {
		return ""
	}
	return fmt.Sprintf("about %s left", (elapsed / time.Duration(done) * time.Duration(total-done)).Round(time.Second))
}

const barWidth = 30

func bar(done, total int) string {
	full := 0
	if total > 0 {
		full = min(barWidth, done*barWidth/total)
	}
	return goodStyle.Render(strings.Repeat("█", full)) + dimStyle.Render(strings.Repeat("░", barWidth-full))
}
