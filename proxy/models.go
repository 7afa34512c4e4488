package proxy

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// table is a list of models, ready for look-ups. It is never changed; a swap
// puts another in its place.
type table struct {
	models []Model
	groups map[string]*group
	states map[string]*state // by stateKey
	probed bool              // some backend has a health URL
}

// group are the replicas of one model name.
type group struct {
	replicas []*backend
	next     atomic.Uint64
}

// backend is an entry of the list.
type backend struct {
	Model
	base                  *url.URL
	health, pause, resume *url.URL // nil where there is none
	seed                  uint64   // of its place in the rendezvous
	state                 *state
}

// state is what is known of a backend beyond its entry. It outlives a swap to
// weights of another version behind the same address.
type state struct {
	load    atomic.Int64 // calls that run on it or wait for it
	tries   atomic.Int64 // requests sent to it
	missed  atomic.Int32 // probes in a row
	whole   atomic.Bool  // it has refused token ids in a stream
	breaker breaker
	limits  limiter
}

// salt is the cache_salt of requests, if any.
func (b *backend) salt() string {
	if b.CacheSalt {
		return b.Version
	}
	return ""
}

// replays reports whether the backend gives token ids only in replies that come
// whole, as far as is known.
func (c *call) replays(b *backend) bool { return b.Replay || b.state.whole.Load() || c.whole == b }

// wait is how long a backend gets no calls; 0 is none.
func (s *state) wait(now time.Time) time.Duration {
	if s.missed.Load() >= missedProbes {
		return max(s.breaker.wait(now), time.Second)
	}
	return s.breaker.wait(now)
}

// newTable makes the table that follows another, which may be nil.
func newTable(models []Model, before *table) (*table, error) {
	t := &table{models: slices.Clone(models), groups: make(map[string]*group), states: make(map[string]*state)}
	for i := range t.models {
		if t.models[i].Name == "" {
			return nil, agl.Errorf(agl.CodeInvalid, "models[%d].name: empty, must be the name that agents ask for", i)
		}
		b, err := newBackend(&t.models[i])
		if err != nil {
			return nil, err
		}
		g := t.groups[b.Name]
		if g == nil {
			g = &group{}
			t.groups[b.Name] = g
		}
		same := 0 // replicas behind one address are told apart by their order
		for _, r := range g.replicas {
			if r.BaseURL == b.BaseURL {
				same++
			}
		}
		place := b.BaseURL + "\n" + strconv.Itoa(same)
		b.seed = mix(0, place)
		key := b.Name + "\n" + place
		if before != nil {
			b.state = before.states[key]
		}
		if b.state == nil {
			b.state = &state{}
		}
		t.states[key] = b.state
		t.probed = t.probed || b.health != nil
		g.replicas = append(g.replicas, b)
	}
	return t, nil
}

// Validate reports what is wrong with a model: CodeInvalid, naming the field,
// the value and what is allowed.
func (m *Model) Validate() error {
	if m.Name == "" {
		return agl.Errorf(agl.CodeInvalid, "name: empty, must be the name that agents ask for")
	}
	_, err := newBackend(m)
	return err
}

func newBackend(m *Model) (*backend, error) {
	if err := checkURL("model "+m.Name+": base_url", m.BaseURL); err != nil {
		return nil, err
	}
	if m.APIKey == "env:" {
		return nil, agl.Errorf(agl.CodeInvalid, `model %s: api_key: got "env:", must be "env:NAME" or a key`, m.Name)
	}
	if err := m.API.check("model " + m.Name + ": api"); err != nil {
		return nil, err
	}
	if m.CacheSalt && (m.API != APIOpenAI || m.TextOnly) {
		return nil, agl.Errorf(agl.CodeInvalid, "model %s: cache_salt: must not be set for services that do not know it (text_only, azure, anthropic)", m.Name)
	}
	if err := m.Limits.check("model " + m.Name + ": limits"); err != nil {
		return nil, err
	}
	base, err := url.Parse(strings.TrimRight(m.BaseURL, "/"))
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "model %s: base_url: %w", m.Name, err)
	}
	b := &backend{Model: *m, base: base}
	b.BackendModel = cmp.Or(m.BackendModel, m.Name)
	for _, u := range [...]struct {
		name, raw string
		to        **url.URL
	}{{"health_url", m.HealthURL, &b.health}, {"pause_url", m.PauseURL, &b.pause}, {"resume_url", m.ResumeURL, &b.resume}} {
		if u.raw == "" {
			continue
		}
		at, err := base.Parse(u.raw)
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "model %s: %s: not a URL or a path such as /health: %w", m.Name, u.name, err)
		}
		if err := checkURL("model "+m.Name+": "+u.name, at.String()); err != nil {
			return nil, err
		}
		*u.to = at
	}
	return b, nil
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

// missing is what a call of a model gets that is not in the table.
func (t *table) missing(model string) *failure {
	names := "none"
	if list := t.names(); len(list) > 0 {
		names = strings.Join(list, ", ")
	}
	f := fail(http.StatusNotFound, openai.InvalidRequestError, "model_not_found", fmt.Sprintf("the model %q does not exist; there are: %s", model, names))
	f.body.Param = "model"
	return f
}

// slack is how far above the mean the load of a replica may be before the calls
// of a rollout go to another.
const slack = 1.25

// pick chooses a replica that is up and not among those tried, nil if there is
// none. The calls of a key, a rollout's or a session's, go to the one that wins
// the rendezvous, so that they find the prefixes that they left in its cache,
// unless it has its share of the load; then to the next in the rendezvous' order.
// Calls without a key go to the one with the least to do.
//
// Highest random weight: Thaler and Ravishankar, "Using name-based mappings to
// increase hit rates", IEEE/ACM ToN 6(1), 1998. The bound, ceil(c·m/n) for m
// calls on n replicas: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing
// with Bounded Loads", SODA 2018.
func (g *group) pick(key string, tried []*backend, now time.Time) *backend {
	var room [8]*backend
	up := room[:0]
	total := int64(1)
	for _, b := range g.replicas {
		if !slices.Contains(tried, b) && b.state.wait(now) == 0 {
			up = append(up, b)
			total += b.state.load.Load()
		}
	}
	if len(up) < 2 {
		if len(up) == 0 {
			return nil
		}
		return up[0]
	}
	if key == "" {
		return g.idlest(up)
	}
	bound := int64(math.Ceil(slack * float64(total) / float64(len(up))))
	best := winner(up, key, func(b *backend) bool { return b.state.load.Load() < bound && b.state.limits.free(now) })
	if best == nil {
		best = winner(up, key, func(b *backend) bool { return b.state.load.Load() < bound })
	}
	if best == nil { // others have come meanwhile
		best = g.idlest(up)
	}
	return best
}

// winner is the replica with the highest weight for the key among those allowed.
func winner(up []*backend, key string, allowed func(b *backend) bool) (best *backend) {
	var weight uint64
	for _, b := range up {
		if w := mix(b.seed, key); (best == nil || w > weight) && allowed(b) {
			best, weight = b, w
		}
	}
	return best
}

// idlest is the replica with the least to do; among equals they take turns.
func (g *group) idlest(up []*backend) *backend {
	turn := g.next.Add(1)
	best := up[turn%uint64(len(up))]
	for i := range up {
		if b := up[(turn+uint64(i))%uint64(len(up))]; b.state.load.Load() < best.state.load.Load() {
			best = b
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
	p.swap.Lock()
	defer p.swap.Unlock()
	t, err := newTable(models, p.models.Load())
	if err != nil {
		return err
	}
	for _, g := range t.groups {
		for _, b := range g.replicas {
			b.state.limits.configure(b.Limits)
		}
	}
	p.models.Store(t)
	return nil
}

// Models returns the list of models as it was last set.
func (p *Proxy) Models() []Model { return slices.Clone(p.models.Load().models) }

// AsResource returns the resource through which agents call a model of the
// proxy, under Config.PublicURL. An empty name is the only model there is.
// Sampling parameters are a JSON object or nil. It does not check that the
// named model is in the list, which may still change. With Config.KeySecret the
// resource has a run key, good for a week, that agl.ProxyLLM.ForAttempt turns
// into one of each attempt.
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
	var key agl.Null[string]
	if p.cfg.KeySecret != "" {
		run, err := p.runKey(0)
		if err != nil {
			return agl.ProxyLLM{}, err
		}
		key = agl.Some(run)
	}
	return agl.ProxyLLM{LLM: agl.LLM{
		APIKey:             key,
		Endpoint:           strings.TrimRight(p.cfg.PublicURL, "/"),
		Model:              model,
		SamplingParameters: sampling,
	}}, nil
}
