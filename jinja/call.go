package jinja

import "slices"

// argList are the arguments of a call in the source.
type argList struct {
	pos            []expr
	names          []string
	named          []expr
	star, starStar expr
}

// callArgs are evaluated arguments.
type callArgs struct {
	pos   []any
	names []string
	named []any
}

func (a *callArgs) prepend(v any) { a.pos = append([]any{v}, a.pos...) }

func (r *run) args(list argList) callArgs {
	a := callArgs{pos: make([]any, len(list.pos), len(list.pos)+1)}
	for i, e := range list.pos {
		a.pos[i] = r.eval(e)
	}
	if list.star != nil {
		a.pos = append(a.pos, r.iterate(r.eval(list.star))...)
	}
	for i, e := range list.named {
		a.add(r, list.names[i], r.eval(e))
	}
	if list.starStar != nil {
		d, ok := r.eval(list.starStar).(*Dict)
		if !ok {
			r.failf("argument after ** must be a mapping")
		}
		for i, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				r.failf("keywords must be strings")
			}
			a.add(r, name, d.values[i])
		}
	}
	return a
}

func (a *callArgs) add(r *run, name string, v any) {
	if slices.Contains(a.names, name) {
		r.failf("got multiple values for keyword argument '%s'", name)
	}
	a.names = append(a.names, name)
	a.named = append(a.named, v)
}

// builtin is a filter, a test, a method or a function with a fixed list of parameters. In the list a name
// with a "?" may be left out, and is then the value absent, one with a "/" cannot be given by name; a last "*" takes any number of positional
// arguments, and a last "**" any arguments at all.
type builtin struct {
	params []string
	fn     func(r *run, a bound) any
}

// absent is the value of a parameter that was not given.
type absent struct{}

// bound are arguments by parameter. extra holds those of a "*" or "**".
type bound struct {
	values []any
	extra  callArgs
}

func (a bound) given(i int) bool { return a.values[i] != absent{} }

// or is the argument, or a default where it was not given.
func (a bound) or(i int, def any) any {
	if !a.given(i) {
		return def
	}
	return a.values[i]
}

// call binds arguments to parameters and calls.
func (f builtin) call(r *run, name string, a callArgs) any {
	defer r.enter()()
	params := f.params
	var b bound
	open := ""
	if n := len(params); n > 0 && (params[n-1] == "*" || params[n-1] == "**") {
		open, params = params[n-1], params[:n-1]
	}
	b.values = make([]any, len(params))
	for i := range b.values {
		b.values[i] = absent{}
	}
	copy(b.values, a.pos)
	if len(a.pos) > len(params) {
		if open == "" {
			r.failf("%s() takes at most %d arguments (%d given)", name, len(params), len(a.pos))
		}
		b.extra.pos = a.pos[len(params):]
	}
	for i, given := range a.names {
		at := slices.IndexFunc(params, func(p string) bool { return p == given || p == given+"?" })
		switch {
		case at < 0 && open == "**":
			b.extra.add(r, given, a.named[i])
		case at < 0:
			r.failf("%s() got an unexpected keyword argument '%s'", name, given)
		case b.given(at):
			r.failf("%s() got multiple values for argument '%s'", name, given)
		default:
			b.values[at] = a.named[i]
		}
	}
	for i, p := range params {
		if !b.given(i) && p[len(p)-1] != '?' {
			r.failf("%s() missing required argument: '%s'", name, p)
		}
	}
	return f.fn(r, b)
}

// method is a builtin bound to an object.
func method(name string, params []string, fn func(r *run, a bound) any) *callable {
	b := builtin{params, fn}
	return &callable{name: name, call: func(r *run, a callArgs) any { return b.call(r, name, a) }}
}

// call is fn(args).
func (r *run) call(fn any, a callArgs) any {
	defer r.enter()()
	switch fn := fn.(type) {
	case *callable:
		return fn.call(r, a)
	case *macro:
		return fn.call(r, a)
	case *loop:
		if fn.recurse == nil {
			r.failf("The loop must have the 'recursive' marker to be called recursively.")
		}
		if len(a.pos) != 1 || len(a.names) > 0 {
			r.failf("a recursive loop takes one argument")
		}
		return fn.recurse(r, a.pos[0])
	case *undefined:
		r.failUndefined(fn)
	}
	r.failf("'%s' object is not callable", typeName(fn))
	return nil
}

type param struct {
	name string
	def  expr
}

// macroNode is a macro, or the body of a call block, in the source. The flags say which special names it
// uses: only then does it take what they stand for.
type macroNode struct {
	line   int
	name   string
	params []param
	body   []stmt

	caller, kwargs, varargs bool
}

// macro is a macro with the scope in which it was defined.
type macro struct {
	node  *macroNode
	scope *scope
}

func (m *macro) call(r *run, a callArgs) any {
	n := m.node
	outer, line := r.scope, r.line
	r.scope = &scope{parent: m.scope}
	given := make([]any, len(n.params))
	for i := range given {
		given[i] = absent{}
	}
	copy(given, a.pos)
	if len(a.pos) > len(n.params) {
		if !n.varargs {
			r.failf("macro %s takes not more than %d argument(s)", quote(n.name), len(n.params))
		}
	}
	rest := &Dict{}
	var caller any = &undefined{"No caller defined"}
	for i, name := range a.names {
		at := slices.IndexFunc(n.params, func(p param) bool { return p.name == name })
		switch {
		case at >= 0 && given[at] != absent{}:
			r.failf("macro %s got multiple values for argument '%s'", quote(n.name), name)
		case at >= 0:
			given[at] = a.named[i]
		case name == "caller" && n.caller:
			caller = a.named[i]
		case n.kwargs:
			rest.Set(name, a.named[i])
		default:
			r.failf("macro %s takes no keyword argument '%s'", quote(n.name), name)
		}
	}
	for i, p := range n.params {
		v := given[i]
		switch {
		case v != absent{}:
		case p.def != nil:
			v = r.eval(p.def)
		default:
			v = &undefined{"parameter " + quote(p.name) + " was not provided"}
		}
		r.scope.set(p.name, v)
	}
	if n.caller {
		r.scope.set("caller", caller)
	}
	if n.kwargs {
		r.scope.set("kwargs", rest)
	}
	if n.varargs {
		r.scope.set("varargs", Tuple(a.pos[min(len(a.pos), len(n.params)):]))
	}
	text := r.capture(func() { r.block(n.body) })
	r.scope, r.line = outer, line
	return text
}

// loop is the variable of that name inside a for statement.
type loop struct {
	items   []any
	at      int
	depth   int
	recurse func(r *run, over any) any
	changed any // the arguments of the last call of loop.changed, a Tuple
}

// rest are the items after the current one.
func (l *loop) rest() []any { return l.items[min(l.at+1, len(l.items)):] }

func (l *loop) member(name string) (any, bool) {
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
			return &undefined{"there is no previous item"}, true
		}
		return l.items[l.at-1], true
	case "nextitem":
		if l.at == n-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items[l.at+1], true
	case "cycle":
		return method("cycle", []string{"*"}, func(r *run, a bound) any {
			if len(a.extra.pos) == 0 {
				r.failf("no items for cycling given")
			}
			return a.extra.pos[l.at%len(a.extra.pos)]
		}), true
	case "changed":
		return method("changed", []string{"*"}, func(r *run, a bound) any {
			now := Tuple(a.extra.pos)
			if l.changed != nil && r.equal(l.changed, now) {
				return false
			}
			l.changed = now
			return true
		}), true
	}
	return nil, false
}
