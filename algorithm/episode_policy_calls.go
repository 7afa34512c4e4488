package algorithm

import (
	"sync"

	"github.com/agl-go/agl/adapter"
)

// PolicyCalls tells the calls of the model in training from those of other models, such as a judge or an opponent. It is safe
// for concurrent use.
type PolicyCalls struct {
	model string // that agents ask for; empty is unknown

	mu       sync.RWMutex
	versions map[string]int // the generation of each; nil if nothing publishes versions
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

// NewPolicyCalls returns the calls of a model of that name; an empty name is unknown.
func NewPolicyCalls(model string) *PolicyCalls { return &PolicyCalls{model: model} }

// Published records a version. Its generation counts how many different weights were published before, so that the difference
// of two generations is a distance in versions.
func (p *PolicyCalls) Published(version string, generation int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions == nil {
		p.versions = map[string]int{}
	}
	p.versions[version] = generation
}

// Forget takes a version back: its calls no longer belong to the policy.
func (p *PolicyCalls) Forget(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.versions, version)
}

// Generation returns the generation of a published version.
func (p *PolicyCalls) Generation(version string) (generation int, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	generation, ok = p.versions[version]
	return generation, ok
}

// Latest returns the versions of the newest generation and of as many behind it.
func (p *PolicyCalls) Latest(behind int) map[string]int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	newest := 0
	for _, generation := range p.versions {
		newest = max(newest, generation)
	}
	latest := map[string]int{}
	for version, generation := range p.versions {
		if newest-generation <= behind {
			latest[version] = generation
		}
	}
	return latest
}

// Owner returns the owner of a call. A published version decides. A call without a recorded version is the policy's if it
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
