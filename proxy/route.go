package proxy

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/openai"
)

// route is the parsed path of a request.
type route struct {
	rolloutID, attemptID string                          // both or neither
	path                 string                          // the rest, beginning with a slash, without /v1
	subject              *access.Subject                 // to whom the rules of the caller's key apply; nil without a key
	allowance            exchange.Allowance              // the budget of the caller; nil without one
	models               map[string]string               // see exchange.Origin
	who                  string                          // by whom the running call is counted
	gone                 func(ctx context.Context) error // see caller
	key                  string                          // the caller's API key; only of requests about sessions
}

// maxID bounds the ids of rollouts and attempts in paths, in bytes.
const maxID = 1024

// parseRoute reads an escaped path. Ids may contain escaped slashes, and those of rollouts
// also plain ones, because Anthropic's Go SDK unescapes base URLs. An incomplete prefix,
// or one with an empty, too long or wrongly escaped id, stays part of the path.
func parseRoute(escaped string) route {
	r := route{path: escaped}
	if rest, ok := strings.CutPrefix(escaped, "/rollout/"); ok {
		rollout, rest, ok := strings.Cut(rest, "/attempt/")
		attempt, path, slash := strings.Cut(rest, "/")
		if ok {
			rolloutID, err := url.PathUnescape(rollout)
			attemptID, err2 := url.PathUnescape(attempt)
			if err == nil && err2 == nil && rolloutID != "" && attemptID != "" && max(len(rolloutID), len(attemptID)) <= maxID {
				r.rolloutID, r.attemptID, r.path = rolloutID, attemptID, "/"
				if slash {
					r.path += path
				}
			}
		}
	}
	// Anthropic's clients append /v1 to base URLs that may already end in it.
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

func errUnknownURL(r *http.Request) *openai.Error {
	return openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "unknown_url",
		"unknown request URL: "+r.Method+" "+r.URL.Path+"; the proxy serves POST …/chat/completions, …/completions, …/responses, …/embeddings and …/messages, and GET …/models; forward_paths adds others")
}
