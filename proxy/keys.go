package proxy

import (
	"cmp"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/upstream"
)

// defaultKeyTTL is how long virtual keys are valid.
const defaultKeyTTL = 7 * 24 * time.Hour

// keys makes and checks the virtual keys of attempts. The zero value requires none.
type keys struct {
	secret  string         // may be "env:NAME"; empty requires no keys
	token   string         // required of calls outside of attempts if there is a secret
	access  access.Checker // knows the keys of a store; nil knows none
	always  bool           // keys are required without a secret, too
	revoked *access.Revocations
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

// run returns a run key, from which the keys of attempts are made.
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

// authorize checks whether a request may use a route that declares scopes, and removes the
// virtual key from the request, so that no backend gets it. It returns the caller if it has a
// key of the store, otherwise nil.
func (k *keys) authorize(r *http.Request, rt route, scope access.Scope) (*access.Caller, *openai.Error) {
	required := k.secret != "" || k.always
	key := k.take(r.Header, required && rt.rolloutID != "")
	root := access.Root()
	switch err := root.Allow(scope); {
	case err != nil: // nobody may
		return nil, admin.AccessError(err)
	case scope&access.Public != 0:
		return nil, nil
	case k.access != nil && access.Is(key):
		return k.allow(r, key, rt, scope)
	case !required:
		return nil, nil
	case k.token != "" && subtle.ConstantTimeCompare([]byte(key), []byte(k.token)) == 1:
		k.take(r.Header, true)
		return nil, nil
	case rt.rolloutID == "":
		return nil, errKey("calls outside of an attempt need the proxy's token or a key, because the proxy requires keys; calls of an attempt need the attempt's key")
	case k.secret == "":
		return nil, errKey("the API key is missing; this proxy takes the keys that agl key create makes")
	}
	secret, err := upstream.Secret(k.secret, k.lookup)
	if err != nil {
		return nil, openai.NewError(http.StatusInternalServerError, openai.APIError, "no_key_secret", err.Error())
	}
	if runkey.Check(secret, key, rt.rolloutID, rt.attemptID, time.Now()) {
		if k.revoked.Revoked(r.Context(), agl.Claim{RolloutID: rt.rolloutID, AttemptID: rt.attemptID}) {
			return nil, errKey("the API key of this attempt is revoked")
		}
		return nil, nil
	}
	message := "the API key is missing, expired or not that of this attempt; use the key in the attempt's resource"
	if _, run := runkey.ForAttempt(key, rt.rolloutID, rt.attemptID); run {
		message = "the API key is the run's, not the attempt's; runners of the Python package pass the run's key on unchanged: get the attempt's key with POST /admin/attempts/key"
	}
	return nil, errKey(message)
}

func errKey(message string) *openai.Error {
	return openai.NewError(http.StatusUnauthorized, openai.AuthenticationError, "invalid_api_key", message)
}

// allow checks a key of the store.
func (k *keys) allow(r *http.Request, key string, rt route, scope access.Scope) (*access.Caller, *openai.Error) {
	caller, err := k.access.Check(r.Context(), key)
	if err == nil {
		err = caller.Allow(scope)
	}
	switch {
	case err != nil:
		return nil, admin.AccessError(err)
	case !caller.Speaks(agl.Claim{RolloutID: rt.rolloutID, AttemptID: rt.attemptID}):
		return nil, errKey("the API key is that of another attempt")
	}
	return &caller, nil
}

// take returns the API key of a request. It removes virtual keys from the headers, and
// with all set any key.
func (k *keys) take(h http.Header, all bool) (key string) {
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key"} {
		values := h[name]
		if len(values) == 0 {
			continue
		}
		value := strings.TrimPrefix(values[0], "Bearer ")
		virtual := runkey.IsVirtual(value) || k.access != nil && access.Is(value)
		if key == "" || virtual {
			key = value
		}
		if virtual || all {
			delete(h, name)
		}
	}
	return key
}
