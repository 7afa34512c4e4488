package value

import (
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// Iterator is an [Object] that yields elements once.
type Iterator interface {
	Object
	Next() (v any, ok bool)
}

type generator struct {
	name string
	next func() (v any, ok bool)
}

// NewIterator returns an iterator over the results of next.
func NewIterator(name string, next func() (v any, ok bool)) Iterator { return &generator{name, next} }

// IterateOnce returns an iterator over items.
func IterateOnce(name string, items []any) Iterator {
	return NewIterator(name, func() (v any, ok bool) {
		if len(items) == 0 {
			return nil, false
		}
		v, items = items[0], items[1:]
		return v, true
	})
}

func (g *generator) TypeName() string                    { return "generator" }
func (g *generator) Repr(*Runtime) string                { return "<generator object " + g.name + ">" }
func (g *generator) Member(*Runtime, string) (any, bool) { return nil, false }
func (g *generator) Next() (v any, ok bool)              { return g.next() }

func (g *generator) Items(r *Runtime) []any {
	var items []any
	for {
		item, ok := g.next()
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
