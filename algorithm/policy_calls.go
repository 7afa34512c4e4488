package algorithm

import (
	"maps"
	"sync"

	"github.com/agl-go/agl/adapter"
)

// PolicyCalls tells the calls of the model in training from those of other models, such as a judge or an opponent. It is safe
// for concurrent use.
type PolicyCalls struct {
	model string // that agents ask for; empty is unknown

	mu       sync.RWMutex
	versions map[string]int // the step after which each was published; nil if nothing publishes versions
}

// CallOwner says whose call it is.
type CallOwner int

// The owners.
const (
	// OwnerPolicy: the model in training answered, with weights that the run has published.
	OwnerPolicy CallOwner = iota
	// OwnerOther: another model was asked.
	OwnerOther
	// OwnerWrongVersion: the model in training was asked, and weights answered that the run has not published: those of the
	// base model, or of another run.
	OwnerWrongVersion
)

// NewPolicyCalls returns the calls of a model of that name; an empty name is unknown. The versions that were published
// before may be nil.
func NewPolicyCalls(model string, versions map[string]int) *PolicyCalls {
	return &PolicyCalls{model: model, versions: maps.Clone(versions)}
}

// Published records a version of the weights after a step.
func (p *PolicyCalls) Published(version string, step int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions == nil {
		p.versions = map[string]int{}
	}
	p.versions[version] = step
}

// Step returns the step after which a version was published.
func (p *PolicyCalls) Step(version string) (step int, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	step, ok = p.versions[version]
	return step, ok
}

// Versions returns all versions with their steps.
func (p *PolicyCalls) Versions() map[string]int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.versions)
}

// Owner returns the owner of a call. A published version decides. A call of which no version is recorded is the policy's if it
// asked for the policy's model, or if either name is unknown.
func (p *PolicyCalls) Owner(c adapter.Call) CallOwner {
	p.mu.RLock()
	defer p.mu.RUnlock()
	asked := p.model == "" || c.Model == "" || c.Model == p.model
	_, began := p.versions[c.Version]
	_, ended := p.versions[c.VersionEnd]
	switch {
	case c.Version == "" || p.versions == nil: // not recorded, or nothing to compare it with
		if asked {
			return OwnerPolicy
		}
		return OwnerOther
	case began && (ended || c.VersionEnd == ""):
		return OwnerPolicy
	case began || p.model != "" && c.Model == p.model:
		return OwnerWrongVersion
	}
	return OwnerOther
}
