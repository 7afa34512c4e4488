package value

import (
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// Iterator is an [Object] that yields elements once, the results of Next.
type Iterator struct {
	name string
	Next func() (v any, ok bool)
}

// NewIterator returns an iterator over the results of next.
func NewIterator(name string, next func() (v any, ok bool)) *Iterator { return &Iterator{name, next} }

// IterateOnce returns an iterator over items.
func IterateOnce(name string, items []any) *Iterator {
	return NewIterator(name, func() (v any, ok bool) {
		if len(items) == 0 {
			return nil, false
		}
		v, items = items[0], items[1:]
		return v, true
	})
}

// TypeName implements [Object].
func (*Iterator) TypeName() string { return "generator" }

// Repr implements [Object].
func (i *Iterator) Repr(*Runtime) string { return "<generator object " + i.name + ">" }

// Member implements [Object].
func (*Iterator) Member(*Runtime, string) (any, bool) { return nil, false }

// Items implements [Iterable].
func (i *Iterator) Items(r *Runtime) []any {
	var items []any
	for item, ok := i.Next(); ok; item, ok = i.Next() {
		r.Step(1)
		items = append(items, item)
	}
	return items
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
