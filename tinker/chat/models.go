package chat

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/agl-go/agl/tinker"
)

// Model is what a server serves under a name.
type Model struct {
	// Client samples the tokens.
	Client tinker.SamplingClient
	// Version is sent with every reply as system_fingerprint; empty leaves it out.
	Version string
}

// models are the models of a server by name. Readers never wait: a change replaces the whole map.
type models struct {
	mu      sync.Mutex // held by writers
	current atomic.Pointer[map[string]Model]
}

func newModels() *models {
	m := new(models)
	m.current.Store(&map[string]Model{})
	return m
}

// all returns the models, which must not be changed.
func (m *models) all() map[string]Model { return *m.current.Load() }

func (m *models) change(do func(all map[string]Model)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.all())
	do(all)
	m.current.Store(&all)
}
