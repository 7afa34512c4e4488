package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/upstream"
)

// Rollouts reads rollouts. Every agl.Store is one.
type Rollouts interface {
	GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error)
}

// keptPins is the number of rollouts whose resources are cached.
const keptPins = 1 << 16

// pins finds the versions of models that answer the calls of a rollout. It caches the resources of
// rollouts, which never change.
type pins struct {
	rollouts Rollouts // nil pins no rollout
	upstream *upstream.Pool

	mu        sync.Mutex
	resources map[string]string // by rollout; empty if the rollout has none
}

// models returns the exchange.Origin.Models of a rollout. If the store does not answer, the call is
// refused, because another version would be wrong.
func (p *pins) models(ctx context.Context, rolloutID string) (map[string]string, *openai.Error) {
	if p.rollouts == nil || !p.upstream.Pins() {
		return nil, nil
	}
	resources, err := p.resourcesOf(ctx, rolloutID)
	if err != nil {
		return nil, openai.NewError(http.StatusServiceUnavailable, openai.APIError, "version_unknown",
			"the store does not say which version of the model the rollout is pinned to: "+err.Error())
	}
	return p.upstream.Pinned(resources), nil
}

// resourcesOf returns the id of a rollout's resources; empty if it has none, or if the store does not know
// the rollout.
func (p *pins) resourcesOf(ctx context.Context, rolloutID string) (string, error) {
	p.mu.Lock()
	resources, known := p.resources[rolloutID]
	p.mu.Unlock()
	if known {
		return resources, nil
	}
	r, err := p.rollouts.GetRollout(ctx, agl.GetRolloutParams{RolloutID: rolloutID})
	if errors.Is(err, agl.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resources == nil || len(p.resources) >= keptPins {
		p.resources = map[string]string{}
	}
	p.resources[rolloutID] = r.ResourcesID.V
	return r.ResourcesID.V, nil
}
