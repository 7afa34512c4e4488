package proxy

import (
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/upstream"
)

// variables says to which servers a variable of the proxy's environment may be sent as a key.
// Whoever sets models over HTTP also chooses the server that gets the key. A key env:NAME is
// therefore accepted only if the operator has named the variable for the same server, or has
// allowed it for every server.
type variables struct {
	allowed []string // for every server

	mu    sync.Mutex
	named map[[2]string]bool // by variable and server
}

// variable returns the variable that holds a model's key, and the server that gets it.
func variable(m *upstream.Model) (pair [2]string, ok bool) {
	name, ok := strings.CutPrefix(m.APIKey, "env:")
	if !ok {
		return pair, false
	}
	if u, err := url.Parse(m.BaseURL); err == nil {
		pair[1] = u.Scheme + "://" + u.Host
	}
	pair[0] = name
	return pair, true
}

// name adds the variables that the operator names for servers.
func (v *variables) name(models []upstream.Model) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.named == nil {
		v.named = map[[2]string]bool{}
	}
	for i := range models {
		if pair, ok := variable(&models[i]); ok {
			v.named[pair] = true
		}
	}
}

// check refuses models with CodeInvalid if their keys are variables that only the operator may
// send to their servers.
func (v *variables) check(models []upstream.Model) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range models {
		pair, ok := variable(&models[i])
		if !ok || v.named[pair] || slices.Contains(v.allowed, pair[0]) && !strings.HasPrefix(pair[0], "AGL_") {
			continue
		}
		return agl.Errorf(agl.CodeInvalid, "model %s: api_key: got %q for %s, must be a key, or env:NAME where the proxy's configuration names this variable for a model of the same server, or where --allow-env allows it",
			models[i].Name, models[i].APIKey, pair[1])
	}
	return nil
}
