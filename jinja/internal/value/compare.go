package value

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
)

// compareNumbers compares numbers exactly, also an int with a float. ok is false if one of them is NaN.
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
	return toBigFloat(a).Cmp(toBigFloat(b)), true
}

func toBigFloat(v any) *big.Float {
	if f, ok := v.(float64); ok {
		return big.NewFloat(f)
	}
	return new(big.Float).SetInt(toBig(v))
}

// Equal is Python's ==.
func (r *Runtime) Equal(a, b any) bool {
	r.Step(1)
	if x, ok := AsNumber(a); ok {
		y, ok := AsNumber(b)
		if !ok {
			return false
		}
		c, ok := compareNumbers(x, y)
		return ok && c == 0
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		r.Read(a)
		return ok && a == b
	case *Sequence:
		b, ok := b.(*Sequence)
		return ok && (a == b || a.Type == b.Type && a.Type != typeValues && r.equalAll(a.Items, b.Items))
	case *Dict:
		b, ok := b.(*Dict)
		return ok && (a == b || r.equalDicts(a, b))
	case *Undefined:
		_, ok := b.(*Undefined)
		return ok
	case Range:
		b, ok := b.(Range)
		return ok && a.n == b.n && (a.n == 0 || a.start == b.start && (a.n == 1 || a.step == b.step))
	default:
		return a == b
	}
}

func (r *Runtime) equalAll(a, b []any) bool {
	r.Enter()
	defer r.Leave()
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (r *Runtime) equalDicts(a, b *Dict) bool {
	r.Enter()
	defer r.Leave()
	if len(a.keys) != len(b.keys) {
		return false
	}
	for i, k := range a.keys {
		v, ok := b.get(r.Hash(k))
		if !ok || !r.Equal(a.values[i], v) {
			return false
		}
	}
	return true
}

// Same is Python's is.
func (r *Runtime) Same(a, b any) bool {
	switch x := a.(type) {
	case *Sequence:
		y, ok := b.(*Sequence)
		return ok && (x == y || x.Type == TypeTuple && y.Type == TypeTuple && len(x.Items)+len(y.Items) == 0)
	case *Dict, *big.Int, *Undefined, Object:
		return a == b
	}
	return TypeName(a) == TypeName(b) && r.Equal(a, b)
}

// Order compares as Python's <, <=, > and >= do. It fails for types without an order, and the failure mentions op. ok is
// false if a NaN is compared.
func (r *Runtime) Order(op string, a, b any) (c int, ok bool) {
	r.Step(1)
	r.Use(a)
	r.Use(b)
	if x, isNum := AsNumber(a); isNum {
		if y, isNum := AsNumber(b); isNum {
			return compareNumbers(x, y)
		}
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.Step(min(len(x), len(y)) / 64)
			return strings.Compare(x, y), true
		}
	case *Sequence:
		if y, ok := b.(*Sequence); ok && x.Type == y.Type && !x.IsView() {
			return r.orderAll(op, x.Items, y.Items)
		}
	}
	r.Failf("'%s' not supported between instances of '%s' and '%s'", op, TypeName(a), TypeName(b))
	return 0, false
}

func (r *Runtime) orderAll(op string, a, b []any) (int, bool) {
	r.Enter()
	defer r.Leave()
	for i := range min(len(a), len(b)) {
		if !r.Equal(a[i], b[i]) {
			return r.Order(op, a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b)), true
}

// Compare applies a comparison operator, in or not in.
func (r *Runtime) Compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.Equal(a, b)
	case "!=":
		return !r.Equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	c, ok := r.Order(op, a, b)
	switch {
	case !ok:
		return false
	case c == 0:
		return op == "<=" || op == ">="
	default:
		return (c < 0) == (op[0] == '<')
	}
}

func (r *Runtime) contains(box, v any) bool {
	switch b := box.(type) {
	case string:
		text, ok := v.(string)
		if !ok {
			r.Failf("'in <string>' requires string as left operand, not %s", TypeName(v))
		}
		r.Read(b)
		return strings.Contains(b, text)
	case *Dict:
		_, ok := b.get(r.Hash(v))
		return ok
	case *Sequence:
		if b.Type == typeKeys {
			r.Hash(v) // fails if v cannot be a key
		}
	}
	items, ok := r.Items(box)
	if !ok {
		r.Failf("argument of type '%s' is not iterable", TypeName(box))
	}
	return slices.ContainsFunc(items, func(item any) bool { return r.Equal(item, v) })
}
