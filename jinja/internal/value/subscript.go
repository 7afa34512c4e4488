package value

import (
	"math/big"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// Attr evaluates obj.name: an attribute, else an element.
func (r *Runtime) Attr(obj any, name string) any {
	if v, ok := r.Member(obj, name); ok {
		return v
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v
		}
	}
	return Missing(obj, pytext.Quote(name))
}

// Missing is the value of an attribute or element that does not exist. name is its repr.
func Missing(obj any, name string) *Undefined {
	if obj == nil {
		return &Undefined{"None has no attribute " + name}
	}
	return &Undefined{"'" + TypeName(obj) + " object' has no attribute " + name}
}

// Item evaluates obj[key]: an element, else an attribute.
func (r *Runtime) Item(obj, key any) any {
	r.Use(obj)
	if v, ok := r.element(obj, key); ok {
		return v
	}
	name, ok := key.(string)
	if !ok {
		return Missing(obj, r.Repr(key))
	}
	if v, ok := r.Member(obj, name); ok {
		return v
	}
	return Missing(obj, pytext.Quote(name))
}

// element returns the value of a key, or the element of a sequence at an index.
func (r *Runtime) element(obj, key any) (v any, ok bool) {
	if d, ok := obj.(*Dict); ok {
		switch k := key.(type) {
		case *Dict:
			return nil, false // as in Jinja2, a key that cannot be hashed is missing
		case *Sequence:
			if k.Type != TypeTuple {
				return nil, false
			}
		}
		return d.get(r.Hash(key))
	}
	n, _ := AsNumber(key)
	i, isInt := n.(int64)
	size, isSequence := r.sequence(obj)
	if !isInt || !isSequence {
		return nil, false
	}
	if i < 0 {
		i += int64(size)
	}
	if i < 0 || i >= int64(size) {
		return nil, false
	}
	switch o := obj.(type) {
	case string:
		r.Read(o)
		return pytext.CharAt(o, int(i)), true
	case *Sequence:
		return o.Items[i], true
	default:
		return o.(Range).at(int(i)), true
	}
}

// sequence reports whether v is indexed by position, and its length.
func (r *Runtime) sequence(v any) (size int, ok bool) {
	switch v := v.(type) {
	case *Sequence:
		return len(v.Items), !v.IsView()
	case string, Range:
		return Length(v)
	}
	return 0, false
}

// Slice evaluates obj[start:stop:step]. An omitted part is nil.
func (r *Runtime) Slice(obj, start, stop, step any) any {
	r.Use(obj)
	size, ok := r.sequence(obj)
	if !ok {
		r.Failf("'%s' object cannot be sliced", TypeName(obj))
	}
	by := r.bound(step, 1)
	if by == 0 {
		r.Failf("slice step cannot be zero")
	}
	low, high := int64(0), int64(size)
	from, to := low, high
	if by < 0 {
		low, high = -1, high-1
		from, to = high, low
	}
	if start != nil {
		from = r.position(start, size, low, high)
	}
	if stop != nil {
		to = r.position(stop, size, low, high)
	}
	n := countSteps(from, to, by)
	r.Step(n/16 + 1)
	at := func(i int) int { return int(from + int64(i)*by) }
	switch o := obj.(type) {
	case *Sequence:
		r.Reserve(Times(n, 16))
		return &Sequence{o.Type, pick(o.Items, n, at)}
	case string:
		r.Reserve(len(o))
		return string(pick([]rune(o), n, at))
	default:
		s := o.(Range)
		return Range{s.start + from*s.step, s.start + to*s.step, s.step * by, n}
	}
}

// pick returns n elements by their positions.
func pick[T any](from []T, n int, at func(i int) int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = from[at(i)]
	}
	return out
}

// position clamps a bound of a slice to a range. A negative bound counts from the end of the n elements.
func (r *Runtime) position(v any, n int, low, high int64) int64 {
	i := r.bound(v, 0)
	if i < 0 {
		i += int64(n)
	}
	return min(max(i, low), high)
}

// bounds returns the start and stop of a search in a sequence of n elements. Each may be nil.
func (r *Runtime) bounds(n int, start, stop any) (begin, end int) {
	end = n
	if start != nil {
		begin = int(r.position(start, n, 0, int64(n)))
	}
	if stop != nil {
		end = int(r.position(stop, n, 0, int64(n)))
	}
	return begin, end
}

// bound returns a bound of a slice as a number, or def if it is nil.
func (r *Runtime) bound(v any, def int64) int64 {
	const far = 1 << 61 // adding a length cannot overflow
	if v == nil {
		return def
	}
	switch n, _ := AsNumber(v); n := n.(type) {
	case int64:
		return min(max(n, -far), far)
	case *big.Int:
		return int64(n.Sign()) * far
	}
	r.Failf("slice indices must be integers or None or have an __index__ method")
	return 0
}
