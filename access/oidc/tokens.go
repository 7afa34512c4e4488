package oidc

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
)

// TokensConfig configures [NewTokens].
type TokensConfig struct {
	Config

	// Audience must be in the claim aud. It distinguishes tokens for this server from tokens that the issuer made for
	// another server, which that server could otherwise use here.
	Audience string
	// KeysURL is the address of the issuer's keys (JWKS, RFC 7517). The default is in the issuer's discovery
	// document.
	KeysURL string
}

// Tokens checks the bearer tokens of machines. It is an [access.Checker].
type Tokens struct {
	cfg  TokensConfig
	keys *keySet
}

var _ access.Checker = (*Tokens)(nil)

// NewTokens returns Tokens; CodeInvalid. It fetches no keys yet.
func NewTokens(cfg TokensConfig) (*Tokens, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Audience == "" {
		return nil, agl.Errorf(agl.CodeInvalid, "audience: must not be empty")
	}
	return &Tokens{cfg: cfg, keys: &keySet{issuer: newDiscovery(&cfg.Config), url: cfg.KeysURL}}, nil
}

// Check implements [access.Checker]. It checks the issuer, the audience, the time and the signature of a token. If
// the issuer's keys cannot be fetched, the error is CodeUnavailable.
func (t *Tokens) Check(ctx context.Context, token string) (access.Caller, error) {
	verified, err := t.keys.verify(ctx, t.cfg.Audience, token, "the token")
	if err != nil {
		return access.Caller{}, err
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token: %w", err)
	}
	caller, err := t.cfg.caller(claims, verified.Subject)
	caller.Expire = verified.Expiry
	return caller, err
}
