package oidc

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/agl-go/agl"
)

const (
	askTimeout = 10 * time.Second
	// askInterval is the shortest time between two requests for the provider's document or for its keys, so that tokens
	// with invented key ids do not cause a request each.
	askInterval = time.Second
)

// algorithms are the accepted signature algorithms: all asymmetric ones, never "none".
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// discovery reads a provider's discovery document when it is first needed, so that a server can start while its
// provider is away.
type discovery struct {
	issuer string
	client *http.Client

	mu    sync.Mutex
	found *oidc.Provider
	asked time.Time
	err   error
}

func newDiscovery(cfg *Config) *discovery {
	return &discovery{issuer: cfg.Issuer, client: &http.Client{Timeout: askTimeout, Transport: cfg.Transport}}
}

// provider returns the provider's discovery document; CodeUnavailable.
func (d *discovery) provider(ctx context.Context) (*oidc.Provider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil {
		return d.found, nil
	}
	if d.err != nil && time.Since(d.asked) < askInterval {
		return nil, d.err
	}
	// Later requests use the document, too, so fetching it goes on when this request is cancelled.
	d.found, d.err = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), d.client), d.issuer)
	d.asked = time.Now()
	if d.err != nil {
		d.err = agl.Errorf(agl.CodeUnavailable, "the identity provider %s: %w", d.issuer, d.err)
	}
	return d.found, d.err
}
