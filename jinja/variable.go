package jinja

import (
	"iter"
	"maps"
	"math/big"
	"slices"

	"github.com/agl-go/agl/jinja/internal/value"
)

// Tuple is a variable that is a Python tuple.
type Tuple []any

// Dict is a variable that is a mapping in the order in which its keys were set. The zero value is an empty mapping.
type Dict struct{ dict value.Dict }

// Set sets a key. An existing key keeps its position.
func (d *Dict) Set(key string, value any) { d.dict.Set(key, value) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (value any, ok bool) { return d.dict.Get(key) }

// All iterates over the keys and values in order.
func (d *Dict) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for k, v := range d.dict.All() {
			if !yield(k.(string), v) {
				return
			}
		}
	}
}

// variable converts a variable of the caller into a value. It copies lists and mappings.
func variable(r *value.Runtime, v any) any {
	r.Enter()
	defer r.Leave()
	r.Step(1)
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v
	case int:
		return int64(v)
	case *big.Int:
		return value.NormInt(v)
	case []any:
		return value.List(variables(r, v))
	case Tuple:
		return value.Tuple(variables(r, v)...)
	case map[string]any:
		d := &value.Dict{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			d.Set(k, variable(r, v[k]))
		}
		return d
	case *Dict:
		return v.dict.Map(func(v any) any { return variable(r, v) })
	}
	r.Failf("a variable has the unsupported type %T", v)
	return nil
}

func variables(r *value.Runtime, items []any) []any {
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = variable(r, v)
	}
	return out
}
