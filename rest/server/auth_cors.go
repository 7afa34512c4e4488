package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/agl-go/agl/rest/internal/wire"
)

// cors allows web pages of other origins to call the server.
type cors struct{ origins []string }

// apply adds the CORS headers. It answers a preflight request, and then returns true.
func (c cors) apply(x *exchange) (answered bool) {
	origin := x.request.Header.Get("Origin")
	if len(c.origins) == 0 || origin == "" {
		return false
	}
	h := x.Header()
	h.Add("Vary", "Origin")
	anybody := slices.Contains(c.origins, "*")
	allowed := anybody || slices.Contains(c.origins, origin)
	if allowed {
		h.Set("Access-Control-Allow-Origin", origin)
		if !anybody { // a page that nobody named must not use the browser's credentials
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		h.Set("Access-Control-Expose-Headers", strings.Join([]string{wire.AttemptState, wire.Queue, wire.Wait, "Retry-After", "X-Request-Id"}, ", "))
	}
	if x.request.Method != http.MethodOptions || x.request.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	x.route = "preflight"
	if allowed {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, HEAD, OPTIONS")
		h.Set("Access-Control-Max-Age", "600")
		if asked := x.request.Header.Get("Access-Control-Request-Headers"); asked != "" {
			h.Set("Access-Control-Allow-Headers", asked)
		}
	}
	x.WriteHeader(http.StatusOK)
	return true
}
