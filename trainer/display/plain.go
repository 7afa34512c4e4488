package display

import (
	"fmt"
	"sync"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
)

// plain prints one line per step, for logs and pipes.
type plain struct {
	Options

	mu      sync.Mutex // one line at a time
	printed int        // twentieths of a trial run that have a line
}

func (p *plain) linef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.Out, format+"\n", args...)
}

// warmStartLines is the number of steps of the warm start per line: they take
// milliseconds each.
const warmStartLines = 100

func (p *plain) OnWarmStart(r sft.StepReport) {
	if r.Step%warmStartLines == 0 || r.Step == r.Steps {
		p.linef("warm start %4d/%d  loss %.3f  %s", r.Step, r.Steps, r.Loss, p.elapsed())
	}
}

func (p *plain) OnStart(s algorithm.Start) {
	if s.Resumed {
		p.linef("resumes after step %d of %d", s.Step, s.Steps)
	}
}

func (p *plain) OnStep(r grpo.StepReport) {
	if r.Step == 0 {
		return // the validation before training has a line of its own
	}
	forms := ""
	if len(r.Forms) > 0 {
		forms = "  " + Forms(r.Forms)
	}
	p.linef("step %4d/%d  reward %.3f  pass %.3f%s  masked %d  %.0f tokens/s%s  %s",
		r.Step, r.Steps, r.RewardMean, r.PassRate, forms, sumMasked(r.Masked), r.TokensPerSecond, p.cost(), p.elapsed())
}

func (p *plain) OnRollouts(algorithm.Phase, int, int, int) {}

func (p *plain) OnValidation(step int, r algorithm.Report) {
	p.linef("validation after step %d: pass rate %s", step, withForms(Rate(r.Rate), r.Forms))
}

func (p *plain) OnRound(r apo.Round) {
	p.linef("round %2d  %d new candidates  best %s  gain %s  model calls %s  %s",
		r.Round, r.Candidates, r.Best, Gain(r.Gain), spent(r.Spent), p.elapsed())
}

// taskLines is how many lines a trial run has at most.
const taskLines = 20

func (p *plain) OnTask(f baseline.Finished) {
	p.mu.Lock()
	part := f.Done * taskLines / max(f.Total, 1)
	due := part > p.printed
	p.printed = part
	p.mu.Unlock()
	if due {
		p.linef("task %4d/%d  reward %s  failed %d%s  %s", f.Done, f.Total, meanReward(f), f.Failed, p.cost(), p.elapsed())
	}
}

func (p *plain) OnWarning(w algorithm.Warning) { p.linef("warning: %s", w.Message) }

func (p *plain) OnNotice(text string) { p.linef("%s", text) }

func (p *plain) Close() {}

func (p *plain) cost() string {
	if p.Tokens == nil {
		return ""
	}
	t := p.Tokens()
	return "  " + Count(t.Prompt+t.Completion) + " tokens"
}

func (p *plain) elapsed() string { return fmt.Sprintf("%.1fs", time.Since(p.Began).Seconds()) }

func meanReward(f baseline.Finished) string {
	if f.Rewarded == 0 {
		return "none"
	}
	return fmt.Sprintf("%.3f", f.RewardMean)
}

// Gain writes how much better prompts are, with its interval.
func Gain(g apo.Difference) string {
	if g.Pairs == 0 {
		return "none"
	}
	return fmt.Sprintf("%+.3f (%.3f to %.3f)", g.Mean, g.Low, g.High)
}

// spent writes what the models that make prompts have cost.
func spent(s apo.Spent) string {
	text := fmt.Sprintf("%d, %s tokens", s.Calls, Count(s.PromptTokens+s.CompletionTokens))
	if s.Dollars > 0 {
		text += fmt.Sprintf(", $%.4f", s.Dollars)
	}
	return text
}
