package value

import (
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// Generator yields elements once. It makes each one when it is asked for.
type Generator struct {
	Name string
	Next func() (v any, ok bool)
}

// Generate returns a generator of the items.
func Generate(name string, items []any) *Generator {
	return &Generator{name, func() (v any, ok bool) {
		if len(items) == 0 {
			return nil, false
		}
		v, items = items[0], items[1:]
		return v, true
	}}
}

// TypeName implements [Object].
func (g *Generator) TypeName() string { return "generator" }

// Repr implements [Object].
func (g *Generator) Repr(*Runtime) string { return "<generator object " + g.Name + ">" }

// Member implements [Object].
func (g *Generator) Member(*Runtime, string) (any, bool) { return nil, false }

// Items implements [Iterable].
func (g *Generator) Items(r *Runtime) []any {
	var items []any
	for {
		item, ok := g.Next()
		if !ok {
			return items
		}
		r.Step(1)
		items = append(items, item)
	}
}

// Namespace is an object whose attributes templates can set.
type Namespace struct{ Attrs Dict }

// TypeName implements [Object].
func (n *Namespace) TypeName() string { return "Namespace" }

// Repr implements [Object].
func (n *Namespace) Repr(r *Runtime) string { return "<Namespace " + r.Repr(&n.Attrs) + ">" }

// Member implements [Object].
func (n *Namespace) Member(_ *Runtime, name string) (any, bool) { return n.Attrs.Get(name) }

// Set sets an attribute.
func (n *Namespace) Set(r *Runtime, name string, v any) {
	if strings.HasPrefix(name, "_") {
		r.Failf("cannot store underscore-prefixed attribute %s on a namespace", pytext.Quote(name))
	}
	n.Attrs.Set(name, v)
}
