package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/internal/wire"
)

// auth identifies the caller of a request. Without a configured token, a request without a key is root's.
type auth struct {
	token  string
	spans  string // the secret of span tokens
	digest [sha256.Size]byte
	keys   *access.Keys // may be nil
	failed *access.Throttle

	sessions     *access.Sessions // of browsers; may be nil
	origins      []string         // origins whose pages may use a session, besides the server's own
	tokens       access.Checker   // of machines; may be nil
	certificates access.Grants    // by name in client certificates
}

func newAuth(config *Config) *auth {
	a := &auth{
		token: config.Token, spans: config.SpanSecret, digest: sha256.Sum256([]byte(config.Token)), keys: config.Keys, failed: config.Failed,
		origins: config.CORSOrigins, tokens: config.Tokens, certificates: config.Certificates,
	}
	if documents, ok := config.Store.(agl.DocumentStore); ok {
		var grants access.Grants
		if config.SignIn != nil {
			grants = config.SignIn.Grants()
		}
		a.sessions = access.NewSessions(documents, config.Keys, config.Token, grants)
	}
	return a
}

// identify sets the caller of a request.
func (a *auth) identify(x *exchange) error { return a.identifyBy(x, access.Given(x.request)) }

func (a *auth) identifyBy(x *exchange, given string) (err error) {
	kind := a.kind(given)
	guessable := kind == asText && (given != "" || !proven(x.request))
	wait := a.failed.Admit(x.request.RemoteAddr, given != "", guessable, func() bool {
		err = a.find(x, given, kind)
		return agl.ErrorCode(err) != agl.CodeUnauthorized
	})
	switch {
	case wait > 0:
		return errThrottled(x, wait)
	case err != nil:
		return err
	}
	return a.lease(x)
}

// credential is the kind of a credential that a caller has sent.
type credential int

const (
	asText credential = iota // the server's token, a span token, nothing, or a guess
	asKey
	asSigned // a machine's token, with three parts (RFC 7515)
)

func (a *auth) kind(given string) credential {
	switch {
	case a.isToken(given): // perhaps in the form of a key: of a run whose AGL_TOKEN is for another store
		return asText
	case a.keys != nil && access.IsKey(given):
		return asKey
	case a.tokens != nil && strings.Count(given, ".") == 2: //nolint:mnd // header, payload, signature
		return asSigned
	default:
		return asText
	}
}

// proven reports whether a request without a text has another credential, which cannot be guessed.
func proven(r *http.Request) bool {
	return cookie(r, sessionCookie) != "" || httpserver.ClientName(r) != ""
}

func errThrottled(x *exchange, wait time.Duration) error {
	backoff.SetRetryAfter(x.Header(), wait)
	return wire.ErrDetail(http.StatusTooManyRequests, (&access.ThrottledError{Wait: wait}).Error())
}

// find sets the caller of a request: by the server's token, a key, a machine's token, or a span token at the one path
// that accepts those; without any of these by a session or a client certificate. The body has not been read yet.
func (a *auth) find(x *exchange, given string, kind credential) (err error) {
	switch {
	case kind == asKey:
		return a.findBy(x, a.keys, given)
	case kind == asSigned:
		return a.findBy(x, a.tokens, given)
	case a.isToken(given), a.token == "":
		x.caller = access.Root()
		return nil
	}
	if x.request.URL.Path == wire.Traces && x.request.Method == http.MethodPost {
		if attempt, ok := wire.CheckSpanToken(a.spans, given, time.Now()); ok && !a.keys.Revocations().Revoked(x.context(), attempt) {
			x.caller = access.Caller{Name: "attempt", Scopes: access.Agent, Attempt: agl.Some(attempt)}
			return nil
		}
	}
	if given == "" {
		if text := cookie(x.request, sessionCookie); text != "" && a.sessions != nil && a.ownPage(x.request) {
			return a.findBy(x, a.sessions, text)
		}
		if name := httpserver.ClientName(x.request); name != "" && a.certificates[name] != 0 {
			x.caller = access.Caller{Name: "certificate:" + name, Scopes: a.certificates[name]}
			return nil
		}
	}
	if given != "" {
		return agl.Errorf(agl.CodeUnauthorized, "the token is wrong: it is neither that of the server nor a key, or is not valid here")
	}
	shown := ""
	if name := httpserver.ClientName(x.request); name != "" {
		shown = fmt.Sprintf("the client certificate %.100q stands for no scopes here (--tls-client), so ", name)
	} else if httpserver.ClientOutdated(x.request) {
		shown = "the client certificate of this connection has expired, or its CA is no longer trusted here: connect again with a valid one; without one "
	}
	return agl.Errorf(agl.CodeUnauthorized, "%sa token is needed: Authorization: Bearer TOKEN, or HTTP Basic with the token or a key as password", shown)
}

// still returns an error if the caller of a long request would be refused by now: its key was revoked or has expired,
// or its session is over.
func (a *auth) still(x *exchange) error {
	given, who := access.Given(x.request), x.caller
	defer func() { x.caller = who }() // for the audit log
	return a.find(x, given, a.kind(given))
}

// findBy sets the caller that a checker identifies.
func (a *auth) findBy(x *exchange, checker access.Checker, given string) (err error) {
	x.caller, err = checker.Check(x.context(), given)
	return err
}

// lease starts counting what the caller uses, if its key or the server's project has limits.
func (a *auth) lease(x *exchange) (err error) {
	if a.keys == nil {
		return nil
	}
	if x.caller.Project, err = a.keys.ProjectLimits(x.context()); err == nil {
		x.lease = a.keys.Lease(&x.caller)
	}
	return err
}

// isToken compares digests, so that its duration reveals neither the token nor its length.
func (a *auth) isToken(given string) bool {
	if a.token == "" {
		return false
	}
	digest := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(digest[:], a.digest[:]) == 1
}

// refuse answers a request whose caller could not be identified. Its body has not been read.
func (a *auth) refuse(x *exchange, err error) {
	if agl.ErrorCode(err) == agl.CodeUnauthorized {
		ways := []string{"Bearer", `Basic realm="agl"`}
		if x.request.Header.Get("X-Requested-With") != "" { // a page's script: for Basic the browser would ask for a password
			ways = ways[:1]
		}
		x.Header()["Www-Authenticate"] = ways
	}
	x.fail(err)
}

// allow returns an error if the caller may not use a route that declares these scopes.
func (x *exchange) allow(scope access.Scope) error {
	err := x.caller.Allow(scope)
	if forbidden, ok := errors.AsType[*access.ForbiddenError](err); ok {
		return wire.ErrDetail(http.StatusForbidden, forbidden.Error())
	}
	return err
}

// admitSpans rejects spans of attempts that the caller may not act for.
func (x *exchange) admitSpans(spans []agl.Span) error {
	for i := range spans {
		if s := &spans[i]; !x.caller.MayActFor(agl.Claim{RolloutID: s.RolloutID, AttemptID: s.AttemptID}) {
			return agl.Errorf(agl.CodeUnauthorized, "the token is that of attempt %q, not that of attempt %q of rollout %q", x.caller.Attempt.V.AttemptID, s.AttemptID, s.RolloutID)
		}
	}
	return nil
}
