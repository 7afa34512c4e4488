package gateway

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/runkey"
)

// keyLifetime is how long the key of a rollout is valid.
const keyLifetime = 7 * 24 * time.Hour

// identify returns the caller of a request. The caller has the server's key, the key of the rollout that the request
// is about, or a key that Access knows.
func (g *Gateway) identify(r *http.Request) (caller access.Caller, err error) {
	given := givenBy(r)
	if g.cfg.Key == "" && !slices.ContainsFunc(given, g.isKey) {
		return access.Root(), nil
	}
	guessable := !slices.ContainsFunc(given, func(key string) bool { return g.isKey(key) || runkey.IsVirtual(key) })
	wait := g.cfg.Failed.Admit(r.RemoteAddr, len(given) > 0, guessable, func() bool {
		caller, err = g.whose(r, given)
		return errorStatus(err) != http.StatusUnauthorized
	})
	if wait > 0 {
		return access.Caller{}, &access.ThrottledError{Wait: wait}
	}
	return caller, err
}

// givenBy returns the credentials that a request carries.
func givenBy(r *http.Request) []string {
	return slices.DeleteFunc([]string{access.Given(r), r.Header.Get("X-Api-Key")}, func(key string) bool { return key == "" })
}

// gone returns a function for access.Watch that checks the credentials of an admitted request again; nil if they
// cannot become invalid.
func (g *Gateway) gone(r *http.Request) func(ctx context.Context) error {
	given := givenBy(r)
	if !slices.ContainsFunc(given, func(key string) bool { return g.isKey(key) || runkey.IsVirtual(key) }) {
		return nil
	}
	return func(ctx context.Context) error {
		if _, err := g.whose(r.WithContext(ctx), given); err != nil && errorStatus(err) == http.StatusUnauthorized {
			return err
		}
		return nil
	}
}

// isKey reports whether a text has the form of a key that Access may know.
func (g *Gateway) isKey(text string) bool { return g.cfg.Access != nil && access.IsKey(text) }

// whose returns the caller that one of the credentials belongs to.
func (g *Gateway) whose(r *http.Request, given []string) (access.Caller, error) {
	id := agentsOwn(r)
	var hint string
	for _, key := range given {
		switch {
		case g.cfg.Key == "": // a key is checked even if the server requires none
		case access.Same(key, g.cfg.Key):
			return access.Root(), nil
		case id != "" && runkey.Check(g.cfg.Key, key, id, anyAttempt, time.Now()):
			if g.cfg.Budgets.Revocations().Revoked(r.Context(), agl.Claim{RolloutID: id}) {
				return access.Caller{}, errStatus(http.StatusUnauthorized, "The key of this rollout is revoked")
			}
			return access.Caller{Name: "rollout " + id, Scopes: access.Agent}, nil
		}
		if runkey.IsVirtual(key) {
			hint = cmp.Or(hint, ": it has expired, or is not that of this rollout; "+agentsMay)
		}
		if !g.isKey(key) {
			continue
		}
		caller, err := g.cfg.Access.Check(r.Context(), key)
		switch {
		case agl.ErrorCode(err) == agl.CodeUnauthorized:
			hint = cmp.Or(hint, ": "+err.Error())
		case err != nil:
			return access.Caller{}, err
		case caller.Limited() && g.cfg.Budgets == nil:
			return access.Caller{}, errStatus(http.StatusForbidden, "the key "+caller.KeyID+" has a budget, which this server does not count: use one without limits")
		case !caller.Attempt.Valid || id == caller.Attempt.V.RolloutID:
			return caller, nil
		default:
			hint = cmp.Or(hint, ": the key "+caller.KeyID+" is that of rollout "+caller.Attempt.V.RolloutID+"; "+agentsMay)
		}
	}
	return access.Caller{}, errStatus(http.StatusUnauthorized, "Invalid or missing API key"+hint)
}

const agentsMay = "an agent may call models, send events and read its own rollout"

// anyAttempt stands for all attempts of a rollout in its key.
const anyAttempt = "*"

// agentsOwn returns the rollout's id if the request is one that the rollout's agent makes: a model call, an event, or
// reading the rollout. Otherwise it returns "".
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

// rolloutKey answers with the key of a rollout, which its agent uses in place of the server's key.
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
