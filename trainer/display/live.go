package display

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
)

// live redraws a few lines in place: bars for the warm start, the steps and the
// rollouts of the present step, the pass rate of each form, speed, cost and time
// left.
type live struct {
	program *tea.Program
	log     *Log
	done    chan struct{}
}

// newLive starts the view; it leaves signals and the keyboard alone.
func newLive(o Options) *live {
	l := &live{log: o.Log, done: make(chan struct{})}
	l.program = tea.NewProgram(newView(o), tea.WithInput(nil), tea.WithOutput(o.Out), tea.WithoutSignalHandler())
	l.log.lead(func(text string) { l.program.Println(text) })
	go func() {
		defer close(l.done)
		if _, err := l.program.Run(); err != nil {
			fmt.Fprintln(o.Out, "the live view ended:", err)
		}
	}()
	return l
}

type (
	warmMsg       sft.StepReport
	startMsg      algorithm.Start
	stepMsg       grpo.StepReport
	warningMsg    string
	roundMsg      apo.Round
	taskMsg       baseline.Finished
	tickMsg       time.Time
	validationMsg struct {
		step   int
		report algorithm.Report
	}
	rolloutsMsg struct {
		phase             algorithm.Phase
		step, done, total int
	}
)

func (l *live) OnWarmStart(r sft.StepReport)  { l.program.Send(warmMsg(r)) }
func (l *live) OnStart(s algorithm.Start)     { l.program.Send(startMsg(s)) }
func (l *live) OnStep(r grpo.StepReport)      { l.program.Send(stepMsg(r)) }
func (l *live) OnWarning(w algorithm.Warning) { l.program.Send(warningMsg("warning: " + w.Message)) }
func (l *live) OnNotice(text string)          { l.program.Send(warningMsg(text)) }
func (l *live) OnRound(r apo.Round)           { l.program.Send(roundMsg(r)) }
func (l *live) OnTask(f baseline.Finished)    { l.program.Send(taskMsg(f)) }
func (l *live) OnRollouts(phase algorithm.Phase, step, done, total int) {
	l.program.Send(rolloutsMsg{phase, step, done, total})
}

func (l *live) OnValidation(step int, r algorithm.Report) {
	l.program.Send(validationMsg{step, r})
}

// Close draws the last state and waits until the terminal is the program's no
// more.
func (l *live) Close() {
	l.log.lead(nil)
	l.program.Quit()
	<-l.done
}

// view is what the screen shows.
type view struct {
	Options

	now       time.Time
	warm      sft.StepReport
	rollouts  rolloutsMsg
	step      grpo.StepReport
	firstStep time.Time // when training proper began
	firstDone int       // steps done by then
	before    *algorithm.Report
	latest    *validationMsg // the last one in between, and after
	round     *apo.Round
	task      *baseline.Finished
	warnings  []string
}

func newView(o Options) view { return view{Options: o, now: o.Began} }

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
		if m.phase == algorithm.PhaseTrain && v.firstStep.IsZero() {
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
		} else {
			v.latest = &m
		}
	case roundMsg:
		v.round = (*apo.Round)(&m)
	case taskMsg:
		v.task = (*baseline.Finished)(&m)
	case warningMsg:
		v.warnings = append(v.warnings, string(m))
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
	if v.WarmSteps > 0 {
		warm := fmt.Sprintf("%s %d/%d", bar(v.warm.Step, v.WarmSteps), v.warm.Step, v.WarmSteps)
		if v.warm.Step > 0 {
			warm += fmt.Sprintf("  loss %.3f  %s", v.warm.Loss, dimStyle.Render(left(v.now.Sub(v.Began), v.warm.Step, v.WarmSteps)))
		}
		line("warm start", warm)
	}
	if v.Steps > 0 {
		v.drawSteps(line)
	}
	if v.Rounds > 0 {
		v.drawRounds(line)
	}
	if v.task != nil {
		line("tasks", fmt.Sprintf("%s %d/%d  %s", bar(v.task.Done, v.task.Total), v.task.Done, v.task.Total,
			dimStyle.Render(v.timeLeft(v.Began, v.task.Done-v.task.Earlier, v.task.Total-v.task.Earlier))))
		line("reward", fmt.Sprintf("%s  %d failed", meanReward(*v.task), v.task.Failed))
	}
	if v.Tokens != nil {
		if t := v.Tokens(); t.Calls > 0 {
			line("cost", t.String())
		}
	}
	for _, w := range v.warnings {
		b.WriteString(warnStyle.Render(w) + "\n")
	}
	return tea.NewView(b.String())
}

// drawSteps draws reinforcement learning.
func (v view) drawSteps(line func(label, text string)) {
	if v.before != nil {
		line("before", withForms(fmt.Sprintf("pass rate %.2f", v.before.PassRate), v.before.Forms))
	}
	rest := dimStyle.Render(v.timeLeft(v.firstStep, v.step.Step-v.firstDone, v.Steps-v.firstDone))
	line("steps", fmt.Sprintf("%s %d/%d  %s", bar(v.step.Step, v.Steps), v.step.Step, v.Steps, rest))
	what := "rollouts"
	if v.rollouts.phase == algorithm.PhaseValidation {
		what = "validation"
	}
	line(what, fmt.Sprintf("%s %d/%d", bar(v.rollouts.done, v.rollouts.total), v.rollouts.done, v.rollouts.total))
	if v.step.Rollouts > 0 {
		line("reward", fmt.Sprintf("%.2f  pass rate %.2f  %.0f tokens/s  %d masked",
			v.step.RewardMean, v.step.PassRate, v.step.TokensPerSecond, sumMasked(v.step.Masked)))
		for _, name := range slices.Sorted(maps.Keys(v.step.Forms)) {
			r := v.step.Forms[name].PassRate
			line("  "+name, fmt.Sprintf("%s %.2f", bar(int(r*100), 100), r))
		}
	}
	if v.latest != nil {
		line("validation", fmt.Sprintf("pass rate %.2f after step %d", v.latest.report.PassRate, v.latest.step))
	}
}

// drawRounds draws a search for prompts.
func (v view) drawRounds(line func(label, text string)) {
	done := 0
	if v.round != nil {
		done = v.round.Round
	}
	line("rounds", fmt.Sprintf("%s %d/%d  %s", bar(done, v.Rounds), done, v.Rounds, dimStyle.Render(v.timeLeft(v.Began, done, v.Rounds))))
	if v.round != nil {
		line("best", fmt.Sprintf("%s  gain %s", v.round.Best, Gain(v.round.Gain)))
		line("model calls", spent(v.round.Spent))
	}
}

// timeLeft tells how long the run has taken and guesses the rest from what was
// done since a moment: the first ones are like the last.
func (v view) timeLeft(since time.Time, done, total int) string {
	text := fmt.Sprintf("%s so far", v.now.Sub(v.Began).Round(time.Second))
	if rest := left(v.now.Sub(since), done, total); rest != "" && !since.IsZero() {
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
