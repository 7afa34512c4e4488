package oidc

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"

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
	cfg      TokensConfig
	verifier *oidc.IDTokenVerifier
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
	t := &Tokens{cfg: cfg}
	keys := &keySet{cfg: &t.cfg, issuer: newDiscovery(&cfg.Config), client: &http.Client{Timeout: askTimeout, Transport: &rateLimited{base: cmp.Or(cfg.Transport, http.DefaultTransport)}}}
	t.verifier = oidc.NewVerifier(cfg.Issuer, keys, &oidc.Config{ClientID: cfg.Audience, SupportedSigningAlgs: algorithms})
	return t, nil
}

// Check implements [access.Checker]. It checks the issuer, the audience, the time and the signature of a token. If
// the issuer's keys cannot be fetched, the error is CodeUnavailable.
func (t *Tokens) Check(ctx context.Context, token string) (access.Caller, error) {
	var away error
	verified, err := t.verifier.Verify(context.WithValue(ctx, awayKey{}, &away), token)
	if away != nil {
		return access.Caller{}, away
	}
	if err != nil {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token: %w", err)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token: %w", err)
	}
	caller, err := t.cfg.caller(claims, verified.Subject)
	caller.Expire = verified.Expiry
	return caller, err
}

// keySet holds the keys of an issuer. They are fetched when a token needs them.
type keySet struct {
	cfg    *TokensConfig
	issuer *discovery
	client *http.Client

	mu     sync.Mutex
	remote oidc.KeySet // nil until its URL is known
}

// awayKey is the context key of an *error that is set when the keys cannot be fetched: a verifier keeps only the text
// of a key set's error.
type awayKey struct{}

// VerifySignature implements [oidc.KeySet].
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	remote, err := k.open(ctx)
	var payload []byte
	if err == nil {
		payload, err = remote.VerifySignature(ctx, token)
		if errors.Is(err, errAskedJustNow) { // the keys may have come while this call looked for them
			payload, err = remote.VerifySignature(ctx, token)
		}
		_, isURL := errors.AsType[*url.Error](err)
		if err != nil && (ctx.Err() != nil || isURL && !errors.Is(err, errAskedJustNow)) {
			err = agl.Errorf(agl.CodeUnavailable, "the keys of the issuer %s: %w", k.cfg.Issuer, err)
		}
	}
	if away, ok := ctx.Value(awayKey{}).(*error); ok && agl.ErrorCode(err) == agl.CodeUnavailable {
		*away = err
	}
	return payload, err
}

func (k *keySet) open(ctx context.Context) (oidc.KeySet, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remote != nil {
		return k.remote, nil
	}
	at := k.cfg.KeysURL
	if at == "" {
		provider, err := k.issuer.provider(ctx)
		if err != nil {
			return nil, err
		}
		var says struct {
			KeysURL string `json:"jwks_uri"`
		}
		if err := provider.Claims(&says); err != nil {
			return nil, agl.Errorf(agl.CodeUnavailable, "the discovery document of %s: %w", k.cfg.Issuer, err)
		}
		at = says.KeysURL
	}
	k.remote = oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), k.client), at)
	return k.remote, nil
}
