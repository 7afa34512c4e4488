package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/rest/internal/wire"
)

// auth finds out who makes a request. Without a configured token every request without
// a key is the root's.
type auth struct {
	token  string
	spans  string // the secret of span tokens
	digest [sha256.Size]byte
	keys   *access.Keys // may be nil
	failed *access.Throttle
}

func newAuth(token, spans string, keys *access.Keys, failed *access.Throttle) auth {
	return auth{token, spans, sha256.Sum256([]byte(token)), keys, failed}
}

// identify sets the caller of a request. An address that has failed too often must wait,
// unless it has a valid key: those cannot be guessed, and who has one must not suffer from
// others behind the same address.
func (a *auth) identify(x *exchange) error {
	from, now := x.request.RemoteAddr, time.Now()
	given := access.Given(x.request)
	isKey := a.keys != nil && access.Is(given)
	blocked := a.failed.Blocked(from, now)
	if blocked > 0 && !isKey {
		return errThrottled(x, blocked)
	}
	err := a.find(x, given, isKey)
	if agl.ErrorCode(err) != agl.CodeUnauthorized {
		return err
	}
	if blocked > 0 {
		return errThrottled(x, blocked)
	}
	if given != "" { // who sends nothing does not guess
		a.failed.Fail(from, now)
	}
	return err
}

func errThrottled(x *exchange, wait time.Duration) error {
	backoff.SetRetryAfter(x.Header(), wait)
	return wire.ErrDetail(http.StatusTooManyRequests, "too many wrong tokens and keys have come from this address; try again in "+wait.Round(time.Second).String())
}

// find sets the caller of a request, which has the token, a key, or a span token at the one
// path that accepts those. The body has not been read.
func (a *auth) find(x *exchange, given string, isKey bool) (err error) {
	switch {
	case a.isToken(given), a.token == "" && !isKey:
		x.caller = access.Root()
		return nil
	case isKey:
		if x.caller, err = a.keys.Check(x.context(), given); err == nil {
			x.lease = a.keys.Lease(&x.caller)
		}
		return err
	}
	bearer, _ := strings.CutPrefix(x.request.Header.Get("Authorization"), "Bearer ")
	if x.request.URL.Path == wire.Traces && x.request.Method == http.MethodPost {
		if attempt, ok := wire.CheckSpanToken(a.spans, bearer, time.Now()); ok {
			x.caller = access.Caller{Name: "attempt", Scopes: access.Agent, Attempt: agl.Some(attempt)}
			return nil
		}
	}
	return agl.Errorf(agl.CodeUnauthorized, "a token is needed: Authorization: Bearer TOKEN, or HTTP Basic with the token or a key as password")
}

// isToken compares digests, so that the time it takes tells neither the token nor its
// length.
func (a *auth) isToken(given string) bool {
	digest := sha256.Sum256([]byte(given))
	return a.token != "" && subtle.ConstantTimeCompare(digest[:], a.digest[:]) == 1
}

// refuse answers a request whose caller is unknown. Its body has not been read.
func (a *auth) refuse(x *exchange, err error) {
	if agl.ErrorCode(err) == agl.CodeUnauthorized {
		x.Header()["Www-Authenticate"] = []string{"Bearer", `Basic realm="agl"`}
	}
	x.fail(err)
}

// allow returns why the caller may not use a route that declares scopes, or nil.
func (x *exchange) allow(scope access.Scope) error {
	err := x.caller.Allow(scope)
	if forbidden, ok := errors.AsType[*access.ForbiddenError](err); ok {
		return wire.ErrDetail(http.StatusForbidden, forbidden.Error())
	}
	return err
}

// admitSpans refuses spans of attempts that the caller may not speak for.
func (x *exchange) admitSpans(spans []agl.Span) error {
	for i := range spans {
		if s := &spans[i]; !x.caller.Speaks(agl.Claim{RolloutID: s.RolloutID, AttemptID: s.AttemptID}) {
			return agl.Errorf(agl.CodeUnauthorized, "the token is that of attempt %s, not that of attempt %s of rollout %s", x.caller.Attempt.V.AttemptID, s.AttemptID, s.RolloutID)
		}
	}
	return nil
}
