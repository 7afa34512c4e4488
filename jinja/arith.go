package jinja

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// binary is an arithmetic operator.
func (r *run) binary(op string, a, b any) any {
	r.use(a)
	if text, ok := a.(string); ok && op == "%" {
		return r.percent(text, b)
	}
	r.use(b)
	x, xNum := asNumber(a)
	y, yNum := asNumber(b)
	if xNum && yNum {
		_, xFloat := x.(float64)
		_, yFloat := y.(float64)
		if xFloat || yFloat {
			return r.floats(op, r.toFloat(x), r.toFloat(y))
		}
		return r.ints(op, x, y)
	}
	var result any
	switch op {
	case "+":
		result = r.join(a, b)
	case "*":
		if n, ok := x.(int64); ok && xNum {
			result = r.repeat(b, n)
		} else if n, ok := y.(int64); ok && yNum {
			result = r.repeat(a, n)
		}
	}
	if result == nil {
		r.failf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	return result
}

// join adds sequences of one type; nil if they are not.
func (r *run) join(a, b any) any {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			r.reserve(len(a) + len(b))
			return a + b
		}
	case *list:
		if b, ok := b.(*list); ok {
			r.reserve(times(len(a.items)+len(b.items), 16))
			return &list{append(append(make([]any, 0, len(a.items)+len(b.items)), a.items...), b.items...)}
		}
	case Tuple:
		if b, ok := b.(Tuple); ok {
			r.reserve(times(len(a)+len(b), 16))
			return append(append(make(Tuple, 0, len(a)+len(b)), a...), b...)
		}
	}
	return nil
}

// repeat repeats a sequence; nil if it is none.
func (r *run) repeat(v any, n int64) any {
	n = max(n, 0)
	items := func(from []any) []any {
		total := times(len(from), int(min(n, 1<<40)))
		r.reserve(times(total, 16))
		r.step(total)
		out := make([]any, 0, total)
		for len(out) < total {
			out = append(out, from...)
		}
		return out
	}
	switch v := v.(type) {
	case string:
		r.reserve(times(len(v), int(min(n, 1<<40))))
		if v == "" {
			return ""
		}
		return strings.Repeat(v, int(n))
	case *list:
		return &list{items(v.items)}
	case Tuple:
		return Tuple(items(v))
	}
	return nil
}

func (r *run) toFloat(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			r.failf("int too large to convert to float")
		}
		return f
	default:
		return v.(float64)
	}
}

func (r *run) floats(op string, a, b float64) any {
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		r.failf("float division by zero")
	}
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		return a / b
	case "//":
		div, _ := floatDivMod(a, b)
		return div
	case "%":
		_, mod := floatDivMod(a, b)
		return mod
	}
	if a == 0 && b < 0 {
		r.failf("0.0 cannot be raised to a negative power")
	}
	v := math.Pow(a, b)
	switch {
	case math.IsInf(v, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0):
		r.failf("(34, 'Numerical result out of range')")
	case math.IsNaN(v) && a < 0:
		r.failf("complex numbers are not supported")
	}
	return v
}

// floatDivMod rounds the quotient down, and gives the remainder the sign of the divisor.
func floatDivMod(a, b float64) (div, mod float64) {
	mod = math.Mod(a, b)
	div = (a - mod) / b
	switch {
	case mod == 0:
		mod = math.Copysign(0, b)
	case (b < 0) != (mod < 0):
		mod += b
		div--
	}
	if div == 0 {
		return math.Copysign(0, a/b), mod
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, mod
}

// maxBits bounds the size of an integer.
const maxBits = 1 << 17

func (r *run) ints(op string, a, b any) any {
	x, xOK := a.(int64)
	y, yOK := b.(int64)
	if xOK && yOK {
		if v, ok := smallInts(op, x, y); ok {
			return v
		}
	}
	p, q := toBig(a), toBig(b)
	if q.Sign() == 0 && (op == "/" || op == "//" || op == "%") {
		if op == "/" {
			r.failf("division by zero")
		}
		r.failf("integer division or modulo by zero")
	}
	r.step(1 + (p.BitLen()+q.BitLen())/64)
	v := new(big.Int)
	switch op {
	case "+":
		v.Add(p, q)
	case "-":
		v.Sub(p, q)
	case "*":
		v.Mul(p, q)
	case "/":
		f, _ := new(big.Rat).SetFrac(p, q).Float64()
		if math.IsInf(f, 0) {
			r.failf("integer division result too large for a float")
		}
		return f
	case "//", "%":
		mod := new(big.Int)
		v.QuoRem(p, q, mod)
		if mod.Sign() != 0 && mod.Sign() != q.Sign() {
			v.Sub(v, big.NewInt(1))
			mod.Add(mod, q)
		}
		if op == "%" {
			v = mod
		}
	case "**":
		if q.Sign() < 0 {
			return r.floats(op, r.toFloat(a), r.toFloat(b))
		}
		if p.BitLen() > 1 && (!q.IsInt64() || q.Int64() > maxBits || times(p.BitLen(), int(q.Int64())) > maxBits) {
			r.failAsf(Limit, "an integer of more than %d bits", maxBits)
		}
		if p.BitLen() <= 1 && q.BitLen() > 1 {
			q = new(big.Int).Add(big.NewInt(2), new(big.Int).And(q, big.NewInt(1))) // 0, 1, -1: only the parity counts
		}
		v.Exp(p, q, nil)
	}
	if v.BitLen() > maxBits {
		r.failAsf(Limit, "an integer of more than %d bits", maxBits)
	}
	return normInt(v)
}

// smallInts is an operation that neither leaves int64 nor needs care.
func smallInts(op string, x, y int64) (any, bool) {
	switch op {
	case "+":
		s := x + y
		return s, (s > x) == (y > 0)
	case "-":
		s := x - y
		return s, (s < x) == (y > 0)
	case "*":
		if x == math.MinInt64 || y == math.MinInt64 {
			return nil, false
		}
		hi, lo := bits.Mul64(uint64(max(x, -x)), uint64(max(y, -y)))
		return x * y, hi == 0 && lo <= math.MaxInt64
	case "/":
		const exact = 1 << 53
		return float64(x) / float64(y), y != 0 && max(x, -x) <= exact && max(y, -y) <= exact && x != math.MinInt64 && y != math.MinInt64
	case "//", "%":
		if y == 0 || y == -1 {
			return nil, false
		}
		div, mod := x/y, x%y
		if mod != 0 && (mod < 0) != (y < 0) {
			div--
			mod += y
		}
		if op == "%" {
			return mod, true
		}
		return div, true
	}
	return nil, false
}
