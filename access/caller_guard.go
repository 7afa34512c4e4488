package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"github.com/agl-go/agl"
)

// Guard authenticates the callers of a server that has a key of its own and may know the keys of a store. The zero
// value takes everybody for root.
type Guard struct {
	Key  string  // the server's own, which may do everything; "" means none
	Keys Checker // checks other keys; nil accepts none
	// Failed limits how often an address may send a wrong key; nil means no limit.
	Failed *Throttle
	// Open bounds the open requests of each caller; nil means no limit.
	Open *Open
}

// Required reports whether callers need a key.
func (g *Guard) Required() bool { return g.Key != "" || g.Keys != nil }

// Allow returns nil if the caller of a request may use a route that declares these scopes. Otherwise it returns
// CodeUnauthorized for a key that is missing, unknown, expired or revoked, a *ForbiddenError for a key that lacks the
// scopes, a *ThrottledError for an address that must wait, and another error if the key cannot be checked. It forbids
// keys with limits, and keys of projects that limit model calls, because this server does not count what they use.
func (g *Guard) Allow(r *http.Request, scope Scope) (err error) {
	root := Root()
	if err := root.Allow(scope); err != nil { // the route declares no scope
		return err
	}
	if scope&Public != 0 || !g.Required() {
		return nil
	}
	given := cmp.Or(r.Header.Get("X-Api-Key"), Given(r))
	isKey := g.Keys != nil && IsKey(given)
	wait := g.Failed.Admit(r.RemoteAddr, given != "", !isKey, func() bool {
		err = g.allow(r, given, isKey, scope)
		return agl.ErrorCode(err) != agl.CodeUnauthorized
	})
	if wait > 0 {
		return &ThrottledError{wait}
	}
	return err
}

func (g *Guard) allow(r *http.Request, given string, isKey bool, scope Scope) error {
	if Same(given, g.Key) {
		return nil
	}
	if !isKey {
		return agl.Errorf(agl.CodeUnauthorized, "the API key is missing or wrong: send it as X-API-Key or as a bearer token")
	}
	caller, err := g.Keys.Check(r.Context(), given)
	switch {
	case err != nil:
		return err
	case caller.Limits != (Limits{}) || !caller.Rules.None():
		return &ForbiddenError{"the key " + caller.KeyID + " has a budget, a list of models or a rate, which this server does not count; use a key without limits, or put agl proxy in front of this server"}
	case caller.Project.MaxTokens > 0 || caller.Project.MaxUSD > 0 || caller.Project.MaxCalls > 0:
		return &ForbiddenError{"the project has a budget of tokens, dollars or calls, which this server does not count; put agl proxy in front of this server"}
	}
	return caller.Allow(scope)
}

// KeyOf returns the key, known to Keys, that let a request in; "" if another credential did.
func (g *Guard) KeyOf(r *http.Request) string {
	given := cmp.Or(r.Header.Get("X-Api-Key"), Given(r))
	if g.Keys == nil || !IsKey(given) || Same(given, g.Key) {
		return ""
	}
	return given
}

// Gone returns a function for [Watch] that checks the key of a request again; nil if no key of Keys let the request
// in.
func (g *Guard) Gone(r *http.Request) func(ctx context.Context) error {
	given := g.KeyOf(r)
	if given == "" {
		return nil
	}
	return func(ctx context.Context) error {
		if _, err := g.Keys.Check(ctx, given); agl.ErrorCode(err) == agl.CodeUnauthorized {
			return err
		}
		return nil
	}
}

// Enter counts a request as open until leave is called. The error is an *OpenError.
func (g *Guard) Enter(r *http.Request) (leave func(), err error) {
	var caller Caller
	if given := g.KeyOf(r); given != "" {
		caller.KeyID, _ = keyID(given)
	}
	return g.Open.Enter(caller.Who(r.RemoteAddr))
}

// Same reports whether a text is a secret that is not empty. It compares digests, so that its duration reveals neither
// the secret nor its length.
func Same(given, secret string) bool {
	own, other := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(given))
	return secret != "" && subtle.ConstantTimeCompare(own[:], other[:]) == 1
}
