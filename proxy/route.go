package proxy

import (
	"net/url"
	"strings"
)

// route is what a request's path says.
type route struct {
	rolloutID, attemptID string // both or neither
	path                 string // the rest, from its slash, without /v1
}

// parseRoute reads an escaped path. Ids may hold escaped slashes, a rollout's
// plain ones, too: Anthropic's Go SDK undoes the escapes of base URLs. A prefix
// that is not complete, or an id that is empty or wrongly escaped, is no prefix.
func parseRoute(escaped string) route {
	r := route{path: escaped}
	if rest, ok := strings.CutPrefix(escaped, "/rollout/"); ok {
		rollout, rest, ok := strings.Cut(rest, "/attempt/")
		attempt, path, slash := strings.Cut(rest, "/")
		if ok {
			rolloutID, err := url.PathUnescape(rollout)
			attemptID, err2 := url.PathUnescape(attempt)
			if err == nil && err2 == nil && rolloutID != "" && attemptID != "" {
				r.rolloutID, r.attemptID, r.path = rolloutID, attemptID, "/"
				if slash {
					r.path += path
				}
			}
		}
	}
	// Clients of Anthropic's append /v1 to base URLs that may end in it already.
	for range 2 {
		if rest, ok := strings.CutPrefix(r.path, "/v1"); ok && (rest == "" || rest[0] == '/') {
			r.path = rest
			if rest == "" {
				r.path = "/"
			}
		}
	}
	return r
}
