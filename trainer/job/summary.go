package job

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/trainer/display"
)

// summary is what a program reads of a result.
type summary struct {
	Record

	Output string `json:"output"`
	Report string `json:"report"`
	// Steps, Rollouts, Masked, Before and After are of grpo and sft, Spans of grpo.
	Steps    agl.Null[int]          `json:"steps,omitzero"`
	Rollouts agl.Null[int]          `json:"rollouts,omitzero"`
	Spans    agl.Null[int]          `json:"spans,omitzero"`
	Masked   map[algorithm.Mask]int `json:"masked,omitzero"`
	Before   *algorithm.Report      `json:"before,omitzero"`
	After    *algorithm.Report      `json:"after,omitzero"`
	// Prompts is what a search for prompts found.
	Prompts *foundPrompts `json:"prompts,omitzero"`
	// Train and Val are of the baseline.
	Train *baseline.Counts `json:"train,omitzero"`
	Val   *baseline.Counts `json:"val,omitzero"`
}

type foundPrompts struct {
	Improved bool              `json:"improved"`
	Finished bool              `json:"finished"`
	Gain     apo.Difference    `json:"gain"`
	Best     []apo.NamedPrompt `json:"best"`
	Rounds   int               `json:"rounds"`
	Spent    apo.Spent         `json:"spent"`
}

// WriteSummary writes the result as one JSON object.
func (r *Result) WriteSummary(path string) error {
	s := summary{Record: r.Record, Output: r.Output, Report: r.Report}
	switch {
	case r.GRPO != nil:
		g := r.GRPO
		s.Steps, s.Rollouts, s.Spans = agl.Some(g.Step), agl.Some(g.Totals.Rollouts), agl.Some(g.Totals.Spans)
		s.Masked, s.Before, s.After = g.Totals.Masked, g.Before, g.After
	case r.SFT != nil:
		f := r.SFT
		s.Steps, s.Rollouts, s.Masked, s.Before, s.After = agl.Some(f.Step), agl.Some(f.Totals.Rollouts), f.Totals.Masked, f.Before, f.After
	case r.APO != nil:
		a := r.APO
		s.Prompts = &foundPrompts{a.Improved, a.Finished, a.Gain, a.Best.Prompts, len(a.Rounds), a.Spent}
	case r.Baseline != nil:
		s.Train, s.Val = &r.Baseline.Train, &r.Baseline.Val
	}
	data, err := json.Marshal(s, json.Deterministic(true), jsontext.WithIndent("  "))
	if err == nil {
		err = algorithm.WriteFileAtomic(path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

// Print tells a person what came out, and what to do next; on a terminal with a
// curve.
func (r *Result) Print(w io.Writer, terminal bool) error {
	p := &printer{w: w}
	if terminal && r.Curve != "" {
		p.linef("\npass rate of each step's rollouts\n%s", r.Curve)
	}
	switch {
	case r.GRPO != nil:
		p.validations(r.GRPO.Before, r.GRPO.After)
	case r.SFT != nil:
		p.validations(r.SFT.Before, r.SFT.After)
	case r.APO != nil:
		p.prompts(r.APO)
	case r.Baseline != nil:
		p.counts("train", r.Baseline.Train)
		p.counts("validation", r.Baseline.Val)
	}
	if r.Usage.Calls > 0 {
		p.linef("model calls: %s", display.Tokens{Calls: r.Usage.Calls, Prompt: r.Usage.PromptTokens, Completion: r.Usage.CompletionTokens})
	}
	if r.Warning != "" {
		p.linef("\nwarning: %s", r.Warning)
	}
	switch r.State {
	case StateFinished:
		p.linef("\nreport: %s", r.Report)
	default:
		p.linef("\nreport so far: %s\ngo on with:    agl train --resume %s", r.Report, r.Output)
	}
	return p.err
}

// printer keeps the first error of writing.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) validations(before, after *algorithm.Report) {
	if before == nil || after == nil {
		return
	}
	p.linef("\nvalidation tasks, before: %s", display.Rate(before.Rate))
	p.linef("validation tasks, after:  %s", display.Rate(after.Rate))
	if len(after.Forms) > 0 {
		p.linef("after, by form of task:   %s", display.Forms(after.Forms))
	}
}

func (p *printer) prompts(r *apo.Report) {
	switch {
	case r.Improved:
		p.linef("\nbetter prompts: %+.3f reward (%.3f to %.3f, %d pairs of rollouts)", r.Gain.Mean, r.Gain.Low, r.Gain.High, r.Gain.Pairs)
	case r.Finished:
		p.linef("\nno prompts are better beyond doubt; the first ones stay")
	default:
		p.linef("\nthe search has not come to its end")
	}
	for _, one := range r.Best.Prompts {
		p.linef("\n%s:\n%s", one.Name, one.Prompt)
	}
	p.linef("\ncalls that make prompts: %d, %s tokens, $%.4f", r.Spent.Calls, display.Count(r.Spent.PromptTokens+r.Spent.CompletionTokens), r.Spent.Dollars)
}

func (p *printer) counts(name string, c baseline.Counts) {
	if c.Rollouts == 0 {
		return
	}
	mean := "no reward"
	if c.Rewarded > 0 {
		mean = fmt.Sprintf("mean reward %.3f of %d", c.RewardMean, c.Rewarded)
	}
	p.linef("%s: %d tasks, %s, %s", name, c.Rollouts, mean, outcomes(c))
}

// outcomes counts the tasks by how they ended.
func outcomes(c baseline.Counts) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(c.Outcomes)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, c.Outcomes[kind]))
	}
	return strings.Join(parts, ", ")
}
