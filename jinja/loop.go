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
	get, ok := loopMembers[name]
	if !ok {
		return nil, false
	}
	return get(l), true
}

var loopMembers = map[string]func(l *loop) any{
	"index":     func(l *loop) any { return int64(l.at + 1) },
	"index0":    func(l *loop) any { return int64(l.at) },
	"revindex":  func(l *loop) any { return int64(len(l.items) - l.at) },
	"revindex0": func(l *loop) any { return int64(len(l.items) - l.at - 1) },
	"first":     func(l *loop) any { return l.at == 0 },
	"last":      func(l *loop) any { return l.at == len(l.items)-1 },
	"length":    func(l *loop) any { return int64(len(l.items)) },
	"depth":     func(l *loop) any { return int64(l.depth + 1) },
	"depth0":    func(l *loop) any { return int64(l.depth) },
	"previtem":  func(l *loop) any { return l.item(l.at-1, "previous") },
	"nextitem":  func(l *loop) any { return l.item(l.at+1, "next") },
	"cycle": func(l *loop) any {
		return value.NewFunction("cycle", func(c value.Call) any {
			items := c.Rest.Positional
			if len(items) == 0 {
				c.Failf("no items for cycling given")
			}
			return items[l.at%len(items)]
		}, "*")
	},
	"changed": func(l *loop) any {
		return value.NewFunction("changed", func(c value.Call) any {
			now := value.Tuple(c.Rest.Positional...)
			if l.changed != nil && c.Equal(l.changed, now) {
				return false
			}
			l.changed = now
			return true
		}, "*")
	},
}

func (l *loop) item(i int, which string) any {
	if i < 0 || i >= len(l.items) {
		return &value.Undefined{Message: "there is no " + which + " item"}
	}
	return l.items[i]
}
