package jinja

import (
	"strconv"

	"github.com/agl-go/agl/jinja/internal/value"
)

// loop is the variable loop of a for statement.
type loop struct {
	items   []any
	at      int
	depth   int
	recurse func(over any) any // nil unless the loop is recursive
	changed *value.Sequence    // the arguments of the last call of loop.changed
}

func (l *loop) TypeName() string { return "LoopContext" }

func (l *loop) Repr(*value.Runtime) string {
	return "<LoopContext " + strconv.Itoa(l.at+1) + "/" + strconv.Itoa(len(l.items)) + ">"
}

// Items returns the items after the current one.
func (l *loop) Items(*value.Runtime) []any { return l.items[min(l.at+1, len(l.items)):] }

func (l *loop) Len() int { return len(l.items) }

// Call runs a recursive loop over other items.
func (l *loop) Call(r *value.Runtime, args value.Args) any {
	if l.recurse == nil {
		r.Failf("The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(args.Positional) != 1 || args.Named.Len() > 0 {
		r.Failf("a recursive loop takes one argument")
	}
	return l.recurse(args.Positional[0])
}

func (l *loop) Member(_ *value.Runtime, name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(n - l.at), true
	case "revindex0":
		return int64(n - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return int64(n), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.at == 0 {
			return &value.Undefined{Message: "there is no previous item"}, true
		}
		return l.items[l.at-1], true
	case "nextitem":
		if l.at == n-1 {
			return &value.Undefined{Message: "there is no next item"}, true
		}
		return l.items[l.at+1], true
	case "cycle":
		return value.NewFunction(name, func(c value.Call) any {
			items := c.Rest.Positional
			if len(items) == 0 {
				c.Failf("no items for cycling given")
			}
			return items[l.at%len(items)]
		}, "*"), true
	case "changed":
		return value.NewFunction(name, func(c value.Call) any {
			now := value.Tuple(c.Rest.Positional...)
			if l.changed != nil && c.Equal(l.changed, now) {
				return false
			}
			l.changed = now
			return true
		}, "*"), true
	}
	return nil, false
}
