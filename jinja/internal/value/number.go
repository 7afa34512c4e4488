package value

import (
	"math"
	"math/big"
)

// AsNumber returns v as an int64, *big.Int or float64. Booleans are ints, as in Python.
func AsNumber(v any) (n any, ok bool) {
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

// toBig converts an int64 or *big.Int.
func toBig(v any) *big.Int {
	if b, ok := v.(*big.Int); ok {
		return b
	}
	return big.NewInt(v.(int64))
}

// Float converts a number.
func (r *Runtime) Float(n any) float64 {
	switch n := n.(type) {
	case int64:
		return float64(n)
	case *big.Int:
		f, _ := n.Float64()
		if math.IsInf(f, 0) {
			r.Failf("int too large to convert to float")
		}
		return f
	default:
		return n.(float64)
	}
}

// FloatToInt drops the fraction of a float. ok is false if the float is not finite.
func FloatToInt(f float64) (n any, ok bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	i, _ := big.NewFloat(f).Int(nil)
	return NormInt(i), true
}

// NormInt returns an int64 if the integer fits, else v.
func NormInt(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}
