package access

import (
	"strings"

	"github.com/agl-go/agl"
)

// Scope is a set of permissions. A route declares several and admits callers that have one of them.
type Scope uint16

// The scopes. A route with the zero value admits nobody.
const (
	Read   Scope = 1 << iota // see everything but keys
	Ingest                   // send spans and rewards
	Agent                    // what the agent of one attempt does: model calls, spans, reward
	Live                     // open attempts outside the queue, call models for them, send their spans
	Runner                   // take rollouts from the queue and run them
	Train                    // enqueue, update and cancel rollouts, publish resources, steer models
	Admin                    // everything; only admin manages keys and deletes

	// Public is declared by routes that are open to everybody. No key has it.
	Public

	// Readers, Senders and Callers are who may read, send spans, and call models.
	Readers = Read | Runner | Train
	Senders = Ingest | Agent | Live | Runner | Train
	Callers = Agent | Live | Runner | Train

	// Any is declared by routes that are open to everybody with a key.
	Any = Read | Ingest | Agent | Live | Runner | Train | Admin
)

var scopeNames = [...]string{"read", "ingest", "agent", "live", "runner", "train", "admin"}

// Names returns the names of the scopes in a set. Public has no name.
func (s Scope) Names() []string {
	names := make([]string, 0, len(scopeNames))
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (s Scope) String() string { return strings.Join(s.Names(), ", ") }

// ParseScopes returns the set of the named scopes. An unknown name is CodeInvalid.
func ParseScopes(names []string) (set Scope, err error) {
	for _, name := range names {
		one := Scope(0)
		for i, known := range scopeNames {
			if name == known {
				one = 1 << i
			}
		}
		if one == 0 {
			return 0, agl.Errorf(agl.CodeInvalid, "scopes: got %q, must be one of %s", name, Any)
		}
		set |= one
	}
	return set, nil
}
