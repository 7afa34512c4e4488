package access

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
)

// Grants maps names that somebody else vouches for to scopes: groups of an identity provider, or names in client
// certificates.
type Grants map[string]Scope

// Of returns the scopes of all the names together; 0 if none is known.
func (g Grants) Of(names ...string) (set Scope) {
	for _, name := range names {
		set |= g[name]
	}
	return set
}

// Known returns those of the names that have scopes.
func (g Grants) Known(names ...string) (known []string) {
	for _, name := range names {
		if g[name] != 0 {
			known = append(known, name)
		}
	}
	return known
}

// Grant is one entry of a configuration: NAME=SCOPE,SCOPE, followed by @PROJECT if it applies to one project only.
type Grant struct {
	Name    string
	Scopes  Scope
	Project string // "" is every project
}

// UnmarshalText reads the form NAME=SCOPE,SCOPE@PROJECT. A name may contain = and @.
func (g *Grant) UnmarshalText(text []byte) (err error) {
	at := bytes.LastIndexByte(text, '=')
	if at < 1 {
		return fmt.Errorf("got %q, must be NAME=SCOPE,SCOPE, or NAME=SCOPE@PROJECT for one project", text)
	}
	g.Name = string(text[:at])
	scopes, project, forOne := strings.Cut(string(text[at+1:]), "@")
	if forOne && project == "" {
		return fmt.Errorf("got %q, must name a project after @", text)
	}
	g.Project = project
	if g.Scopes, err = ParseScopes(strings.Split(scopes, ",")); err != nil {
		return err
	}
	if g.Scopes&Agent != 0 {
		return agl.Errorf(agl.CodeInvalid, "scopes: got %q, agent is for the key of an attempt only", scopes)
	}
	return nil
}

// GrantsFor returns the grants that apply to a project: its own and those for every project. The project "" is the
// server's own store.
func GrantsFor(project string, all []Grant) Grants {
	grants := Grants{}
	for _, g := range all {
		if g.Project == "" || g.Project == project {
			grants[g.Name] |= g.Scopes
		}
	}
	return grants
}
