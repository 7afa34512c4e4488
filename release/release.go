package release

import (
	"cmp"
	"fmt"

	"crypto/sha256"
	"encoding/binary"

	"github.com/agl-go/agl"
)

// State is where a release is in its life.
type State string

// The states of a release.
const (
	StateCanary     State = "canary"      // a share of the sessions gets the candidate
	StatePromoted   State = "promoted"    // the candidate is what is stable
	StateRolledBack State = "rolled_back" // no session gets the candidate
)

// Version is what sessions are served by. Its zero value is what they get without any
// release: the latest resources, and the model that they ask for.
type Version struct {
	// ResourcesID is the id of the resources that a session runs with.
	ResourcesID string `json:"resources_id,omitzero"`
	// Model is the proxy's name of the model that answers those who ask for Release.Model.
	Model string `json:"model,omitzero"`
}

// Release is a candidate on its way. The JSON form has times in Unix seconds.
type Release struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// Frozen releases are not promoted by themselves. Guards still roll them back.
	Frozen bool `json:"frozen"`
	// Model is the name of the model that programs ask for, if the versions differ in their
	// models.
	Model     string   `json:"model,omitzero"`
	Stable    Version  `json:"stable"`
	Candidate Version  `json:"candidate"`
	Share     float64  `json:"share"` // of the sessions that get the candidate, in (0, 1)
	Gates     Gates    `json:"gates"`
	Evidence  Evidence `json:"evidence"`
	Suite     *Suite   `json:"suite,omitzero"` // before any session, if there was one
	// Cursor is of the collector: what the evidence counts.
	Cursor     string        `json:"cursor,omitzero"`
	CreateTime agl.Timestamp `json:"create_time"`
	CreatedBy  string        `json:"created_by"`
	// Decisions are all that was decided, the oldest first.
	Decisions []Decision `json:"decisions"`
}

// Decision is an act that changed a release, with its evidence.
type Decision struct {
	Action   string        `json:"action"` // propose, promote, rollback, freeze or resume
	By       string        `json:"by"`     // a person or key, or "gates"
	Reason   string        `json:"reason"`
	Time     agl.Timestamp `json:"time"`
	Evidence Evidence      `json:"evidence"`
}

// Current is what sessions that begin now are served by.
type Current struct {
	// Stable is the version of the last promotion.
	Stable Version `json:"stable"`
	// Model is the name of the model that programs ask for.
	Model string `json:"model,omitzero"`
	// Release is the id of the release with a canary; the fields below are then its own.
	Release   string  `json:"release,omitzero"`
	Candidate Version `json:"candidate,omitzero"`
	Share     float64 `json:"share,omitzero"`
}

// Proposal describes a new release.
type Proposal struct {
	Candidate Version
	Model     string  // required if Candidate.Model is set
	Share     float64 // 0 is DefaultShare
	Gates     Gates   // zero fields are those of Defaults
	Suite     *Suite  // what it has shown offline; nil is nothing
	By        string
}

// DefaultShare is the share of the candidate if a proposal sets none.
const DefaultShare = 0.05

// A candidate gets a share that some session has, and keeps the stable version the one that most are served by.
const (
	MinShare = 1e-6
	MaxShare = 0.5
)

// Check returns what is wrong with the share and the gates, of which those that are zero have their defaults: CodeInvalid.
func (p *Proposal) Check() error {
	d := p.withDefaults()
	if p.Suite != nil {
		if err := p.Suite.check(); err != nil {
			return err
		}
	}
	if !(d.Share >= MinShare && d.Share <= MaxShare) {
		return agl.Errorf(agl.CodeInvalid, "share: got %v, must be between %f and %v", d.Share, MinShare, MaxShare)
	}
	return d.Gates.Check()
}

func (p Proposal) withDefaults() Proposal {
	p.Gates, p.Share = p.Gates.withDefaults(), cmp.Or(p.Share, DefaultShare)
	return p
}

func (p *Proposal) check() error {
	switch {
	case p.Candidate == Version{}:
		return agl.Errorf(agl.CodeInvalid, "candidate: got nothing, must have a resources_id, a model or both")
	case (p.Candidate.Model == "") != (p.Model == ""):
		return agl.Errorf(agl.CodeInvalid, "model: got %q with the candidate's model %q, must both be given or neither: the name that programs ask for, and who answers them", p.Model, p.Candidate.Model)
	}
	return p.Check()
}

// Arm says what a session is served by: always the same for one key, the user or the name
// of the session, while the release lasts. The candidate gets Share of the keys.
func (c *Current) Arm(key string) Arm {
	if c.Release != "" && uniform(c.Release+"\x00"+key) < c.Share {
		return Candidate
	}
	return Stable
}

// Version is the version of an arm.
func (c *Current) Version(a Arm) Version {
	if a == Candidate {
		return c.Candidate
	}
	return c.Stable
}

// The keys of a session's metadata that say how it was assigned.
const (
	MetadataRelease = "agl.release"       // the id of the release
	MetadataArm     = "agl.release_arm"   // stable or candidate
	MetadataShare   = "agl.release_share" // the candidate's share when the session began
	MetadataModel   = "agl.release_model" // the model that answers, if the release says so
)

// ParseArm reads the text of an arm.
func ParseArm(text string) (Arm, error) {
	for _, a := range []Arm{Stable, Candidate} {
		if a.String() == text {
			return a, nil
		}
	}
	return 0, fmt.Errorf("got the arm %q, must be stable or candidate", text)
}

// uniform is a number in [0, 1) that a text always has.
func uniform(text string) float64 {
	sum := sha256.Sum256([]byte(text))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}
