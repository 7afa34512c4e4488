package jinja

import (
	"cmp"
	"math"
	"math/big"
	"strings"
)

// number is v as an int64, *big.Int or float64; booleans are ints, as in Python.
func asNumber(v any) (any, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case int64, *big.Int, float64:
		return v, true
	}
	return nil, false
}

// toBig is an integer of either form.
func toBig(v any) *big.Int {
	if b, ok := v.(*big.Int); ok {
		return b
	}
	return big.NewInt(v.(int64))
}

// compareNumbers compares exactly, ints with floats too. ok is false if one is not a number (NaN).
func compareNumbers(a, b any) (c int, ok bool) {
	x, xInt := a.(int64)
	y, yInt := b.(int64)
	if xInt && yInt {
		return cmp.Compare(x, y), true
	}
	f, fOK := a.(float64)
	g, gOK := b.(float64)
	if fOK && math.IsNaN(f) || gOK && math.IsNaN(g) {
		return 0, false
	}
	if fOK && gOK {
		return cmp.Compare(f, g), true
	}
	return toBigFloat(a).Cmp(toBigFloat(b)), true
}

func toBigFloat(v any) *big.Float {
	if f, ok := v.(float64); ok {
		return big.NewFloat(f)
	}
	return new(big.Float).SetInt(toBig(v))
}

// equal is Python's ==.
func (r *run) equal(a, b any) bool {
	r.step(1)
	if x, ok := asNumber(a); ok {
		y, ok := asNumber(b)
		if !ok {
			return false
		}
		c, ok := compareNumbers(x, y)
		return ok && c == 0
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		r.read(a)
		return ok && a == b
	case *list:
		b, ok := b.(*list)
		return ok && (a == b || r.equalAll(a.items, b.items))
	case Tuple:
		b, ok := b.(Tuple)
		return ok && r.equalAll(a, b)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && (a == b || r.equalDicts(a, b))
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *view:
		b, ok := b.(*view)
		return ok && (a == b || a.name == b.name && a.name != "dict_values" && r.equalAll(a.items, b.items))
	case span:
		b, ok := b.(span)
		return ok && a.n == b.n && (a.n == 0 || a.start == b.start && (a.n == 1 || a.step == b.step))
	default:
		return a == b
	}
}

func (r *run) equalAll(a, b []any) bool {
	defer r.enter()()
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (r *run) equalDicts(a, b *Dict) bool {
	defer r.enter()()
	if len(a.keys) != len(b.keys) {
		return false
	}
	for i, k := range a.keys {
		v, ok := b.get(r.hash(k))
		if !ok || !r.equal(a.values[i], v) {
			return false
		}
	}
	return true
}

// same is Python's is.
func (r *run) same(a, b any) bool {
	switch a := a.(type) {
	case Tuple:
		b, ok := b.(Tuple)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	case *big.Int:
		return false
	case *Dict, *list, *undefined, *view, *generator, *namespace, *macro, *loop, *callable:
		return a == b
	}
	return typeName(a) == typeName(b) && r.equal(a, b)
}

// order is Python's ordering; it fails for types that have none. ok is false where NaN is compared.
func (r *run) order(op string, a, b any) (c int, ok bool) {
	r.step(1)
	r.use(a)
	r.use(b)
	if x, isNum := asNumber(a); isNum {
		if y, isNum := asNumber(b); isNum {
			return compareNumbers(x, y)
		}
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.step(min(len(x), len(y)) / 64)
			return strings.Compare(x, y), true
		}
	case *list:
		if y, ok := b.(*list); ok {
			return r.orderAll(op, x.items, y.items)
		}
	case Tuple:
		if y, ok := b.(Tuple); ok {
			return r.orderAll(op, x, y)
		}
	}
	r.failf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0, false
}

func (r *run) orderAll(op string, a, b []any) (int, bool) {
	defer r.enter()()
	for i := range min(len(a), len(b)) {
		if !r.equal(a[i], b[i]) {
			return r.order(op, a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b)), true
}

// compare is one of the comparison operators.
func (r *run) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	c, ok := r.order(op, a, b)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

// contains is Python's "v in box".
func (r *run) contains(box, v any) bool {
	switch b := box.(type) {
	case string:
		text, ok := v.(string)
		if !ok {
			r.failf("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		r.read(b)
		return strings.Contains(b, text)
	case *Dict:
		_, ok := b.get(r.hash(v))
		return ok
	case *view:
		if b.name == "dict_keys" {
			r.hash(v)
		}
	}
	items, ok := r.items(box)
	if !ok {
		r.failf("argument of type '%s' is not iterable", typeName(box))
	}
	for _, item := range items {
		if r.equal(item, v) {
			return true
		}
	}
	return false
}
