package client

import (
	"net/url"
	"time"

	"github.com/agl-go/agl/rest/internal/wire"
)

// SplitURL splits a store's URL of the form http://agl:TOKEN@host into a URL that
// may be shown and the token. Text that is not a URL is returned unchanged.
func SplitURL(raw string) (public, token string) {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw, ""
	}
	token, _ = u.User.Password()
	u.User = nil
	return u.String(), token
}

// SpanToken returns a bearer token for the spans of one attempt: a server with the given token accepts it at POST /v1/traces
// for spans of that attempt until expiry, and for nothing else.
func SpanToken(token, rolloutID, attemptID string, expiry time.Time) string {
	return wire.SpanToken(token, rolloutID, attemptID, expiry)
}
