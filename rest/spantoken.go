package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/runkey"
)

// tracesPath is where spans arrive by OTLP.
const tracesPath = "/v1/traces"

// SpanToken returns a bearer token that is worth the spans of one attempt: a
// server with that Token takes it at POST /v1/traces, for spans of the attempt
// and until expiry, and nowhere else.
func SpanToken(token, rolloutID, attemptID string, expiry time.Time) string {
	key, _ := runkey.ForAttempt(runkey.New(spanSecret(token), expiry), rolloutID, attemptID) // a run key is one
	return key
}

// spanSecret keeps these tokens apart from the keys of an LLM proxy that has the
// same secret.
func spanSecret(token string) string { return "spans " + token }

// spanToken returns the token of a request that may be allowed by one, "" for
// others.
func spanToken(r *http.Request) string {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || r.URL.Path != tracesPath || r.Method != http.MethodPost || !runkey.IsVirtual(given) {
		return ""
	}
	return given
}

// allowed rejects spans that the request's span token is not worth.
func (c *call) allowed(spans []agl.Span) error {
	if c.spanToken == "" {
		return nil
	}
	for i := range spans {
		s := &spans[i]
		if i > 0 && s.RolloutID == spans[i-1].RolloutID && s.AttemptID == spans[i-1].AttemptID {
			continue
		}
		if !runkey.Check(spanSecret(c.server.config.Token), c.spanToken, s.RolloutID, s.AttemptID, time.Now()) {
			return agl.Errorf(agl.CodeUnauthorized, "the token has expired, or is not that of attempt %s of rollout %s", s.AttemptID, s.RolloutID)
		}
	}
	return nil
}
