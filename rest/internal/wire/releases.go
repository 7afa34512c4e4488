package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/release"
)

// The paths of releases.
const (
	Releases       = "/releases"
	CurrentRelease = "/releases/current"
)

// Release is the path of a release.
func Release(id string) string { return Releases + "/" + id }

// ReleaseAct is the path of an act on a release.
func ReleaseAct(id string, act release.Act) string { return Release(id) + "/" + string(act) }

// NewRelease is the body that posts to [Releases].
type NewRelease struct {
	Candidate release.Version `json:"candidate"`
	Model     string          `json:"model,omitzero"`
	Share     float64         `json:"share,omitzero"` // 0 is the default
	Gates     release.Gates   `json:"gates,omitzero"` // zero members are the defaults
}

// UnmarshalJSONFrom refuses members that it does not know: a misspelt gate would be none.
func (n *NewRelease) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain NewRelease
	return strict(json.UnmarshalDecode(dec, (*plain)(n), json.RejectUnknownMembers(true)),
		"candidate (resources_id, model), model, share and gates (alpha, min_gain, min_sessions, max_sessions, guards)")
}

// ActOnRelease is the body that posts to [ReleaseAct].
type ActOnRelease struct {
	Reason string `json:"reason,omitzero"`
}

// UnmarshalJSONFrom refuses members that it does not know.
func (a *ActOnRelease) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain ActOnRelease
	return strict(json.UnmarshalDecode(dec, (*plain)(a), json.RejectUnknownMembers(true)), "reason")
}
