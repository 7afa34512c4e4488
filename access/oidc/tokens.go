package oidc

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

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

// keysMaxAge is how long the issuer's keys are used before they are fetched again, so that a key that the issuer has
// withdrawn ends.
const keysMaxAge = 5 * time.Minute

// keySet holds the keys of an issuer. They are fetched when a token needs them. While the issuer is away, those that are
// known stay valid.
type keySet struct {
	cfg    *TokensConfig
	issuer *discovery
	client *http.Client

	mu     sync.Mutex
	at     string      // their URL, "" until it is known
	remote oidc.KeySet // nil before the first token
	older  oidc.KeySet // what remote replaces once it has been fetched; nil afterwards
	since  time.Time   // when remote was made
}

// awayKey is the context key of an *error that is set when the keys cannot be fetched: a verifier keeps only the text
// of a key set's error.
type awayKey struct{}

// VerifySignature implements [oidc.KeySet].
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	remote, older, err := k.open(ctx)
	var payload []byte
	switch {
	case err != nil:
	case older == nil:
		payload, err = k.verify(ctx, remote, token)
	default:
		payload, err = k.refresh(ctx, remote, older, token)
	}
	if away, ok := ctx.Value(awayKey{}).(*error); ok && agl.ErrorCode(err) == agl.CodeUnavailable {
		*away = err
	}
	if errors.Is(err, errAskedJustNow) {
		err = errors.New("none of the issuer's keys has made it; they were fetched less than a second ago")
	}
	return payload, err
}

func (k *keySet) verify(ctx context.Context, remote oidc.KeySet, token string) ([]byte, error) {
	payload, err := remote.VerifySignature(ctx, token)
	if errors.Is(err, errAskedJustNow) { // the keys may have come while this call looked for them
		payload, err = remote.VerifySignature(ctx, token)
	}
	_, isURL := errors.AsType[*url.Error](err)
	if err != nil && (ctx.Err() != nil || isURL && !errors.Is(err, errAskedJustNow)) {
		err = agl.Errorf(agl.CodeUnavailable, "the keys of the issuer %s: %w", k.cfg.Issuer, err)
	}
	return payload, err
}

// refreshTimeout limits the wait for new keys while older ones are known.
const refreshTimeout = 2 * time.Second

// refresh verifies a token with keys that are to be fetched. The older ones count if the issuer is away. A caller that leaves
// changes nothing: else one whose key is withdrawn could have it renewed.
func (k *keySet) refresh(ctx context.Context, remote, older oidc.KeySet, token string) ([]byte, error) {
	fetching, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	payload, err := k.verify(fetching, remote, token)
	choice := remote
	switch {
	case errors.Is(err, errAskedJustNow): // for the older ones; the next call decides
		choice = nil
	case agl.ErrorCode(err) == agl.CodeUnavailable:
		choice = older
	}
	if keys := k.settle(remote, choice); keys != remote {
		return k.verify(ctx, keys, token)
	}
	return payload, err
}

// settle chooses the keys that count until they are too old, unless another call has chosen or choice is nil. It returns those
// that count.
func (k *keySet) settle(remote, choice oidc.KeySet) oidc.KeySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remote != remote || k.older == nil {
		return k.remote
	}
	if choice == nil {
		return k.older
	}
	k.remote, k.older = choice, nil
	return choice
}

func (k *keySet) open(ctx context.Context) (remote, older oidc.KeySet, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remote != nil && time.Since(k.since) < keysMaxAge {
		return k.remote, k.older, nil
	}
	if k.at == "" {
		if k.at, err = k.find(ctx); err != nil {
			return nil, nil, err
		}
	}
	k.older = cmp.Or(k.older, k.remote)
	k.remote, k.since = oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), k.client), k.at), time.Now()
	return k.remote, k.older, nil
}

// find returns the URL of the keys.
func (k *keySet) find(ctx context.Context) (string, error) {
	if k.cfg.KeysURL != "" {
		return k.cfg.KeysURL, nil
	}
	provider, err := k.issuer.provider(ctx)
	if err != nil {
		return "", err
	}
	var says struct {
		KeysURL string `json:"jwks_uri"`
	}
	if err := provider.Claims(&says); err != nil {
		return "", agl.Errorf(agl.CodeUnavailable, "the discovery document of %s: %w", k.cfg.Issuer, err)
	}
	return says.KeysURL, nil
}
