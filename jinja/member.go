package jinja

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// member is an attribute that an object has in Python, as far as the sandbox lets templates have it. Methods
// that would change a value are undefined there, and so are names with two underscores.
func (r *run) member(obj any, name string) (any, bool) {
	r.use(obj)
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		if _, ok := obj.(*Dict); !ok {
			return unsafe(obj, name), true
		}
	}
	switch o := obj.(type) {
	case string:
		return stringMethod(o, name)
	case *Dict:
		return dictMethod(o, name)
	case *list:
		if slices.Contains([]string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}, name) {
			return unsafe(obj, name), true
		}
		return sequenceMethod(o.items, obj, name)
	case Tuple:
		return sequenceMethod(o, obj, name)
	case *namespace:
		return o.attrs.get(name)
	case *loop:
		return o.member(name)
	case *macro:
		return o.member(name)
	case *callable:
		v, ok := o.members[name]
		return v, ok
	case int64, *big.Int, bool, float64:
		return numberMethod(o, name)
	}
	return nil, false
}

func unsafe(obj any, name string) *undefined {
	return &undefined{"access to attribute " + quote(name) + " of '" + typeName(obj) + "' object is unsafe."}
}

func (m *macro) member(name string) (any, bool) {
	switch name {
	case "name":
		return m.node.name, true
	case "arguments":
		names := Tuple{}
		for _, p := range m.node.params {
			names = append(names, p.name)
		}
		return names, true
	case "caller":
		return m.node.caller, true
	case "catch_kwargs":
		return m.node.kwargs, true
	case "catch_varargs":
		return m.node.varargs, true
	}
	return nil, false
}

func (n *namespace) set(r *run, name string, v any) {
	if strings.HasPrefix(name, "_") {
		r.failf("cannot store underscore-prefixed attribute %s on a namespace", quote(name))
	}
	n.attrs.Set(name, v)
}

func dictMethod(d *Dict, name string) (any, bool) {
	switch name {
	case "items":
		return method(name, nil, func(r *run, _ bound) any {
			r.step(len(d.keys))
			pairs := make([]any, len(d.keys))
			for i, k := range d.keys {
				pairs[i] = Tuple{k, d.values[i]}
			}
			return &view{"dict_items", pairs}
		}), true
	case "keys":
		return method(name, nil, func(*run, bound) any { return &view{"dict_keys", d.keys} }), true
	case "values":
		return method(name, nil, func(*run, bound) any { return &view{"dict_values", d.values} }), true
	case "get":
		return method(name, []string{"/key", "/default?"}, func(r *run, a bound) any {
			if v, ok := d.get(r.hash(a.values[0])); ok {
				return v
			}
			return a.or(1, nil)
		}), true
	case "copy":
		return method(name, nil, func(*run, bound) any {
			return &Dict{keys: d.keys, values: d.values, index: d.index}
		}), true
	case "fromkeys":
		return fromKeys(), true
	case "clear", "pop", "popitem", "setdefault", "update":
		return unsafe(d, name), true
	}
	return nil, false
}

// fromKeys is dict.fromkeys.
func fromKeys() *callable {
	return method("fromkeys", []string{"/iterable", "/value?"}, func(r *run, a bound) any {
		d := &Dict{}
		for _, k := range r.iterate(a.values[0]) {
			r.step(1)
			d.put(r.hash(k), k, a.or(1, nil))
		}
		return d
	})
}

func sequenceMethod(items []any, obj any, name string) (any, bool) {
	switch name {
	case "count":
		return method(name, []string{"/value"}, func(r *run, a bound) any {
			n := int64(0)
			for _, item := range items {
				if r.equal(item, a.values[0]) {
					n++
				}
			}
			return n
		}), true
	case "index":
		return method(name, []string{"/value", "/start?", "/stop?"}, func(r *run, a bound) any {
			begin, end := r.bounds(len(items), a.or(1, nil), a.or(2, nil))
			for i := begin; i < end; i++ {
				if r.equal(items[i], a.values[0]) {
					return int64(i)
				}
			}
			r.failf("%s is not in %s", r.repr(a.values[0]), typeName(obj))
			return nil
		}), true
	case "copy":
		if l, ok := obj.(*list); ok {
			return method(name, nil, func(*run, bound) any { return &list{l.items} }), true
		}
	}
	return nil, false
}

// bounds are the optional start and stop of a search, as places in a sequence of n.
func (r *run) bounds(n int, start, stop any) (begin, end int) {
	at := func(v any, def int) int {
		i := r.sliceBound(v, int64(def))
		if i < 0 {
			i += int64(n)
		}
		return int(min(max(i, 0), int64(n)))
	}
	return at(start, 0), at(stop, n)
}

func numberMethod(v any, name string) (any, bool) {
	n, _ := asNumber(v)
	f, float := n.(float64)
	constant := func(x any) (any, bool) {
		return method(name, nil, func(*run, bound) any { return x }), true
	}
	switch name {
	case "real":
		return n, true
	case "imag":
		if float {
			return 0.0, true
		}
		return int64(0), true
	case "conjugate":
		return constant(n)
	case "is_integer":
		return constant(!float || f == math.Trunc(f) && !math.IsInf(f, 0))
	}
	if float {
		return nil, false
	}
	switch name {
	case "bit_length":
		return constant(int64(toBig(n).BitLen()))
	case "numerator":
		return n, true
	case "denominator":
		return int64(1), true
	}
	return nil, false
}
