package value

import (
	"slices"
	"strings"
)

// Args are the arguments of a call.
type Args struct {
	Positional []any
	Named      Dict
}

// AddNamed adds a named argument. It fails if the name is given twice.
func (r *Runtime) AddNamed(a *Args, name string, v any) {
	if _, ok := a.Named.Get(name); ok {
		r.Failf("got multiple values for keyword argument '%s'", name)
	}
	a.Named.Set(name, v)
}

// Callable is an [Object] that can be called.
type Callable interface {
	Call(r *Runtime, args Args) any
}

// Call calls a value.
func (r *Runtime) Call(fn any, args Args) any {
	r.Enter()
	defer r.Leave()
	r.Use(fn)
	c, ok := fn.(Callable)
	if !ok {
		r.Failf("'%s' object is not callable", TypeName(fn))
	}
	return c.Call(r, args)
}

// Builtin is a filter, a test, a method or a function. A parameter that ends in "?" is optional, and one that begins
// with "/" cannot be passed by name. A last parameter "*" takes all further positional arguments, and "**" takes all
// further named arguments too.
type Builtin struct {
	Params []string
	Func   func(c Call) any
}

// NewBuiltin returns a builtin.
func NewBuiltin(fn func(c Call) any, params ...string) Builtin { return Builtin{params, fn} }

// Call is one call of a builtin. Its methods return an argument by the index of its parameter.
type Call struct {
	*Runtime
	values []any
	Rest   Args // the arguments that "*" or "**" takes
}

// absent marks a parameter without an argument.
type absent struct{}

// Call binds arguments to the parameters and calls the function. Failures mention the name.
func (f Builtin) Call(r *Runtime, name string, args Args) any {
	r.Enter()
	defer r.Leave()
	params, open := f.Params, ""
	if n := len(params); n > 0 && (params[n-1] == "*" || params[n-1] == "**") {
		open, params = params[n-1], params[:n-1]
	}
	c := Call{Runtime: r, values: make([]any, len(params))}
	for i := copy(c.values, args.Positional); i < len(params); i++ {
		c.values[i] = absent{}
	}
	if len(args.Positional) > len(params) {
		if open == "" {
			r.Failf("%s() takes at most %d arguments (%d given)", name, len(params), len(args.Positional))
		}
		c.Rest.Positional = args.Positional[len(params):]
	}
	for k, v := range args.Named.All() {
		at := slices.IndexFunc(params, func(p string) bool { return strings.TrimSuffix(p, "?") == k })
		switch {
		case at < 0 && open == "**":
			c.Rest.Named.Set(k.(string), v)
		case at < 0:
			r.Failf("%s() got an unexpected keyword argument '%s'", name, k)
		case c.Given(at):
			r.Failf("%s() got multiple values for argument '%s'", name, k)
		default:
			c.values[at] = v
		}
	}
	for i, p := range params {
		if p[len(p)-1] != '?' && !c.Given(i) {
			r.Failf("%s() missing required argument: '%s'", name, p)
		}
	}
	return f.Func(c)
}

// Given reports whether the argument was passed.
func (c Call) Given(i int) bool { return c.values[i] != absent{} }

// Arg returns the argument, or nil (None) if it was not passed.
func (c Call) Arg(i int) any { return c.ArgOr(i, nil) }

// ArgOr returns the argument, or def if it was not passed.
func (c Call) ArgOr(i int, def any) any {
	if c.Given(i) {
		return c.values[i]
	}
	return def
}

// ArgText returns the argument converted to a string, or def.
func (c Call) ArgText(i int, def string) string { return c.Text(c.ArgOr(i, def)) }

// ArgStr returns the argument, which must be a string, or def.
func (c Call) ArgStr(i int, def string) string { return c.Str(c.ArgOr(i, def)) }

// ArgInt returns the argument, which must be an integer, or def.
func (c Call) ArgInt(i, def int) int { return c.Int(c.ArgOr(i, int64(def))) }

// Flag reports whether the argument was passed and is true.
func (c Call) Flag(i int) bool { return c.Truth(c.Arg(i)) }

// Str returns a value that must be a string.
func (r *Runtime) Str(v any) string {
	r.Use(v)
	s, ok := v.(string)
	if !ok {
		r.Failf("a string is required, not '%s'", TypeName(v))
	}
	return s
}

// Int returns a value that must be an integer and fit into an int.
func (r *Runtime) Int(v any) int {
	r.Use(v)
	n, _ := AsNumber(v)
	i, ok := n.(int64)
	if !ok {
		r.Failf("'%s' object cannot be interpreted as an integer", TypeName(v))
	}
	return int(i)
}

// Function is a function, a macro, or a method bound to its object.
type Function struct {
	Builtin

	Type, Name string
	Members    map[string]any
}

// NewFunction returns a function. Its parameters are written as those of a [Builtin].
func NewFunction(name string, fn func(c Call) any, params ...string) *Function {
	return &Function{Builtin: NewBuiltin(fn, params...), Type: "function", Name: name}
}

// TypeName implements [Object].
func (f *Function) TypeName() string { return f.Type }

// Repr implements [Object].
func (f *Function) Repr(*Runtime) string { return "<" + f.Type + " " + f.Name + ">" }

// Member implements [Object].
func (f *Function) Member(_ *Runtime, name string) (any, bool) {
	v, ok := f.Members[name]
	return v, ok
}

// Call implements [Callable].
func (f *Function) Call(r *Runtime, args Args) any { return f.Builtin.Call(r, f.Name, args) }
