package proxy

import (
	"cmp"
	"hash/maphash"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/agl-go/agl"
)

// table is a list of models, ready for look-ups. It is never changed; a swap
// puts another in its place.
type table struct {
	models []Model
	groups map[string]*group
}

// group are the replicas of one model name.
type group struct {
	replicas []*backend
	next     atomic.Uint64
}

type backend struct {
	Model
	base *url.URL
	seed uint64 // of its place in the rendezvous
}

func newTable(models []Model) (*table, error) {
	t := &table{models: slices.Clone(models), groups: make(map[string]*group)}
	seeds := maphash.MakeSeed()
	for i, m := range t.models {
		if m.Name == "" {
			return nil, agl.Errorf(agl.CodeInvalid, "models[%d].name: empty, must be the name that agents ask for", i)
		}
		if err := checkURL("model "+m.Name+": base_url", m.BaseURL); err != nil {
			return nil, err
		}
		if m.APIKey == "env:" {
			return nil, agl.Errorf(agl.CodeInvalid, `model %s: api_key: got "env:", must be "env:NAME" or a key`, m.Name)
		}
		if err := m.API.check("model " + m.Name + ": api"); err != nil {
			return nil, err
		}
		base, err := url.Parse(strings.TrimRight(m.BaseURL, "/"))
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "model %s: base_url: %w", m.Name, err)
		}
		m.BackendModel = cmp.Or(m.BackendModel, m.Name)
		g := t.groups[m.Name]
		if g == nil {
			g = &group{}
			t.groups[m.Name] = g
		}
		g.replicas = append(g.replicas, &backend{Model: m, base: base, seed: maphash.String(seeds, m.BaseURL+"\n"+m.BackendModel)})
	}
	return t, nil
}

// names returns the model names in the order of the list.
func (t *table) names() []string {
	var names []string
	for _, m := range t.models {
		if !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// pick chooses a replica: for the calls of a rollout the one that wins the
// rendezvous, so that they find the prefixes that they left in its cache; for
// others the next in turn. (Highest random weight: Thaler and Ravishankar,
// "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1), 1998.)
func (g *group) pick(rolloutID string) *backend {
	switch {
	case len(g.replicas) == 1:
		return g.replicas[0]
	case rolloutID == "":
		return g.replicas[g.next.Add(1)%uint64(len(g.replicas))]
	}
	var best *backend
	var weight uint64
	for _, b := range g.replicas {
		if w := mix(b.seed, rolloutID); best == nil || w > weight {
			best, weight = b, w
		}
	}
	return best
}

// mix hashes s under a seed: FNV-1a and the finisher of MurmurHash3.
func mix(seed uint64, s string) uint64 {
	h := seed ^ 14695981039346656037
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// versionNow returns the version of the weights behind b by this table: that of
// the entry with the same address, if there is one, since its weights were
// changed in place. Otherwise the call ends on the weights it began with.
func (t *table) versionNow(b *backend) string {
	if g := t.groups[b.Name]; g != nil {
		for _, r := range g.replicas {
			if r.BaseURL == b.BaseURL && r.BackendModel == b.BackendModel {
				return r.Version
			}
		}
	}
	return b.Version
}

// SetModels replaces the list of models at once. Calls that are running end on
// the backends they began with; every later call sees the new list. A list that
// is refused (CodeInvalid) changes nothing. An empty list is allowed.
func (p *Proxy) SetModels(models []Model) error {
	t, err := newTable(models)
	if err != nil {
		return err
	}
	p.models.Store(t)
	return nil
}

// Models returns the list of models as it was last set.
func (p *Proxy) Models() []Model { return slices.Clone(p.models.Load().models) }

// AsResource returns the resource through which agents call a model of the
// proxy, under Config.PublicURL. An empty name is the only model there is.
// Sampling parameters are a JSON object or nil. It does not check that the
// named model is in the list, which may still change.
func (p *Proxy) AsResource(model string, sampling []byte) (agl.ProxyLLM, error) {
	if p.cfg.PublicURL == "" {
		return agl.ProxyLLM{}, agl.Errorf(agl.CodeInvalid, "PublicURL: empty, must be set for the proxy to be a resource")
	}
	if model == "" {
		names := p.models.Load().names()
		if len(names) != 1 {
			return agl.ProxyLLM{}, agl.Errorf(agl.CodeInvalid, "model: none given, and the proxy serves %d (%s); name one", len(names), strings.Join(names, ", "))
		}
		model = names[0]
	}
	return agl.ProxyLLM{LLM: agl.LLM{
		Endpoint:           strings.TrimRight(p.cfg.PublicURL, "/"),
		Model:              model,
		SamplingParameters: sampling,
	}}, nil
}
