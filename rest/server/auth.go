package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// auth checks the token of a request. Without a configured token every request is
// admitted.
type auth struct {
	token  string
	digest [sha256.Size]byte
}

func newAuth(token string) auth { return auth{token, sha256.Sum256([]byte(token))} }

// admit reports whether a request may pass. It needs the token, or a span token at
// the one path that accepts those. The body has not been read.
func (a *auth) admit(x *exchange) bool {
	if a.token == "" || a.authorized(x.request) {
		return true
	}
	if x.request.URL.Path != wire.Traces || x.request.Method != http.MethodPost {
		return false
	}
	token, _ := bearer(x.request)
	attempt, ok := wire.CheckSpanToken(a.token, token, time.Now())
	x.attempt = &attempt
	return ok
}

// authorized reports whether a request carries the token. It compares digests, so
// that the time it takes tells neither the token nor its length.
func (a *auth) authorized(r *http.Request) bool {
	given, ok := bearer(r)
	if !ok {
		if _, given, ok = r.BasicAuth(); !ok {
			return false
		}
	}
	digest := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(digest[:], a.digest[:]) == 1
}

func bearer(r *http.Request) (token string, ok bool) {
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// refuse answers a request that is not admitted. Its body has not been read.
func (a *auth) refuse(x *exchange) {
	x.Header()["Www-Authenticate"] = []string{"Bearer", `Basic realm="agl"`}
	x.fail(agl.Errorf(agl.CodeUnauthorized, "a token is needed: Authorization: Bearer TOKEN, or HTTP Basic with the token as password"))
}

// admitSpans refuses spans that the request's span token does not allow.
func (a *auth) admitSpans(x *exchange, spans []agl.Span) error {
	if x.attempt == nil {
		return nil
	}
	for i := range spans {
		if s := &spans[i]; s.RolloutID != x.attempt.RolloutID || s.AttemptID != x.attempt.AttemptID {
			return agl.Errorf(agl.CodeUnauthorized, "the token is that of attempt %s, not that of attempt %s of rollout %s", x.attempt.AttemptID, s.AttemptID, s.RolloutID)
		}
	}
	return nil
}
