package wire

import (
	"math"

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

// ReleaseAnswer is a release with the current verdict on its evidence.
type ReleaseAnswer struct {
	release.Release

	Now ReleaseNow `json:"now"`
}

// ReleaseNow is the verdict of the gates on the evidence. While there are too few sessions, a difference is nil and a
// mean is 0.
type ReleaseNow struct {
	Verdict release.Verdict `json:"verdict"`
	Reward  *[2]float64     `json:"reward"` // the bounds of the difference
	Guards  []GuardNow      `json:"guards"` // in the order of the gates
}

// GuardNow is the evidence on a guarded metric.
type GuardNow struct {
	Metric     string      `json:"metric"`
	Sessions   [2]int64    `json:"sessions"`   // sessions with a value: stable, candidate
	Means      [2]float64  `json:"means"`      // stable, candidate
	Difference *[2]float64 `json:"difference"` // the bounds, minus the tolerance
}

// ReleaseOf returns the answer for a release.
func ReleaseOf(r release.Release) ReleaseAnswer {
	reward, guards := r.Gates.Bounds(&r.Evidence)
	answer := ReleaseAnswer{Release: r, Now: ReleaseNow{Verdict: r.Gates.Decide(&r.Evidence), Reward: finite(reward), Guards: []GuardNow{}}}
	for _, g := range r.Gates.Guards {
		s := r.Evidence.Guards[g.Metric]
		now := GuardNow{Metric: g.Metric, Difference: finite(guards[g.Metric])}
		for i, arm := range s.Arms {
			if now.Sessions[i] = arm.N; arm.N > 0 {
				now.Means[i] = arm.Mean
			}
		}
		if now.Sessions[release.Stable] > 0 {
			now.Means[release.Stable] = g.StableMean(&s)
		}
		answer.Now.Guards = append(answer.Now.Guards, now)
	}
	return answer
}

func finite(bounds [2]float64) *[2]float64 {
	if math.IsInf(bounds[0], 0) || math.IsInf(bounds[1], 0) {
		return nil
	}
	return &bounds
}

// NewRelease is the body that posts to [Releases].
type NewRelease struct {
	Candidate release.Version `json:"candidate"`
	Model     string          `json:"model,omitzero"`
	Share     float64         `json:"share,omitzero"` // 0 is the default
	Gates     release.Gates   `json:"gates,omitzero"` // zero members are the defaults
	Suite     *release.Suite  `json:"suite,omitzero"` // the offline evaluation
}

// UnmarshalJSONFrom rejects unknown members: a misspelt gate would have no effect.
func (n *NewRelease) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain NewRelease
	return strict(dec, (*plain)(n), "candidate (resources_id, model), model, share, gates (alpha, min_gain, min_sessions, max_sessions, guards) and suite")
}

// ActOnRelease is the body that posts to [ReleaseAct].
type ActOnRelease struct {
	Reason string `json:"reason,omitzero"`
}

// UnmarshalJSONFrom refuses members that it does not know.
func (a *ActOnRelease) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain ActOnRelease
	return strict(dec, (*plain)(a), "reason")
}
