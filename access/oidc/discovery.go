package oidc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

const (
	askTimeout = 10 * time.Second
	// askInterval is the shortest time between two requests for the provider's document or keys, so that tokens with
	// invented key ids do not cause a request each.
	askInterval = time.Second
)

// algorithms are the accepted signature algorithms: all asymmetric ones, never "none".
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// discovery reads a provider's endpoints and keys when they are first needed, so that a server can start while its
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
	// Keys are fetched with this client and context, even after this request has ended.
	d.found, d.err = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), d.client), d.issuer)
	d.asked = time.Now()
	if d.err != nil {
		d.err = agl.Errorf(agl.CodeUnavailable, "the identity provider %s: %w", d.issuer, d.err)
	}
	return d.found, d.err
}

// rateLimited is a transport that sends at most one request for keys in askInterval, besides those that follow a
// redirect. An answer that is no set of keys is an error.
type rateLimited struct {
	base http.RoundTripper

	mu    sync.Mutex
	asked time.Time
	err   error // of the last request
}

var errAskedJustNow = errors.New("the keys of the provider were fetched a moment ago")

// RoundTrip implements [http.RoundTripper]. Within askInterval it returns the error of the last request, or
// errAskedJustNow if that succeeded.
func (s *rateLimited) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Response == nil && !s.asked.IsZero() && time.Since(s.asked) < askInterval {
		return nil, cmp.Or(s.err, errAskedJustNow)
	}
	s.asked = time.Now()
	var response *http.Response
	response, s.err = s.base.RoundTrip(r)
	if s.err == nil && response.StatusCode != http.StatusOK && response.StatusCode/100 != 3 {
		s.err = fmt.Errorf("it answered with %s", response.Status)
		return nil, errors.Join(s.err, response.Body.Close())
	}
	if s.err == nil && response.StatusCode == http.StatusOK {
		s.err = checkKeys(response)
	}
	if s.err != nil {
		return nil, s.err
	}
	return response, nil
}

// maxKeys bounds the answer with a provider's keys, in bytes.
const maxKeys = 1 << 20

// checkKeys reads an answer, and refuses one that is no set of keys (RFC 7517), such as a page of another server.
func checkKeys(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKeys+1))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil || set.Keys == nil || len(body) > maxKeys {
		return fmt.Errorf("it answered with no set of keys, but %.100q", body)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
