package gateway

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/runkey"
)

// keyLifetime is how long the key of a rollout is valid.
const keyLifetime = 7 * 24 * time.Hour

// authorized reports whether a request has the server's key, or the key of the rollout
// that it is about.
func (g *Gateway) authorized(r *http.Request) bool {
	if g.cfg.Key == "" {
		return true
	}
	bearer, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	is := func(key string) bool {
		if subtle.ConstantTimeCompare([]byte(key), []byte(g.cfg.Key)) == 1 {
			return true
		}
		id := agentsOwn(r)
		return id != "" && runkey.Check(g.cfg.Key, key, id, anyAttempt, time.Now())
	}
	return given && is(bearer) || is(r.Header.Get("X-Api-Key"))
}

// anyAttempt stands for all attempts of a rollout in its key.
const anyAttempt = "*"

// agentsOwn returns the id of the rollout if the request is one that its agent makes: a
// model call, an event, or a look at the rollout. Otherwise it returns "".
func agentsOwn(r *http.Request) string {
	// The escaped path, as routes match it: an id may have a slash.
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	const head = 3
	if len(parts) < head {
		return ""
	}
	id, err := url.PathUnescape(parts[head-1])
	switch {
	case err != nil:
		return ""
	case parts[0] == "proxy" && parts[1] == "rollout" && r.Method == http.MethodPost:
		return id
	case parts[0] != "api" || parts[1] != "rollouts":
		return ""
	case r.Method == http.MethodGet && len(parts) == head, r.Method == http.MethodPost && len(parts) > head && parts[head] == "attempt":
		return id
	default:
		return ""
	}
}

// rolloutKey answers with the key of a rollout, for its agent instead of the server's.
func (g *Gateway) rolloutKey(w http.ResponseWriter, r *http.Request) error {
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if g.cfg.Key == "" {
		return errStatus(http.StatusConflict, "The server has no key, and needs none")
	}
	key, _ := runkey.ForAttempt(runkey.New(g.cfg.Key, time.Now().Add(keyLifetime)), found.id(), anyAttempt)
	o := rawjson.NewObject(nil)
	o.String("key", key)
	writeJSON(w, http.StatusOK, o.End())
	return nil
}
