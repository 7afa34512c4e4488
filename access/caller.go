package access

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

// Caller is who makes a request.
type Caller struct {
	KeyID  string // empty for the root key, and where no key is required
	Name   string
	Scopes Scope
	Expire time.Time // zero means never
	// Groups are the names for which [Grants] gave somebody the scopes who signed in by a provider.
	Groups []string
	// Attempt is the only attempt that a caller with the scope Agent may act for. Null means any attempt.
	Attempt agl.Null[agl.Claim]
	Rules   Rules  // of the key's calls of models
	Limits  Limits // of the key; the zero value has none
	// Project holds the limits of the caller's project, which all of its callers share.
	Project Limits
}

// Limited reports whether the caller's use is counted.
func (c *Caller) Limited() bool { return c.Limits != Limits{} || c.Project != Limits{} }

// Measured reports whether tokens or dollars are limited, so that the most that a model call may use must be known
// before it is sent.
func (c *Caller) Measured() bool {
	return c.Limits.MaxTokens > 0 || c.Limits.MaxUSD > 0 || c.Project.MaxTokens > 0 || c.Project.MaxUSD > 0
}

// account returns the account that the caller's requests are charged to, besides that of the project: its key's own
// if the key has limits.
func (c *Caller) account() string {
	if c.Limits != (Limits{}) {
		return c.KeyID
	}
	return ProjectAccount
}

// Subject returns the subject of the rules of the caller's key.
func (c *Caller) Subject() *Subject {
	return &Subject{ID: c.KeyID, Name: "the key " + c.KeyID, Rules: c.Rules}
}

// Root returns the caller that has the server's own token. It may do everything.
func Root() Caller { return Caller{Name: "root", Scopes: Any} }

// Identity is the JSON form of a Caller. Times are in Unix seconds.
type Identity struct {
	ID         string         `json:"id"` // of the key; "" for the root key
	Name       string         `json:"name"`
	Scopes     []string       `json:"scopes"`
	ExpireTime *agl.Timestamp `json:"expire_time"`
	RolloutID  string         `json:"rollout_id,omitzero"`
	AttemptID  string         `json:"attempt_id,omitzero"`
	Rules
	Limits  Limits `json:"limits,omitzero"`
	Project Limits `json:"project_limits,omitzero"`
}

// Identity returns the JSON form.
func (c *Caller) Identity() Identity {
	i := Identity{ID: c.KeyID, Name: c.Name, Scopes: c.Scopes.Names(), RolloutID: c.Attempt.V.RolloutID, AttemptID: c.Attempt.V.AttemptID, Rules: c.Rules, Limits: c.Limits, Project: c.Project}
	if !c.Expire.IsZero() {
		i.ExpireTime = new(agl.TimestampOf(c.Expire))
	}
	return i
}

// Caller reads the JSON form.
func (i *Identity) Caller() (Caller, error) {
	scopes, err := ParseScopes(i.Scopes)
	c := Caller{KeyID: i.ID, Name: i.Name, Scopes: scopes, Rules: i.Rules, Limits: i.Limits, Project: i.Project}
	if i.ExpireTime != nil {
		c.Expire = i.ExpireTime.Time()
	}
	if i.RolloutID != "" || i.AttemptID != "" {
		c.Attempt = agl.Some(agl.Claim{RolloutID: i.RolloutID, AttemptID: i.AttemptID})
	}
	return c, err
}

// By returns the caller's name for records of its acts.
func (c *Caller) By() string {
	if c.KeyID == "" {
		return c.Name
	}
	return c.KeyID + " (" + c.Name + ")"
}

// ForbiddenError says that a known caller lacks a scope. Its HTTP status is 403.
type ForbiddenError struct{ message string }

func (e *ForbiddenError) Error() string { return e.message }

// Allow returns nil if the caller may use a route that declares these scopes, otherwise a *ForbiddenError.
func (c *Caller) Allow(route Scope) error {
	switch {
	case route == 0:
		return &ForbiddenError{"this route declares no scope, so nobody may use it"}
	case route&Public != 0, c.Scopes&Admin != 0, c.Scopes&route != 0:
		return nil
	}
	who := c.Name
	if c.KeyID != "" {
		who = "the key " + c.KeyID
	}
	return &ForbiddenError{who + " has the scopes (" + c.Scopes.String() + ") and needs one of (" + (route | Admin).String() + ")"}
}

// MayActFor reports whether a caller may act for an attempt.
func (c *Caller) MayActFor(attempt agl.Claim) bool { return !c.Attempt.Valid || c.Attempt.V == attempt }

// Checker identifies the caller that a key belongs to. An unknown, expired or revoked key is CodeUnauthorized. Its
// methods are safe for concurrent use.
type Checker interface {
	Check(ctx context.Context, key string) (Caller, error)
}

// Given returns the key that a request carries: a bearer token, the password of HTTP Basic, or the header X-Api-Key.
// It is "" if there is none.
func Given(r *http.Request) string {
	if authorization := r.Header.Get("Authorization"); authorization != "" {
		key, _ := Credential(authorization)
		return key
	}
	return r.Header.Get("X-Api-Key")
}

// Credential returns the bearer token or the HTTP Basic password in an Authorization header. The scheme may be
// spelled in any case (RFC 9110, 11.1). ok is false for other schemes.
func Credential(authorization string) (key string, ok bool) {
	end := strings.IndexAny(authorization, " \t")
	if end < 0 {
		return "", false
	}
	rest := strings.TrimLeft(authorization[end:], " \t")
	switch scheme := authorization[:end]; {
	case strings.EqualFold(scheme, "Bearer"):
		return rest, true
	case strings.EqualFold(scheme, "Basic"):
		decoded, err := base64.StdEncoding.DecodeString(rest)
		_, password, found := strings.Cut(string(decoded), ":")
		return password, err == nil && found
	default:
		return "", false
	}
}

// UnknownKey returns the error for a key of nobody; CodeUnauthorized. It names the id in the key and says no more, because
// the sender may have guessed it.
func UnknownKey(key string) error {
	id, ok := keyID(key)
	if !ok {
		return agl.Errorf(agl.CodeUnauthorized, "the key is not one that agl key create makes")
	}
	return errUnknown(id)
}

func errUnknown(id string) error {
	return agl.Errorf(agl.CodeUnauthorized, "the key %s is unknown, expired or revoked", id)
}

// errEnded refuses a key to somebody who has it.
func errEnded(id, state string) error {
	return agl.Errorf(agl.CodeUnauthorized, "the key %s is %s", id, state)
}
