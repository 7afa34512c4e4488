package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
)

// display shows a run to a person.
type display interface {
	grpo.Progress
	// OnWarmStart is called after each step of the warm start.
	OnWarmStart(r sft.StepReport)
	// Close ends a live view; what is printed afterwards stays below it.
	Close()
}

// plain prints one line per step, for logs and pipes.
type plain struct {
	grpo.UnimplementedProgress
	out   io.Writer
	began time.Time
}

// warmStartLines is the number of steps of the warm start per line: they take
// milliseconds each.
const warmStartLines = 100

func (p *plain) OnWarmStart(r sft.StepReport) {
	if r.Step%warmStartLines == 0 || r.Step == r.Steps {
		fmt.Fprintf(p.out, "warm start %4d/%d  loss %.3f  %s\n", r.Step, r.Steps, r.Loss, p.elapsed())
	}
}

func (p *plain) OnStart(s grpo.Start) {
	if s.Resumed {
		fmt.Fprintf(p.out, "resumes after step %d of %d\n", s.Step, s.Steps)
	}
}

func (p *plain) OnStep(r grpo.StepReport) {
	if r.Step == 0 {
		return // the validation before training has a line of its own
	}
	fmt.Fprintf(p.out, "step %4d/%d  reward %.3f  pass %.3f  %s  masked %d  %.0f tokens/s  %s\n",
		r.Step, r.Steps, r.RewardMean, r.PassRate, formRates(r.Forms), sumMasked(r.Masked), r.TokensPerSecond, p.elapsed())
}

func (p *plain) OnValidation(step int, r algorithm.Report) {
	fmt.Fprintf(p.out, "validation after step %d: pass rate %s, %s\n", step, rate(r.Rate), formRates(r.Forms))
}

func (p *plain) OnWarning(w grpo.Warning) { fmt.Fprintf(p.out, "warning: %s\n", w.Message) }

func (p *plain) Close() {}

func (p *plain) elapsed() string { return fmt.Sprintf("%.1fs", time.Since(p.began).Seconds()) }

func rate(r algorithm.Rate) string {
	return fmt.Sprintf("%.3f of %d (95%% interval %.3f to %.3f)", r.PassRate, r.N, r.CI95[0], r.CI95[1])
}

func formRates(forms map[string]algorithm.Rate) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, forms[name].PassRate))
	}
	return strings.Join(parts, " ")
}

func sumMasked(masked map[algorithm.Mask]int) int {
	n := 0
	for _, c := range masked {
		n += c
	}
	return n
}

// rewardCurve collects the pass rate of each step.
type rewardCurve struct{ values []float64 }

// recording is a display that also collects the curve.
type recording struct {
	display
	curve *rewardCurve
}

// OnStep implements grpo.Progress.
func (r recording) OnStep(s grpo.StepReport) {
	if s.Step > 0 {
		r.curve.values = append(r.curve.values, s.PassRate)
	}
	r.display.OnStep(s)
}
