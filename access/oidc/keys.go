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
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

const (
	// keysMaxAge is how long the issuer's keys are used before they are fetched again, so that a key that the issuer has
	// withdrawn ends.
	keysMaxAge = 5 * time.Minute
	// renewTimeout limits the wait for new keys while older ones are known.
	renewTimeout = 2 * time.Second
	// maxKeys bounds the answer with an issuer's keys, in bytes.
	maxKeys = 1 << 20
)

// keySet holds the keys of an issuer. They are fetched when a token needs them. While the issuer is away, those that are
// known stay valid.
type keySet struct {
	issuer *discovery
	url    string // "" is that of the issuer's discovery document
	known  atomic.Pointer[knownKeys]

	fetching sync.Mutex // for what follows
	asked    time.Time  // when the last request ended
	err      error      // of the last request
}

// knownKeys are keys that were fetched. They fetch nothing themselves.
type knownKeys struct {
	oidc.KeySet

	since time.Time
}

// verify checks the issuer, the audience, the time and the signature of a token. The error is CodeUnavailable if the issuer's
// keys cannot be fetched, otherwise CodeUnauthorized; what names the token in it.
func (k *keySet) verify(ctx context.Context, audience, token, what string) (*oidc.IDToken, error) {
	one := &verification{keys: k}
	verified, err := oidc.NewVerifier(k.issuer.issuer, one, &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms}).Verify(ctx, token)
	if agl.ErrorCode(one.err) == agl.CodeUnavailable {
		return nil, one.err
	}
	if err != nil {
		return nil, agl.Errorf(agl.CodeUnauthorized, "%s: %w", what, err)
	}
	return verified, nil
}

// verification is the verification of one token. It keeps the error, of which a verifier keeps only the text.
type verification struct {
	keys *keySet
	err  error
}

// VerifySignature implements [oidc.KeySet].
func (v *verification) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, v.err = v.keys.payload(context.WithoutCancel(ctx), token)
	return payload, v.err
}

// payload returns the content of a token that one of the keys has signed.
func (k *keySet) payload(ctx context.Context, token string) ([]byte, error) {
	known := k.known.Load()
	if known == nil || known.old() {
		newer, err := k.renew(ctx, known)
		switch {
		case err == nil:
			known = newer
		case known == nil:
			return nil, err
		}
	}
	if payload, err := known.VerifySignature(ctx, token); err == nil {
		return payload, nil
	}
	newer, err := k.renew(ctx, known) // the key may be a new one
	if err != nil {
		return nil, err
	}
	return newer.VerifySignature(ctx, token)
}

func (k *knownKeys) old() bool { return time.Since(k.since) >= keysMaxAge }

var errAskedJustNow = errors.New("none of the issuer's keys has signed it; they were fetched less than a second ago")

// renew returns newer keys than known: those that another call has stored meanwhile, or those that it fetches. Within askInterval of the last
// request it fetches none and returns an error. If the issuer is away, old keys count for another keysMaxAge.
func (k *keySet) renew(ctx context.Context, known *knownKeys) (*knownKeys, error) {
	k.fetching.Lock()
	defer k.fetching.Unlock()
	if newer := k.known.Load(); newer != known {
		return newer, nil
	}
	if time.Since(k.asked) < askInterval {
		return nil, cmp.Or(k.err, errAskedJustNow)
	}
	if known != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, renewTimeout)
		defer cancel()
	}
	began := time.Now()
	fetched, err := k.fetch(ctx)
	k.asked = time.Now() // those who wait for the lock need not ask again
	if k.err = nil; err != nil {
		k.err = agl.Errorf(agl.CodeUnavailable, "the keys of the issuer %s: %w", k.issuer.issuer, err)
		if known == nil || !known.old() {
			return nil, k.err
		}
		fetched = known.KeySet
	}
	newer := &knownKeys{fetched, began}
	k.known.Store(newer)
	return newer, nil
}

// fetch requests the keys. An answer that is no set of keys (RFC 7517), such as a page of another server, is an error.
func (k *keySet) fetch(ctx context.Context) (oidc.KeySet, error) {
	at, err := k.find(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := k.issuer.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered with %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKeys+1))
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil || set.Keys == nil || len(body) > maxKeys {
		return nil, fmt.Errorf("it answered with no set of keys, but %.100q", body)
	}
	return oidc.NewRemoteKeySet(oidc.ClientContext(ctx, &http.Client{Transport: fixed(body)}), at), nil
}

// find returns the URL of the keys.
func (k *keySet) find(ctx context.Context) (string, error) {
	if k.url != "" {
		return k.url, nil
	}
	provider, err := k.issuer.provider(ctx)
	if err != nil {
		return "", err
	}
	var says struct {
		KeysURL string `json:"jwks_uri"`
	}
	if err := provider.Claims(&says); err != nil {
		return "", fmt.Errorf("its discovery document: %w", err)
	}
	return says.KeysURL, nil
}

// fixed is a transport that always gives the same answer.
type fixed []byte

// RoundTrip implements [http.RoundTripper].
func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(f)), Request: r}, nil
}
