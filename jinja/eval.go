package jinja

import (
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
	"github.com/agl-go/agl/jinja/internal/syntax"
	"github.com/agl-go/agl/jinja/internal/value"
)

// executor carries out one rendering.
type executor struct {
	*value.Runtime

	filters, tests map[string]value.Builtin

	out   *strings.Builder
	scope *scope
	line  int // of the statement or expression that is being evaluated, for errors
}

// scope holds variables. Other names are looked up in its parent.
type scope struct {
	parent *scope
	vars   map[string]any
}

func (s *scope) set(name string, v any) {
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	s.vars[name] = v
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// eval evaluates an expression.
func (x *executor) eval(e syntax.Expr) any {
	x.Step(1)
	switch e := e.(type) {
	case *syntax.Const:
		return e.Value
	case *syntax.Name:
		x.line = e.Line
		if v, ok := x.scope.get(e.Name); ok {
			return v
		}
		return &value.Undefined{Message: pytext.Quote(e.Name) + " is undefined"}
	case *syntax.List:
		return x.list(e)
	case *syntax.Dict:
		return x.dict(e)
	case *syntax.Cond:
		if x.Truth(x.eval(e.Test)) {
			return x.eval(e.Then)
		}
		if e.Else == nil {
			return &value.Undefined{Message: "the inline if-expression evaluated to false and no else section was defined."}
		}
		return x.eval(e.Else)
	case *syntax.Unary:
		v := x.eval(e.On)
		x.line = e.Line
		return x.Unary(e.Op, v)
	case *syntax.Binary:
		return x.binary(e)
	case *syntax.Compare:
		return x.compare(e)
	case *syntax.Attr:
		on := x.eval(e.On)
		x.line = e.Line
		return x.Attr(on, e.Name)
	case *syntax.Item:
		return x.item(e)
	case *syntax.Call:
		fn, args := x.eval(e.Func), x.args(e.Args)
		x.line = e.Line
		return x.Call(fn, args)
	case *syntax.Filter:
		return x.apply(x.filters, e, x.eval(e.On))
	case *syntax.Test:
		return x.Truth(x.apply(x.tests, (*syntax.Filter)(e), x.eval(e.On)))
	default: // *syntax.Slice
		x.Failf("a slice cannot be combined with other subscripts")
		return nil
	}
}

func (x *executor) list(e *syntax.List) any {
	x.Enter()
	defer x.Leave()
	items := make([]any, len(e.Items))
	for i, item := range e.Items {
		items[i] = x.eval(item)
	}
	if e.Tuple {
		return value.Tuple(items...)
	}
	return value.List(items)
}

func (x *executor) dict(e *syntax.Dict) any {
	x.Enter()
	defer x.Leave()
	d := &value.Dict{}
	for i, k := range e.Keys {
		key, v := x.eval(k), x.eval(e.Values[i])
		x.line = e.Line
		x.Put(d, key, v)
	}
	return d
}

func (x *executor) binary(e *syntax.Binary) any {
	left := x.eval(e.Left)
	if e.Op == "and" || e.Op == "or" {
		if x.Truth(left) == (e.Op == "or") {
			return left
		}
		return x.eval(e.Right)
	}
	right := x.eval(e.Right)
	x.line = e.Line
	return x.Binary(e.Op, left, right)
}

func (x *executor) compare(e *syntax.Compare) any {
	left := x.eval(e.First)
	for _, c := range e.Rest {
		right := x.eval(c.To)
		x.line = e.Line
		if !x.Compare(c.Op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (x *executor) item(e *syntax.Item) any {
	on := x.eval(e.On)
	s, ok := e.Key.(*syntax.Slice)
	if !ok {
		key := x.eval(e.Key)
		x.line = e.Line
		return x.Item(on, key)
	}
	part := func(e syntax.Expr) any {
		if e == nil {
			return nil
		}
		return x.eval(e)
	}
	start, stop, step := part(s.Start), part(s.Stop), part(s.Step)
	x.line = e.Line
	return x.Slice(on, start, stop, step)
}

// apply applies a filter or test of a table to a value.
func (x *executor) apply(table map[string]value.Builtin, e *syntax.Filter, on any) any {
	args := x.args(e.Args)
	args.Positional = append([]any{on}, args.Positional...)
	x.line = e.Line
	return table[e.Name].Call(x.Runtime, e.Name, args)
}

func (x *executor) args(list syntax.Args) value.Args {
	a := value.Args{Positional: make([]any, len(list.Positional))}
	for i, e := range list.Positional {
		a.Positional[i] = x.eval(e)
	}
	if list.Star != nil {
		a.Positional = append(a.Positional, x.Iterate(x.eval(list.Star))...)
	}
	for _, arg := range list.Named {
		x.AddNamed(&a, arg.Name, x.eval(arg.Value))
	}
	if list.StarStar == nil {
		return a
	}
	d, ok := x.eval(list.StarStar).(*value.Dict)
	if !ok {
		x.Failf("argument after ** must be a mapping")
	}
	for k, v := range d.All() {
		name, ok := k.(string)
		if !ok {
			x.Failf("keywords must be strings")
		}
		x.AddNamed(&a, name, v)
	}
	return a
}
