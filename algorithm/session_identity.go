package algorithm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// The members that identities have gained. What an earlier version wrote lacks them, and is taken for unchanged.
const (
	identityPrompts    = "prompts"
	identitySampling   = "sampling"
	identityVal        = "val"
	identityValidation = "validation"
	identityOrigin     = "origin"
	// IdentityRoleSchedules are the learning rates of roles, see [SessionParams].Roles.
	IdentityRoleSchedules = "role_schedules"
)

var laterMembers = []string{identityPrompts, identitySampling, identityVal, identityValidation, identityOrigin, IdentityRoleSchedules}

// identity is that of the algorithm, and what the results of training depend on besides: the tasks that they are validated with, and
// the resources that agents get. A run that learns from live traffic has none of this for long: users decide what they ask, and
// releases what they get.
func (s *Session) identity() (map[string]string, error) {
	p, t := s.p, s.p.Training
	if t.Service == nil || p.KeepVersions {
		return p.Identity, nil
	}
	id := maps.Clone(p.Identity)
	id[identityVal] = "none"
	if p.Input.Val != nil {
		val, err := Fingerprint(p.Input.Val)
		if err != nil {
			return nil, fmt.Errorf("read val dataset: %w", err)
		}
		id[identityVal] = val
	}
	id[identityValidation] = fmt.Sprintf("n=%d pass_reward=%v sampling=%s", t.Validation.N, t.PassReward, canonical(t.Validation.Sampling))
	id[identityPrompts], id[identitySampling] = FingerprintPrompts(p.Input.InitialResources), SamplingOf(p.Input.InitialResources)
	if t.Origin != "" {
		id[identityOrigin] = t.Origin
	}
	return id, nil
}

// FingerprintPrompts identifies the prompt templates among resources: their number and a hash of all of them.
func FingerprintPrompts(resources agl.Resources) string {
	h, n := sha256.New(), 0
	for _, r := range resources {
		if t, ok := r.Resource.(agl.PromptTemplate); ok {
			fmt.Fprintf(h, "%q %q %q\n", r.Name, t.Engine, t.Template)
			n++
		}
	}
	return fmt.Sprintf("%d prompts %s", n, hex.EncodeToString(h.Sum(nil)[:8]))
}

// SamplingOf returns the sampling parameters of the models among resources, by the name of the resource.
func SamplingOf(resources agl.Resources) string {
	var all []string
	for _, r := range resources {
		var params jsontext.Value
		switch v := r.Resource.(type) {
		case agl.LLM:
			params = v.SamplingParameters
		case agl.ProxyLLM:
			params = v.SamplingParameters
		default:
			continue
		}
		all = append(all, r.Name+"="+canonical(params))
	}
	return strings.Join(all, " ")
}

// canonical returns an object in its one form; nothing is {}.
func canonical(params jsontext.Value) string {
	if len(params) == 0 {
		return "{}"
	}
	out := params.Clone()
	if out.Canonicalize() != nil {
		return string(params)
	}
	return string(out)
}
