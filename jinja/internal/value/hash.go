package value

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// Put sets a key of any type.
func (r *Runtime) Put(d *Dict, key, value any) { d.put(r.Hash(key), key, value) }

type (
	noneKey  struct{}
	tupleKey string
	bigKey   string
)

// Hash returns a comparable form of v. Equal keys have equal forms: 1, 1.0 and true are one key.
func (r *Runtime) Hash(v any) any {
	switch v := v.(type) {
	case nil:
		return noneKey{}
	case bool:
		n, _ := AsNumber(v)
		return n
	case string:
		r.Read(v)
	case *big.Int:
		return bigKey(v.String())
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v)
		}
	case *Sequence:
		if v.Type == typeValues {
			return v
		}
		if v.Type != TypeTuple {
			r.Failf("unhashable type: '%s'", v.Type)
		}
		r.Enter()
		defer r.Leave()
		var b strings.Builder
		for _, item := range v.Items {
			r.Step(1)
			fmt.Fprintf(&b, "%T:%[1]v,", r.Hash(item))
			r.Reserve(b.Len())
		}
		return tupleKey(b.String())
	case *Dict:
		r.Failf("unhashable type: 'dict'")
	case *Undefined:
		return (*Undefined)(nil)
	}
	return v
}
