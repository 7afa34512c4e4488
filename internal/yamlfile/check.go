package yamlfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Scope is a value that has been read, for checks that involve several keys.
type Scope struct {
	r     *reader
	n     *yaml.Node
	at    string
	clean bool
}

// Check calls look when the value has been read, unless it is of the wrong kind.
func (v Value) Check(look func(*Scope)) Value {
	checked := v
	checked.take = func(r *reader, n *yaml.Node, at string) {
		before := len(r.mistakes)
		v.take(r, n, at)
		look(&Scope{r: r, n: n, at: at, clean: len(r.mistakes) == before})
	}
	return checked
}

// Clean reports whether the value has no mistakes.
func (s *Scope) Clean() bool { return s.clean }

// Given reports whether the key at a path below the value is in the file with a value other than null.
func (s *Scope) Given(path string) bool { return s.r.keys[below(s.at, path)] != nil }

// Failf reports a mistake in the key at a path below the value. If the file lacks
// the key, the mistake gets the line of the nearest key that contains it.
func (s *Scope) Failf(path, format string, args ...any) {
	s.r.failf(s.node(path), "%s: %s", named(below(s.at, path)), fmt.Sprintf(format, args...))
}

// Fail reports an error that the caller's own check found in the value; nil is no
// mistake, and each of several joined errors is one.
func (s *Scope) Fail(err error) { s.r.errors(s.n, "", err) }

// FailAt is Fail for the key at a path below the value; the message begins with the path.
func (s *Scope) FailAt(path string, err error) {
	s.r.errors(s.node(path), named(below(s.at, path))+": ", err)
}

func (s *Scope) node(path string) *yaml.Node {
	for path != "" {
		if n := s.r.keys[below(s.at, path)]; n != nil {
			return n
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return s.n
}
