package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"github.com/agl-go/agl"
)

// Guard finds out who calls a server that has a key of its own, and may know the keys of a
// store. The zero value takes everybody for root.
type Guard struct {
	Key  string  // the server's own, which may do everything; "" is none
	Keys Checker // knows others; nil knows none
	// Failed limits how often an address may send a wrong key; nil is without limit.
	Failed *Throttle
	// Open bounds the requests of each caller at once; nil is without limit.
	Open *Open
}

// Required reports whether callers need a key.
func (g *Guard) Required() bool { return g.Key != "" || g.Keys != nil }

// Allow returns why the caller of a request may not use a route that declares scopes:
// CodeUnauthorized for a key that is missing, unknown, expired or revoked, a *ForbiddenError
// for one that may not, a *ThrottledError for an address that must wait, and another error if
// that cannot be found out. A key with limits may not, nor one of a project whose calls of models
// are limited, because the server does not count what they use.
func (g *Guard) Allow(r *http.Request, scope Scope) (err error) {
	root := Root()
	if err := root.Allow(scope); err != nil { // nobody may
		return err
	}
	if scope&Public != 0 || !g.Required() {
		return nil
	}
	given := cmp.Or(r.Header.Get("X-Api-Key"), Given(r))
	isKey := g.Keys != nil && Is(given)
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
	if g.isOwn(given) {
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
		return &ForbiddenError{"the key " + caller.KeyID + " has a budget, a list of models or a rate, which this server does not count; use one without limits, or agl proxy in front of it"}
	case caller.Project.MaxTokens > 0 || caller.Project.MaxUSD > 0 || caller.Project.MaxCalls > 0:
		return &ForbiddenError{"the project has a budget of tokens, dollars or calls, which this server does not count; use agl proxy in front of it"}
	}
	return caller.Allow(scope)
}

// KeyOf returns the key of Keys that a request was let in with; "" if it has none.
func (g *Guard) KeyOf(r *http.Request) string {
	given := cmp.Or(r.Header.Get("X-Api-Key"), Given(r))
	if g.Keys == nil || !Is(given) || g.isOwn(given) {
		return ""
	}
	return given
}

// Gone tells, of a request that was let in, whether its key may no longer be here: see [Watch]. It
// is nil if that cannot be.
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

// Enter counts a request that is allowed as open, until leave is called. The error is an
// *OpenError.
func (g *Guard) Enter(r *http.Request) (leave func(), err error) {
	var caller Caller
	if given := g.KeyOf(r); given != "" {
		caller.KeyID, _ = keyID(given)
	}
	return g.Open.Enter(caller.Who(r.RemoteAddr))
}

// isOwn compares digests, so that the time it takes tells neither the key nor its length.
func (g *Guard) isOwn(given string) bool {
	own, other := sha256.Sum256([]byte(g.Key)), sha256.Sum256([]byte(given))
	return g.Key != "" && subtle.ConstantTimeCompare(own[:], other[:]) == 1
}
