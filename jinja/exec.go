package jinja

import (
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
	"github.com/agl-go/agl/jinja/internal/syntax"
	"github.com/agl-go/agl/jinja/internal/value"
)

// jump says how a statement ends.
type jump int

const (
	goOn jump = iota
	breakLoop
	continueLoop
)

func (x *executor) write(text string) {
	x.CheckOutput(x.out.Len() + len(text))
	x.Reserve(len(text))
	x.out.WriteString(text)
}

// capture returns the output of f.
func (x *executor) capture(f func()) string {
	outer := x.out
	x.out = new(strings.Builder)
	f()
	text := x.out.String()
	x.out = outer
	return text
}

// within runs f in a scope below parent.
func (x *executor) within(parent *scope, f func()) {
	outer := x.scope
	x.scope = &scope{parent: parent}
	f()
	x.scope = outer
}

// block runs statements up to a jump.
func (x *executor) block(body []syntax.Stmt) jump {
	x.Enter()
	defer x.Leave()
	for _, s := range body {
		x.Step(1)
		if j := x.exec(s); j != goOn {
			return j
		}
	}
	return goOn
}

func (x *executor) exec(s syntax.Stmt) jump {
	switch s := s.(type) {
	case *syntax.Data:
		x.write(s.Text)
	case *syntax.Output:
		x.line = s.Line
		x.write(x.Text(x.eval(s.Value)))
	case *syntax.Scope:
		x.within(x.scope, func() { x.block(s.Body) })
	case *syntax.Jump:
		if s.Break {
			return breakLoop
		}
		return continueLoop
	case *syntax.If:
		x.line = s.Line
		if x.Truth(x.eval(s.Test)) {
			return x.block(s.Body)
		}
		return x.block(s.Else)
	case *syntax.For:
		x.line = s.Line
		over := x.eval(s.Over)
		x.line = s.Line
		x.loop(s, over, 0)
	case *syntax.Set:
		x.set(s)
	case *syntax.With:
		return x.with(s)
	case *syntax.Macro:
		x.scope.set(s.Name, x.macro(s))
	case *syntax.CallBlock:
		x.line = s.Line
		fn, args := x.eval(s.Call.Func), x.args(s.Call.Args)
		x.AddNamed(&args, "caller", x.macro(s.Body))
		x.line = s.Line
		x.write(x.Text(x.Call(fn, args)))
	}
	return goOn
}

func (x *executor) set(s *syntax.Set) {
	x.line = s.Line
	if s.Value != nil {
		x.assign(s.Target, x.eval(s.Value))
		return
	}
	var text any = x.capture(func() {
		x.within(x.scope, func() { x.block(s.Body) })
	})
	for _, f := range s.Filters {
		text = x.apply(x.filters, f, text)
	}
	if s.Target.Name == "" && s.Target.List == nil {
		x.write(x.Text(text))
	} else {
		x.assign(s.Target, text)
	}
}

func (x *executor) with(s *syntax.With) (j jump) {
	x.line = s.Line
	values := make([]any, len(s.Values))
	for i, v := range s.Values {
		values[i] = x.eval(v)
	}
	x.within(x.scope, func() {
		for i, t := range s.Targets {
			x.assign(t, values[i])
		}
		j = x.block(s.Body)
	})
	return j
}

func (x *executor) assign(t syntax.Target, v any) {
	switch {
	case t.List != nil:
		items := x.Unpack(v, len(t.List))
		for i, t := range t.List {
			x.assign(t, items[i])
		}
	case t.Attr != "":
		obj, _ := x.scope.get(t.Name)
		ns, ok := obj.(*value.Namespace)
		if !ok {
			x.Failf("cannot assign attribute on non-namespace object")
		}
		ns.Set(x.Runtime, t.Attr, v)
	default:
		x.scope.set(t.Name, v)
	}
}

// loop runs a for statement over a value. depth counts the recursive calls.
func (x *executor) loop(s *syntax.For, over any, depth int) {
	x.Enter()
	defer x.Leave()
	items := x.Iterate(over)
	outer := x.scope
	if s.Test != nil {
		items = x.passing(s, items)
	}
	l := &loop{items: items, depth: depth}
	if s.Recursive {
		l.recurse = func(over any) any {
			return x.capture(func() {
				inner := x.scope
				x.scope = outer
				x.loop(s, over, depth+1)
				x.scope = inner
			})
		}
	}
	completed := false // as in Jinja2, an iteration that ends with break or continue does not count
	for i, item := range items {
		x.Step(1)
		l.at = i
		var j jump
		x.within(outer, func() {
			x.scope.set("loop", l)
			x.assign(s.Target, item)
			j = x.block(s.Body)
		})
		if j == breakLoop {
			break
		}
		completed = completed || j == goOn
	}
	if !completed {
		x.within(outer, func() { x.block(s.Else) })
	}
}

// passing returns the items that pass the if of the for statement. The variable loop is not yet set there.
func (x *executor) passing(s *syntax.For, items []any) []any {
	var kept []any
	for _, item := range items {
		x.within(x.scope, func() {
			x.assign(s.Target, item)
			if x.Truth(x.eval(s.Test)) {
				kept = append(kept, item)
			}
		})
	}
	return kept
}

// macro turns a macro, or the body of a call block, into a function that sees the variables of the current scope.
func (x *executor) macro(n *syntax.Macro) *value.Function {
	outer := x.scope
	var params []string
	names := value.Tuple()
	for _, p := range n.Params {
		params = append(params, p.Name+"?")
		names.Items = append(names.Items, p.Name)
	}
	call := func(c value.Call) any { return x.callMacro(n, outer, c) }
	f := value.NewFunction(pytext.Quote(n.Name), call, append(params, "**")...)
	f.Type = "Macro"
	f.Members = map[string]any{
		"name": n.Name, "arguments": names, "caller": n.Caller, "catch_kwargs": n.Kwargs, "catch_varargs": n.Varargs,
	}
	return f
}

// callMacro renders the body of a macro with the arguments of a call.
func (x *executor) callMacro(n *syntax.Macro, outer *scope, c value.Call) any {
	inner := &scope{parent: outer}
	for i, p := range n.Params {
		if c.Given(i) {
			inner.set(p.Name, c.Arg(i))
		}
	}
	if len(c.Rest.Positional) > 0 && !n.Varargs {
		x.Failf("macro %s takes not more than %d argument(s)", pytext.Quote(n.Name), len(n.Params))
	}
	kwargs := &value.Dict{}
	var caller any = &value.Undefined{Message: "No caller defined"}
	for name, v := range c.Rest.Named.All() {
		switch {
		case name == "caller" && n.Caller:
			caller = v
		case n.Kwargs:
			x.Put(kwargs, name, v)
		default:
			x.Failf("macro %s takes no keyword argument %s", pytext.Quote(n.Name), x.Repr(name))
		}
	}
	before, line := x.scope, x.line
	x.scope = inner
	for i, p := range n.Params {
		switch {
		case c.Given(i):
		case p.Default != nil:
			inner.set(p.Name, x.eval(p.Default))
		default:
			inner.set(p.Name, &value.Undefined{Message: "parameter " + pytext.Quote(p.Name) + " was not provided"})
		}
	}
	if n.Caller {
		inner.set("caller", caller)
	}
	if n.Kwargs {
		inner.set("kwargs", kwargs)
	}
	if n.Varargs {
		inner.set("varargs", value.Tuple(c.Rest.Positional...))
	}
	text := x.capture(func() { x.block(n.Body) })
	x.scope, x.line = before, line
	return text
}
