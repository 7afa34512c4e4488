package algorithm

// Progress has functions that are called as a run proceeds, one call at a time. Each may be nil.
type Progress struct {
	// OnStart is called once, before the first rollout.
	OnStart func(s Start)
	// OnRollouts is called as rollouts finish. step counts from 1; that of a validation
	// is the step after which it runs, 0 before the first.
	OnRollouts func(phase Phase, step, done, total int)
	// OnValidation is called after each validation.
	OnValidation func(step int, r Report)
	// OnWarning is called once for each kind of warning; nil logs it.
	OnWarning func(w Warning)
}

func (p Progress) withDefaults() Progress {
	if p.OnStart == nil {
		p.OnStart = func(Start) {}
	}
	if p.OnRollouts == nil {
		p.OnRollouts = func(Phase, int, int, int) {}
	}
	if p.OnValidation == nil {
		p.OnValidation = func(int, Report) {}
	}
	if p.OnWarning == nil {
		p.OnWarning = func(Warning) {}
	}
	return p
}

// Start describes a run that begins or resumes.
type Start struct {
	Step    int // steps done, according to the checkpoint
	Steps   int
	Resumed bool
	// Before is the validation before the first step, if the run resumes and made one.
	Before *Report
}

// Phase is the purpose of rollouts.
type Phase string

// The phases.
const (
	PhaseTrain      Phase = "train"
	PhaseValidation Phase = "validation"
)

// Warning is something that a person should look at.
type Warning struct {
	Kind    string
	Step    int
	Message string // one sentence with the numbers
}
