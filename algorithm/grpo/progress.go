package grpo

import "github.com/agl-go/agl/algorithm"

// Progress is told what a run does, in the goroutine of Run. Embed
// [UnimplementedProgress] to implement some of it.
type Progress interface {
	// OnStart is called once, before anything else.
	OnStart(s Start)
	// OnRollouts is called as rollouts of a phase finish. step counts from 1; a
	// validation has that of the step after which it is made, 0 before the first.
	OnRollouts(phase Phase, step, done, total int)
	// OnStep is called after each step.
	OnStep(r StepReport)
	// OnValidation is called after each validation, before the OnStep of its step.
	OnValidation(step int, r algorithm.Report)
	// OnWarning is called when something needs a person; each kind comes once.
	OnWarning(w Warning)
}

// Phase says what rollouts are run for.
type Phase string

// The phases.
const (
	PhaseTrain      Phase = "train"
	PhaseValidation Phase = "validation"
)

// Start describes a run that begins.
type Start struct {
	Step    int // steps that a checkpoint has already done
	Steps   int
	Resumed bool
	// Before is the validation before the first step of a run that resumes.
	Before *algorithm.Report
}

// UnimplementedProgress does nothing.
type UnimplementedProgress struct{}

var _ Progress = UnimplementedProgress{}

// OnStart does nothing.
func (UnimplementedProgress) OnStart(Start) {}

// OnRollouts does nothing.
func (UnimplementedProgress) OnRollouts(Phase, int, int, int) {}

// OnStep does nothing.
func (UnimplementedProgress) OnStep(StepReport) {}

// OnValidation does nothing.
func (UnimplementedProgress) OnValidation(int, algorithm.Report) {}

// OnWarning does nothing.
func (UnimplementedProgress) OnWarning(Warning) {}
