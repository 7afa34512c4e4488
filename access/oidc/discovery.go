package oidc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/agl-go/agl"
)

const (
	askTimeout = 10 * time.Second
	// askInterval is the shortest time between two requests for the provider's document or
	// keys: a token with an invented key id must not make this server ask for each.
	askInterval = time.Second
)

// algorithms are the signatures that are accepted: all asymmetric ones, and never "none".
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// discovery finds a provider's endpoints and keys when they are first needed, so that a
// server starts while its provider is away.
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

// provider returns what the provider says of itself; CodeUnavailable.
func (d *discovery) provider(ctx context.Context) (*oidc.Provider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil {
		return d.found, nil
	}
	if d.err != nil && time.Since(d.asked) < askInterval {
		return nil, d.err
	}
	// The keys are fetched with this context's client, and later than this request.
	d.found, d.err = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), d.client), d.issuer)
	d.asked = time.Now()
	if d.err != nil {
		d.err = agl.Errorf(agl.CodeUnavailable, "the identity provider %s: %w", d.issuer, d.err)
	}
	return d.found, d.err
}

// seldom is a client's transport that asks at most once in askInterval.
type seldom struct {
	base http.RoundTripper

	mu    sync.Mutex
	asked time.Time
}

var errAskedJustNow = errors.New("the keys of the provider were fetched a moment ago")

// RoundTrip implements [http.RoundTripper].
func (s *seldom) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	wait := !s.asked.IsZero() && time.Since(s.asked) < askInterval
	if !wait {
		s.asked = time.Now()
	}
	s.mu.Unlock()
	if wait {
		return nil, errAskedJustNow
	}
	return s.base.RoundTrip(r)
}
