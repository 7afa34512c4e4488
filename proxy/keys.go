package proxy

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/session"
	"github.com/agl-go/agl/proxy/upstream"
)

// defaultKeyTTL is how long virtual keys are valid.
const defaultKeyTTL = 7 * 24 * time.Hour

// keys makes and checks the virtual keys of attempts. The zero value requires none.
type keys struct {
	secret  string         // may be "env:NAME"; empty requires no keys
	token   string         // with a secret, required of calls outside of attempts
	access  access.Checker // knows the keys of a store; nil knows none
	always  bool           // keys are required without a secret, too
	revoked *access.Revocations
	failed  *access.Throttle
	lookup  func(name string) (value string, ok bool)
}

// attempt returns the key of an attempt, valid for ttl, or a week if that is 0.
func (k *keys) attempt(rolloutID, attemptID string, ttl time.Duration) (string, error) {
	run, err := k.run(ttl)
	if err != nil {
		return "", err
	}
	key, _ := runkey.ForAttempt(run, rolloutID, attemptID)
	return key, nil
}

// run returns a run key, valid for ttl, or a week if that is 0. The keys of attempts are made
// from it.
func (k *keys) run(ttl time.Duration) (string, error) {
	if k.secret == "" {
		return "", agl.Errorf(agl.CodeInvalid, "KeySecret: empty, must be set for the proxy to give keys")
	}
	secret, err := upstream.Secret(k.secret, k.lookup)
	if err != nil {
		return "", err
	}
	return runkey.New(secret, time.Now().Add(cmp.Or(ttl, defaultKeyTTL))), nil
}

// authorize checks whether a request may use a route of some scopes, and returns its caller. It
// removes our keys from the request, so that no backend gets them.
func (k *keys) authorize(r *http.Request, rt route, scope access.Scope) (by caller, refused *openai.Error) {
	required := k.secret != "" || k.always
	key := k.take(r.Header, required && rt.rolloutID != "")
	if refused := k.errKeyInURL(r); refused != nil {
		return caller{}, refused
	}
	ofStore := k.access != nil && access.IsKey(key)
	root := access.Root()
	switch err := root.Allow(scope); {
	case err != nil: // the route declares no scope
		return caller{}, admin.AccessError(err)
	case scope&access.Public != 0 || !required && !ofStore:
		return caller{}, nil
	}
	wait := k.failed.Admit(r.RemoteAddr, key != "", !ofStore && !runkey.IsVirtual(key), func() bool {
		if ofStore {
			by, refused = k.allow(r, key, rt, scope)
		} else {
			refused = k.check(r, key, rt)
		}
		return refused == nil || refused.Status != http.StatusUnauthorized
	})
	if wait > 0 {
		return caller{}, admin.AccessError(&access.ThrottledError{Wait: wait})
	}
	if refused == nil && runkey.IsVirtual(key) {
		by.gone = k.goneAttempt(rt.rolloutID, rt.attemptID)
	}
	return by, refused
}

// caller is the sender of a request.
type caller struct {
	key *access.Caller // whose key of the store it is; nil without such a key
	// gone returns an *openai.Error once the key of a running call is no longer valid. A nil
	// gone means that it stays valid.
	gone func(ctx context.Context) error
}

// checkRevoked refuses an attempt whose keys are revoked.
func (k *keys) checkRevoked(ctx context.Context, rolloutID, attemptID string) *openai.Error {
	if k.revoked.Revoked(ctx, agl.Claim{RolloutID: rolloutID, AttemptID: attemptID}) {
		return errKey("the API key of this attempt is revoked")
	}
	return nil
}

// goneAttempt returns the caller.gone of an attempt.
func (k *keys) goneAttempt(rolloutID, attemptID string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if refused := k.checkRevoked(ctx, rolloutID, attemptID); refused != nil {
			return refused
		}
		return nil
	}
}

// check checks a key that is not the store's: the proxy's token, or the key of an attempt.
func (k *keys) check(r *http.Request, key string, rt route) *openai.Error {
	switch {
	case access.Same(key, k.token):
		k.take(r.Header, true)
		return nil
	case rt.rolloutID == "" && key != "" && !runkey.IsVirtual(key):
		return errKey("the API key is wrong: it is neither the proxy's token nor a key that agl key create has made")
	case rt.rolloutID == "":
		return errKey("calls outside of an attempt need the proxy's token or a key, because the proxy requires keys; calls of an attempt need the attempt's key")
	case k.secret == "":
		return errKey("the API key is missing; this proxy takes the keys that agl key create makes")
	}
	secret, err := upstream.Secret(k.secret, k.lookup)
	if err != nil {
		return openai.NewError(http.StatusInternalServerError, openai.APIError, "no_key_secret", err.Error())
	}
	if runkey.Check(secret, key, rt.rolloutID, rt.attemptID, time.Now()) {
		return k.checkRevoked(r.Context(), rt.rolloutID, rt.attemptID)
	}
	if _, run := runkey.ForAttempt(key, rt.rolloutID, rt.attemptID); run {
		return errKey("the API key is the run's, not the attempt's; runners of the Python package pass the run's key on unchanged: get the attempt's key with POST /admin/attempts/key")
	}
	remedy := "use the key in the attempt's resource"
	if k.access != nil {
		remedy += ", or put a key that agl key create has made into that resource"
	}
	return errKey("the API key is missing, expired or not that of this attempt; " + remedy)
}

func errKey(message string) *openai.Error {
	return openai.NewError(http.StatusUnauthorized, openai.AuthenticationError, "invalid_api_key", message)
}

// allow checks a key of the store.
func (k *keys) allow(r *http.Request, key string, rt route, scope access.Scope) (caller, *openai.Error) {
	found, err := k.access.Check(r.Context(), key)
	if err == nil {
		err = found.Allow(scope)
	}
	switch {
	case err != nil:
		return caller{}, admin.AccessError(err)
	case !found.MayActFor(agl.Claim{RolloutID: rt.rolloutID, AttemptID: rt.attemptID}):
		return caller{}, errKey("the API key is that of another attempt")
	}
	return caller{&found, func(ctx context.Context) error {
		if _, err := k.access.Check(ctx, key); agl.ErrorCode(err) == agl.CodeUnauthorized {
			return admin.AccessError(err)
		}
		return nil
	}}, nil
}

// keyHeaders are the headers that carry keys.
var keyHeaders = [...]string{"Authorization", "X-Api-Key", "Api-Key"}

// given returns the API key of a request, and one of ours if it has several keys.
func (k *keys) given(h http.Header) (key string) {
	for _, name := range keyHeaders {
		for _, value := range h[name] {
			text, ours := k.in(value)
			if ours {
				return text
			}
			key = cmp.Or(key, text)
		}
	}
	return key
}

// take returns the API key of a request, and removes our keys from the headers, or with all
// every key.
func (k *keys) take(h http.Header, all bool) (key string) {
	key = k.given(h)
	for _, name := range keyHeaders {
		if all || slices.ContainsFunc(h[name], func(value string) bool {
			_, ours := k.in(value)
			return ours
		}) {
			delete(h, name)
		}
	}
	return key
}

// in returns the key in the value of a header, and whether it is one of ours. It finds ours in
// any position, because no backend may get it.
func (k *keys) in(value string) (key string, ours bool) {
	key, ok := access.Credential(value)
	if !ok {
		key = value
	}
	for field := range strings.FieldsFuncSeq(key, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' }) {
		if k.isOurs(field) {
			return field, true
		}
	}
	return key, k.isOurs(key)
}

// isOurs reports whether a text is the proxy's token or has the form of a key of the proxy or
// the store.
func (k *keys) isOurs(text string) bool {
	return runkey.IsVirtual(text) || session.IsKey(text) || k.access != nil && access.IsKey(text) || access.Same(text, k.token)
}

// errKeyInURL refuses a request with one of our keys in its query, because queries go to backends
// and into logs.
func (k *keys) errKeyInURL(r *http.Request) *openai.Error {
	if r.URL.RawQuery == "" {
		return nil
	}
	for _, values := range r.URL.Query() {
		if slices.ContainsFunc(values, k.isOurs) {
			return errKey("the API key is in the query of the URL, where others read it: send it as Authorization: Bearer KEY, and revoke this one")
		}
	}
	return nil
}
