package oidc

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
)

// Config describes a provider and what its groups may do.
type Config struct {
	Issuer string // the provider's URL, as in the claim iss
	// GroupsClaim is the claim that lists groups or roles. Dots lead into objects, as in realm_access.roles. The
	// default is groups.
	GroupsClaim string
	// Grants maps groups to scopes. Somebody without a group in it is not let in.
	Grants access.Grants
	// Transport sends the requests to the provider; nil is http.DefaultTransport.
	Transport http.RoundTripper
}

func (c *Config) validate() error {
	c.GroupsClaim = cmp.Or(c.GroupsClaim, "groups")
	switch {
	case !strings.HasPrefix(c.Issuer, "https://") && !strings.HasPrefix(c.Issuer, "http://"):
		return agl.Errorf(agl.CodeInvalid, "issuer: got %q, must be a URL that begins with https:// or http://", c.Issuer)
	case len(c.Grants) == 0:
		return agl.Errorf(agl.CodeInvalid, "groups: got none, must give at least one group some scopes")
	}
	return nil
}

// caller returns the caller that the claims of a verified token describe.
func (c *Config) caller(claims map[string]any, subject string) (access.Caller, error) {
	name := subject
	if email, ok := claims["email"].(string); ok && email != "" && claims["email_verified"] == true {
		name = email
	}
	if name == "" {
		return access.Caller{}, agl.Errorf(agl.CodeUnauthorized, "the token has no subject: its claim sub is empty")
	}
	groups := c.groups(claims)
	caller := access.Caller{Name: "oidc:" + name, Scopes: c.Grants.Of(groups...)}
	if caller.Scopes == 0 {
		return caller, agl.Errorf(agl.CodeUnauthorized, "%s has no group that may do something here; the claim %s lists %s", name, c.GroupsClaim, listed(groups))
	}
	return caller, nil
}

// value returns the value of the groups claim, nil if it is absent.
func (c *Config) value(claims map[string]any) any {
	if value, ok := claims[c.GroupsClaim]; ok { // the name of a claim may itself contain dots
		return value
	}
	var value any = claims
	for part := range strings.SplitSeq(c.GroupsClaim, ".") {
		object, _ := value.(map[string]any)
		value = object[part]
	}
	return value
}

// groups returns the groups of a token. The claim is a list, one name, or names separated by spaces.
func (c *Config) groups(claims map[string]any) (groups []string) {
	switch value := c.value(claims).(type) {
	case string:
		return slices.Compact(append(strings.Fields(value), value))
	case []any:
		for _, v := range value {
			if name, ok := v.(string); ok {
				groups = append(groups, name)
			}
		}
	}
	return groups
}

// listed names groups. The person who reads it learns what the provider calls them, such as /research.
func listed(groups []string) string {
	const most = 5
	switch {
	case len(groups) == 0:
		return "no groups"
	case len(groups) > most:
		return fmt.Sprintf("%.100q and %d more", groups[:most], len(groups)-most)
	}
	return fmt.Sprintf("%.100q", groups)
}
