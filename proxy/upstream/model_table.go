package upstream

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// table is a list of models, indexed for look-ups. It is immutable: SetModels replaces
// it.
type table struct {
	models []Model
	groups map[string]*group
	states map[string]*state // by name, base URL and number; see newTable
}

// group holds the replicas of one model name.
type group struct {
	replicas []*backend
	next     atomic.Uint64
}

// newTable returns a table of models. Backends that are also in before, which may be
// nil, keep their state.
func newTable(models []Model, before *table) (*table, error) {
	t := &table{models: slices.Clone(models), groups: make(map[string]*group), states: make(map[string]*state)}
	for i, m := range t.models {
		if m.Name == "" {
			return nil, agl.Errorf(agl.CodeInvalid, "models[%d].name: empty, must be the name that agents ask for", i)
		}
		b, err := newBackend(m)
		if err != nil {
			return nil, err
		}
		g := t.groups[b.key()]
		if g == nil {
			g = &group{}
			t.groups[b.key()] = g
		}
		same := 0 // replicas behind one base URL are numbered
		for _, r := range g.replicas {
			if r.BaseURL == b.BaseURL {
				same++
			}
		}
		place := b.BaseURL + "\n" + strconv.Itoa(same)
		b.seed = mix(0, place)
		key := b.key() + "\n" + place
		if before != nil {
			b.state = before.states[key]
		}
		if b.state == nil {
			b.state = &state{}
		}
		t.states[key] = b.state
		g.replicas = append(g.replicas, b)
	}
	return t, nil
}

// key is the key of the model's group.
func (m *Model) key() string {
	if m.Resources == "" {
		return m.Name
	}
	return m.Name + " for " + m.Resources
}

// names returns the model names in the order of the list.
func (t *table) names() []string {
	var names []string
	for _, m := range t.models {
		if m.Resources == "" && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// pinned returns the keys of the groups that are reserved for rollouts with these
// resources, by model name; nil if there are none.
func (t *table) pinned(resources string) map[string]string {
	var keys map[string]string
	for _, m := range t.models {
		if m.Resources != "" && m.Resources == resources {
			if keys == nil {
				keys = map[string]string{}
			}
			keys[m.Name] = m.key()
		}
	}
	return keys
}

// backends visits every backend in the order of the list.
func (t *table) backends(visit func(b *backend)) {
	seen := map[*group]bool{}
	for i := range t.models {
		g := t.groups[t.models[i].key()]
		if seen[g] {
			continue
		}
		seen[g] = true
		for _, b := range g.replicas {
			visit(b)
		}
	}
}

// group returns the replicas of a model, or the *openai.Error for an unknown model.
func (t *table) group(model string) (*group, error) {
	if g := t.groups[model]; g != nil {
		return g, nil
	}
	names := "none"
	if list := t.names(); len(list) > 0 {
		names = strings.Join(list, ", ")
	}
	e := openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "model_not_found", fmt.Sprintf("the model %q does not exist; there are: %s", model, names))
	e.Param = "model"
	return nil, e
}

// slack times the mean load is how much load a replica may have before the calls of a
// rollout go to another.
const slack = 1.25

// pick chooses a replica that is up and not in tried; it returns nil if there is none.
// The calls of a key (a rollout id or a session id) go to the same replica by
// rendezvous hashing, so that they find their earlier prefixes in its cache. If that
// replica has reached its share of the load, they go to the next one in rendezvous
// order. Calls without a key go to the replica with the lowest load.
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
		if !slices.Contains(tried, b) && b.state.downFor(now) == 0 {
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
	if best == nil { // the load has grown since total was summed
		best = g.idlest(up)
	}
	return best
}

// winner returns the allowed replica with the highest weight for the key.
func winner(up []*backend, key string, allowed func(b *backend) bool) (best *backend) {
	var weight uint64
	for _, b := range up {
		if w := mix(b.seed, key); (best == nil || w > weight) && allowed(b) {
			best, weight = b, w
		}
	}
	return best
}

// idlest returns the replica with the lowest load; equal ones take turns.
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

// versionNow returns the present version of b's weights. If this table has an entry
// with the same base URL and backend model, the weights were changed in place, and the
// version is that entry's. Otherwise a running call ends on the weights that it began on.
func (t *table) versionNow(b *backend) string {
	if g := t.groups[b.key()]; g != nil {
		for _, r := range g.replicas {
			if r.BaseURL == b.BaseURL && r.BackendModel == b.BackendModel {
				return r.Version
			}
		}
	}
	return b.Version
}

// noneUp returns the error of a call when every replica is down.
func (g *group) noneUp(model string, now time.Time) *openai.Error {
	wait := never
	var each []string
	for _, b := range g.replicas {
		wait = min(wait, b.state.downFor(now))
		why := "its calls fail"
		if b.state.missed.Load() >= maxMissed {
			why = "its health probe fails"
		} else if last := b.state.failure.Load(); last != nil {
			why += fmt.Sprintf(", the last one with %.300q", *last)
		}
		each = append(each, b.url()+" ("+why+")")
	}
	return refusal(http.StatusServiceUnavailable, "no_backend_up", wait,
		fmt.Sprintf("every backend of model %q is down: %s", model, strings.Join(each, ", ")))
}
