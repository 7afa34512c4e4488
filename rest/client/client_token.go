package client

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
	"github.com/agl-go/agl/rest/project"
)

// SplitURL splits a store's URL of the form http://agl:TOKEN@host into a URL that may be shown, and the token. Text
// that is not a URL is returned unchanged.
func SplitURL(raw string) (public, token string) {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw, ""
	}
	token, _ = u.User.Password()
	u.User = nil
	return u.String(), token
}

// spanTokenLife is how long the token of an attempt is valid.
const spanTokenLife = 24 * time.Hour

// SpanTokens returns a function that makes span tokens for attempts of a store, valid for a day: from the store's own
// token or, with a key, a JWT or a client's certificate, or for a project, by asking the store. It makes empty tokens for a
// store that needs none, and is nil without anything to show to a store.
func SpanTokens(store Config) (func(ctx context.Context, rolloutID, attemptID string) (string, error), error) {
	anonymous := store.Token == "" && store.TokenFile == ""
	switch {
	case anonymous && !hasCertificate(store.TLS):
		return nil, nil
	case store.Token != "" && !access.IsKey(store.Token) && !isJWT(store.Token) && !isProject(store.URL):
		return func(_ context.Context, rolloutID, attemptID string) (string, error) {
			return SpanToken(store.Token, rolloutID, attemptID, time.Now().Add(spanTokenLife)), nil
		}, nil
	}
	c, err := New(store)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, rolloutID, attemptID string) (string, error) {
		path := wire.SpanTokenOf(wire.Segment(rolloutID), wire.Segment(attemptID))
		answer, err := call[wire.SpanTokenAnswer](ctx, c, operation{name: "SpanToken", method: http.MethodPost, path: path})
		if anonymous && (agl.ErrorCode(err) == agl.CodeNotFound || agl.ErrorCode(err) == agl.CodeUnimplemented) {
			return "", nil // another store, with the certificate for what stands before it
		}
		return answer.Token, err
	}, nil
}

// isJWT reports whether a token has the form of a JWT, whose owner does not have the store's own token.
func isJWT(token string) bool {
	return strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2
}

func hasCertificate(c *tls.Config) bool {
	return c != nil && (len(c.Certificates) > 0 || c.GetClientCertificate != nil)
}

// isProject reports whether a URL may be that of a project, whose server makes its own span tokens.
func isProject(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || strings.Contains(u.Path, project.Prefix)
}

// SpanToken returns a bearer token for the spans of one attempt: a server with the given token accepts it at POST /v1/traces
// for spans of that attempt until expiry, and for nothing else.
func SpanToken(token, rolloutID, attemptID string, expiry time.Time) string {
	return wire.SpanToken(token, rolloutID, attemptID, expiry)
}
