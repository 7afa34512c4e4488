package jinja

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
)

// The values of a rendering are nil (None), bool, int64 and *big.Int (int; a *big.Int is beyond int64),
// float64, string, *list, Tuple, *Dict, and the unexported types below. Lists and dicts do not change once
// made: the sandbox refuses the methods that would.

// Tuple is a Python tuple.
type Tuple []any

// list is a Python list. Two lists are the same object only if they are the same pointer.
type list struct{ items []any }

// Dict is a mapping that keeps the order in which keys were set. The zero value is empty and ready.
type Dict struct {
	keys, values []any
	index        map[any]int
}

// Set sets a key. A key that is there keeps its place.
func (d *Dict) Set(key string, value any) { d.put(key, key, value) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (value any, ok bool) { return d.get(key) }

// All gives the keys and values in order.
func (d *Dict) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i, k := range d.keys {
			if name, ok := k.(string); ok && !yield(name, d.values[i]) {
				return
			}
		}
	}
}

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// put sets a key by its hash form.
func (d *Dict) put(hash, key, value any) {
	if i, ok := d.index[hash]; ok {
		d.values[i] = value
		return
	}
	if d.index == nil {
		d.index = map[any]int{}
	}
	d.index[hash] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, value)
}

func (d *Dict) get(hash any) (any, bool) {
	i, ok := d.index[hash]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// undefined is what a missing name or attribute evaluates to: it prints as nothing, is false and empty, and
// fails in every other use with its message.
type undefined struct{ message string }

// view is what dict.items(), keys() and values() give.
type view struct {
	name  string // dict_items, dict_keys, dict_values
	items []any
}

// span is a Python range.
type span struct {
	start, stop, step int64
	n                 int
}

func (s span) at(i int) any { return s.start + int64(i)*s.step }

// generator gives elements once, made as they are asked for.
type generator struct {
	name string
	next func() (any, bool)
}

// namespace is an object with attributes that set can change.
type namespace struct{ attrs Dict }

// callable is a function, or a method bound to its object.
type callable struct {
	name    string
	call    func(r *run, a callArgs) any
	members map[string]any
}

// importValue copies what a caller passed into values of a rendering.
func (r *run) importValue(v any) any {
	defer r.enter()()
	r.step(1)
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v
	case int:
		return int64(v)
	case *big.Int:
		return normInt(v)
	case []any:
		return &list{r.importAll(v)}
	case Tuple:
		return Tuple(r.importAll(v))
	case map[string]any:
		d := &Dict{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			d.Set(k, r.importValue(v[k]))
		}
		return d
	case *Dict:
		d := &Dict{keys: v.keys, index: v.index, values: r.importAll(v.values)}
		return d
	}
	r.failf("a variable holds a %T, which templates cannot use", v)
	return nil
}

func (r *run) importAll(items []any) []any {
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = r.importValue(v)
	}
	return out
}

// normInt makes the smallest form of an integer.
func normInt(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// typeName is Python's name for the type of a value.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		return "list"
	case Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *view:
		return v.name
	case span:
		return "range"
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	default:
		return "function"
	}
}

// use fails if v is undefined, in a way that says what was missing.
func (r *run) use(v any) {
	if u, ok := v.(*undefined); ok {
		r.failUndefined(u)
	}
}

func (r *run) failUndefined(u *undefined) { r.failf("%s", u.message) }

func (r *run) truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	}
	if n, ok := length(v); ok {
		return n > 0
	}
	return true
}

// length is Python's len.
func length(v any) (int, bool) {
	switch v := v.(type) {
	case string:
		return runeCount(v), true
	case *list:
		return len(v.items), true
	case Tuple:
		return len(v), true
	case *Dict:
		return len(v.keys), true
	case *view:
		return len(v.items), true
	case span:
		return v.n, true
	case *undefined:
		return 0, true
	case *loop:
		return len(v.items), true
	default:
		return 0, false
	}
}

// items are the elements that iterating over v gives; ok is false for what cannot be iterated over.
func (r *run) items(v any) (items []any, ok bool) {
	switch v := v.(type) {
	case *list:
		return v.items, true
	case Tuple:
		return v, true
	case *Dict:
		return v.keys, true
	case *view:
		return v.items, true
	case *undefined:
		return nil, true
	case *loop:
		return v.rest(), true
	case string:
		n := runeCount(v)
		r.step(n)
		items = make([]any, 0, n)
		for i, c := range v {
			items = append(items, v[i:i+runeLen(v[i:], c)])
		}
		return items, true
	case span:
		r.step(v.n)
		items = make([]any, v.n)
		for i := range items {
			items[i] = v.at(i)
		}
		return items, true
	case *generator:
		return r.drain(v), true
	}
	return nil, false
}

// drain are the elements that a generator has left.
func (r *run) drain(g *generator) []any {
	var items []any
	for {
		item, ok := g.next()
		if !ok {
			return items
		}
		r.step(1)
		items = append(items, item)
	}
}

// iterate is items where anything else is an error.
func (r *run) iterate(v any) []any {
	items, ok := r.items(v)
	if !ok {
		r.failf("'%s' object is not iterable", typeName(v))
	}
	return items
}

type (
	noneKey  struct{}
	tupleKey string
	bigKey   string
)

// hash is a comparable form of v that is equal for equal keys, so 1, 1.0 and true are one key.
func (r *run) hash(v any) any {
	switch v := v.(type) {
	case nil:
		return noneKey{}
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case string:
		r.read(v)
		return v
	case int64:
		return v
	case *big.Int:
		return bigKey(v.String())
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v)
		}
		return v
	case Tuple:
		defer r.enter()()
		var b strings.Builder
		for _, item := range v {
			r.step(1)
			fmt.Fprintf(&b, "%T:%[1]v,", r.hash(item))
			r.reserve(b.Len())
		}
		return tupleKey(b.String())
	case *list, *Dict:
		r.failf("unhashable type: '%s'", typeName(v))
	case *undefined:
		return (*undefined)(nil)
	}
	return v
}
