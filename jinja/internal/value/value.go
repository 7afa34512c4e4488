package value

import (
	"iter"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// Sequence is a list, a tuple or a view of a dict. Type is the name of its type.
type Sequence struct {
	Type  string
	Items []any
}

// The types of a [Sequence].
const (
	TypeList   = "list"
	TypeTuple  = "tuple"
	typeItems  = "dict_items"
	typeKeys   = "dict_keys"
	typeValues = "dict_values"
)

// List returns a list.
func List(items []any) *Sequence { return &Sequence{TypeList, items} }

// Tuple returns a tuple.
func Tuple(items ...any) *Sequence { return &Sequence{TypeTuple, items} }

// IsView reports whether s is a view of a dict. A view can be iterated over but not indexed.
func (s *Sequence) IsView() bool { return s.Type != TypeList && s.Type != TypeTuple }

// Dict is a dict. The zero value is empty and ready.
type Dict struct {
	keys, values []any
	index        map[any]int // by hash
}

// Set sets a key. An existing key keeps its position.
func (d *Dict) Set(key string, value any) { d.put(key, key, value) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (value any, ok bool) { return d.get(key) }

// All iterates over the keys and values in order.
func (d *Dict) All() iter.Seq2[any, any] {
	return func(yield func(key, value any) bool) {
		for i, k := range d.keys {
			if !yield(k, d.values[i]) {
				return
			}
		}
	}
}

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// At returns the i-th key and its value.
func (d *Dict) At(i int) (key, value any) { return d.keys[i], d.values[i] }

// Pairs returns the keys and values as tuples.
func (d *Dict) Pairs() []any {
	pairs := make([]any, len(d.keys))
	for i, k := range d.keys {
		pairs[i] = Tuple(k, d.values[i])
	}
	return pairs
}

// Map returns a dict with the same keys and the results of f as values. It shares the keys with d.
func (d *Dict) Map(f func(value any) any) *Dict {
	out := &Dict{keys: d.keys, index: d.index, values: make([]any, len(d.values))}
	for i, v := range d.values {
		out.values[i] = f(v)
	}
	return out
}

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

// Undefined is the value of a missing name or attribute. It prints as nothing, is false and empty, and fails with its
// message in every other use.
type Undefined struct{ Message string }

// Range is a range of integers.
type Range struct {
	start, stop, step int64
	n                 int
}

// NewRange returns a range. The step must not be zero.
func NewRange(start, stop, step int64) Range {
	return Range{start, stop, step, countSteps(start, stop, step)}
}

// Len implements [Sized].
func (s Range) Len() int { return s.n }

func (s Range) at(i int) any { return s.start + int64(i)*s.step }

// countSteps returns how many numbers a range has.
func countSteps(from, to, step int64) int {
	if step < 0 {
		from, to, step = to, from, -step
	}
	if from >= to {
		return 0
	}
	return int(min((uint64(to)-uint64(from)-1)/uint64(step)+1, math.MaxInt))
}

// Object is any other value.
type Object interface {
	// TypeName returns the name of the type.
	TypeName() string
	// Repr returns the text of the object.
	Repr(r *Runtime) string
	// Member returns an attribute.
	Member(r *Runtime, name string) (v any, ok bool)
}

// Iterable is an [Object] that can be iterated over. Items returns the elements that are left.
type Iterable interface{ Items(r *Runtime) []any }

// Sized is a value with a length.
type Sized interface{ Len() int }

// TypeName returns Python's name for the type of a value.
func TypeName(v any) string {
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
	case *Sequence:
		return v.Type
	case *Dict:
		return "dict"
	case Range:
		return "range"
	case *Undefined:
		return "Undefined"
	default:
		return v.(Object).TypeName()
	}
}

// Use fails if v is undefined.
func (r *Runtime) Use(v any) {
	if u, ok := v.(*Undefined); ok {
		r.Failf("%s", u.Message)
	}
}

// Truth is Python's bool.
func (r *Runtime) Truth(v any) bool {
	switch v := v.(type) {
	case nil:
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
	n, ok := Length(v)
	return !ok || n > 0
}

// Length is Python's len. ok is false for a value without a length.
func Length(v any) (n int, ok bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case *Sequence:
		return len(v.Items), true
	case *Dict:
		return len(v.keys), true
	case *Undefined:
		return 0, true
	case Sized:
		return v.Len(), true
	}
	return 0, false
}

// Items returns the elements of an iteration over v. ok is false if v cannot be iterated over.
func (r *Runtime) Items(v any) (items []any, ok bool) {
	switch v := v.(type) {
	case *Sequence:
		return v.Items, true
	case *Dict:
		return v.keys, true
	case *Undefined:
		return nil, true
	case string:
		r.Step(utf8.RuneCountInString(v))
		return anys(strings.Split(v, "")), true
	case Range:
		r.Step(v.n)
		items = make([]any, v.n)
		for i := range items {
			items[i] = v.at(i)
		}
		return items, true
	case Iterable:
		return v.Items(r), true
	}
	return nil, false
}

// Iterate is like [Runtime.Items] but fails if v cannot be iterated over.
func (r *Runtime) Iterate(v any) []any {
	items, ok := r.Items(v)
	if !ok {
		r.Failf("'%s' object is not iterable", TypeName(v))
	}
	return items
}

// Unpack returns the n elements of v.
func (r *Runtime) Unpack(v any, n int) []any {
	items := r.Iterate(v)
	if len(items) != n {
		r.Failf("cannot unpack %d values into %d", len(items), n)
	}
	return items
}

// texts returns a list of strings.
func (r *Runtime) texts(parts []string) *Sequence {
	r.Step(len(parts))
	r.Reserve(Times(len(parts), 16))
	return List(anys(parts))
}

func anys(parts []string) []any {
	items := make([]any, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return items
}
