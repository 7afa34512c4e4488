package release

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"

	"github.com/agl-go/agl"
)

// State is the state of a release.
type State string

// The states of a release.
const (
	StateCanary     State = "canary"      // a share of the sessions gets the candidate
	StatePromoted   State = "promoted"    // the candidate has become the stable version
	StateRolledBack State = "rolled_back" // no session gets the candidate
)

// Version is what serves a session. The zero value is what serves sessions without any release: the latest resources,
// and the model that they ask for.
type Version struct {
	// ResourcesID is the id of the session's resources.
	ResourcesID string `json:"resources_id,omitzero"`
	// Model is the proxy's name of the model that answers calls for Release.Model.
	Model string `json:"model,omitzero"`
}

// Release is the trial of a candidate. The JSON form has times in Unix seconds.
type Release struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// Frozen releases are not promoted automatically. Guards still roll them back.
	Frozen bool `json:"frozen"`
	// Model is the name of the model that programs ask for, if the versions differ in their models.
	Model     string   `json:"model,omitzero"`
	Stable    Version  `json:"stable"`
	Candidate Version  `json:"candidate"`
	Share     float64  `json:"share"` // of the sessions that get the candidate, in (0, 1)
	Gates     Gates    `json:"gates"`
	Evidence  Evidence `json:"evidence"`
	Suite     *Suite   `json:"suite,omitzero"` // the offline evaluation before any session, if there was one
	// Cursor is the collector's cursor after the sessions that the evidence counts.
	Cursor     string        `json:"cursor,omitzero"`
	CreateTime agl.Timestamp `json:"create_time"`
	CreatedBy  string        `json:"created_by"`
	// Decisions are all decisions, the oldest first.
	Decisions []Decision `json:"decisions"`
}

// Decision is an act on a release, with its evidence.
type Decision struct {
	Action   string        `json:"action"` // propose, promote, rollback, freeze or resume
	By       string        `json:"by"`     // a person or key, or "gates"
	Reason   string        `json:"reason"`
	Time     agl.Timestamp `json:"time"`
	Evidence Evidence      `json:"evidence"`
}

// Current is what serves sessions that begin now.
type Current struct {
	// Stable is the stable version: that of the last promotion.
	Stable Version `json:"stable"`
	// Model is the name that programs ask for and that the models of both versions answer.
	Model string `json:"model,omitzero"`
	// Others are the models that earlier releases have promoted for other names, by these names.
	Others map[string]string `json:"others,omitempty"`
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
	Suite     *Suite  // its offline evaluation; nil if there was none
	By        string
}

// DefaultShare is the candidate's share if a proposal sets none.
const DefaultShare = 0.05

// The bounds of a share: some session gets the candidate, and most get the stable version.
const (
	minShare = 1e-6
	MaxShare = 0.5
)

// Check returns an error of CodeInvalid if the suite, the share or the gates are out of range. Zero fields have their
// defaults.
func (p *Proposal) Check() error {
	d := p.withDefaults()
	if p.Suite != nil {
		if err := p.Suite.check(); err != nil {
			return err
		}
	}
	if !(d.Share >= minShare && d.Share <= MaxShare) {
		return agl.Errorf(agl.CodeInvalid, "share: got %v, must be between %f and %v", d.Share, minShare, MaxShare)
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
		return agl.Errorf(agl.CodeInvalid, "candidate: must have a resources_id, a model or both")
	case (p.Candidate.Model == "") != (p.Model == ""):
		return agl.Errorf(agl.CodeInvalid, "model: got %q with the candidate's model %q, must both be given or neither: the name that programs ask for, and who answers them", p.Model, p.Candidate.Model)
	}
	return p.Check()
}

// Arm returns the arm of a session. As long as the release lasts, it is the same for the same key, which is the user
// or the name of the session. The candidate gets Share of the keys.
func (c *Current) Arm(key string) Arm {
	if c.Release != "" && uniform(c.Release+"\x00"+key) < c.Share {
		return Candidate
	}
	return Stable
}

// Version returns the version of an arm. What the candidate does not name is that of the stable version.
func (c *Current) Version(a Arm) Version {
	if a == Candidate {
		return c.Candidate.over(c.Stable)
	}
	return c.Stable
}

// over returns v, with what it does not name taken from base.
func (v Version) over(base Version) Version {
	return Version{ResourcesID: cmp.Or(v.ResourcesID, base.ResourcesID), Model: cmp.Or(v.Model, base.Model)}
}

// Models returns the models that answer in an arm, by the names that programs ask for. Names that answer themselves
// may be missing.
func (c *Current) Models(a Arm) map[string]string {
	models := map[string]string{}
	maps.Copy(models, c.Others)
	if v := c.Version(a); v.Model != "" {
		models[c.Model] = v.Model
	}
	return models
}

// Equal reports whether both serve all sessions alike.
func (c *Current) Equal(other Current) bool { return reflect.DeepEqual(*c, other) }

// about returns c with Model set to another name that programs ask for. An empty name changes nothing.
func (c Current) about(model string) Current {
	if model == "" || model == c.Model {
		return c
	}
	others := c.Models(Stable)
	c.Stable.Model, c.Model = others[model], model
	delete(others, model)
	c.Others = others
	return c
}

// withoutCanary returns c without a release.
func (c *Current) withoutCanary() Current {
	return Current{Stable: c.Stable, Model: c.Model, Others: c.Others}
}

// Keys of a session's metadata that say which arm it was assigned to.
const (
	MetadataRelease = "agl.release"       // the id of the release
	MetadataArm     = "agl.release_arm"   // stable or candidate
	MetadataShare   = "agl.release_share" // the candidate's share when the session began
)

// parseArm reads the text of an arm.
func parseArm(text string) (Arm, error) {
	for _, a := range []Arm{Stable, Candidate} {
		if a.String() == text {
			return a, nil
		}
	}
	return 0, fmt.Errorf("got the arm %q, must be stable or candidate", text)
}

// uniform returns a number in [0, 1) that depends only on the text.
func uniform(text string) float64 {
	sum := sha256.Sum256([]byte(text))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}
