package rest

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// authorized reports whether the request carries the token. Digests are
// compared, so that the time tells neither the token's bytes nor its length.
func (s *Server) authorized(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		if _, given, ok = r.BasicAuth(); !ok {
			return false
		}
	}
	digest := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(digest[:], s.token[:]) == 1
}

// refuse answers a request without the right token. The body has not been read.
func (s *Server) refuse(c *call) {
	c.Header()["Www-Authenticate"] = []string{"Bearer", `Basic realm="agl"`}
	c.fail(agl.Errorf(agl.CodeUnauthorized, "a token is needed: Authorization: Bearer TOKEN, or HTTP Basic with the token as password"))
}

// cors adds the headers for pages of other origins and reports whether the
// request was a preflight, which is answered here.
func (s *Server) cors(c *call) bool {
	r := c.request
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	h := c.Header()
	h.Add("Vary", "Origin")
	allowed := slices.Contains(s.config.CORSOrigins, "*") || slices.Contains(s.config.CORSOrigins, origin)
	if allowed {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Expose-Headers", "Agl-Attempt-State, Agl-Queue, Agl-Wait, Retry-After, X-Request-Id")
	}
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	c.template = "preflight"
	if allowed {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, HEAD, OPTIONS")
		h.Set("Access-Control-Max-Age", "600")
		if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
			h.Set("Access-Control-Allow-Headers", asked)
		}
	}
	c.WriteHeader(http.StatusOK)
	return true
}
