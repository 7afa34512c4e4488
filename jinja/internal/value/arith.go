package value

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// Unary applies one of the operators +, - and not.
func (r *Runtime) Unary(op string, v any) any {
	if op == "not" {
		return !r.Truth(v)
	}
	r.Use(v)
	n, ok := AsNumber(v)
	if !ok {
		r.Failf("bad operand type for unary %s: '%s'", op, TypeName(v))
	}
	if op == "+" {
		return n
	}
	if f, ok := n.(float64); ok {
		return -f
	}
	return NormInt(new(big.Int).Neg(toBig(n)))
}

// Binary applies an arithmetic operator, or ~, which joins strings.
func (r *Runtime) Binary(op string, a, b any) any {
	if op == "~" {
		x, y := r.Text(a), r.Text(b)
		r.Reserve(len(x) + len(y))
		return x + y
	}
	r.Use(a)
	if text, ok := a.(string); ok && op == "%" {
		return r.Percent(text, b)
	}
	r.Use(b)
	x, xNum := AsNumber(a)
	y, yNum := AsNumber(b)
	if xNum && yNum {
		if (y == int64(0) || y == 0.0) && (op == "/" || op == "//" || op == "%") {
			r.Failf("division by zero")
		}
		_, xFloat := x.(float64)
		_, yFloat := y.(float64)
		if xFloat || yFloat {
			return r.floats(op, r.Float(x), r.Float(y))
		}
		return r.ints(op, x, y)
	}
	var result any
	switch op {
	case "+":
		result = r.join(a, b)
	case "*":
		if n, ok := x.(int64); ok {
			result = r.repeat(b, n)
		} else if n, ok := y.(int64); ok {
			result = r.repeat(a, n)
		}
	}
	if result == nil {
		r.Failf("unsupported operand type(s) for %s: '%s' and '%s'", op, TypeName(a), TypeName(b))
	}
	return result
}

// join concatenates two sequences of the same type. It returns nil for other values.
func (r *Runtime) join(a, b any) any {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			r.Reserve(len(a) + len(b))
			return a + b
		}
	case *Sequence:
		if b, ok := b.(*Sequence); ok && a.Type == b.Type && !a.IsView() {
			r.Reserve(Times(len(a.Items)+len(b.Items), 16))
			return &Sequence{a.Type, slices.Concat(a.Items, b.Items)}
		}
	}
	return nil
}

// repeat repeats a sequence n times. It returns nil if v is not a sequence.
func (r *Runtime) repeat(v any, n int64) any {
	times := int(min(max(n, 0), 1<<40))
	switch v := v.(type) {
	case string:
		r.Reserve(Times(len(v), times))
		return strings.Repeat(v, times)
	case *Sequence:
		if v.IsView() {
			return nil
		}
		total := Times(len(v.Items), times)
		r.Reserve(Times(total, 16))
		r.Step(total)
		return &Sequence{v.Type, slices.Repeat(v.Items, times)}
	}
	return nil
}

func (r *Runtime) floats(op string, a, b float64) any {
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
		r.Failf("0.0 cannot be raised to a negative power")
	}
	v := math.Pow(a, b)
	switch {
	case math.IsInf(v, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0):
		r.Failf("(34, 'Numerical result out of range')")
	case math.IsNaN(v) && a < 0:
		r.Failf("complex numbers are not supported")
	}
	return v
}

// floatDivMod divides as Python does: the quotient is rounded down and the remainder has the sign of the divisor.
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

// maxBits is the largest size of an integer.
const maxBits = 1 << 17

// ints applies an operator to integers, each an int64 or a *big.Int.
func (r *Runtime) ints(op string, a, b any) any {
	p, q := toBig(a), toBig(b)
	r.Step((p.BitLen() + q.BitLen()) / 64)
	v := new(big.Int)
	switch op {
	case "+":
		v.Add(p, q)
	case "-":
		v.Sub(p, q)
	case "*":
		v.Mul(p, q)
	case "/":
		if p.Sign() == 0 {
			return math.Copysign(0, float64(q.Sign()))
		}
		f, _ := new(big.Rat).SetFrac(p, q).Float64()
		if math.IsInf(f, 0) {
			r.Failf("integer division result too large for a float")
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
			return r.floats(op, r.Float(a), r.Float(b))
		}
		switch {
		case p.BitLen() > 1:
			if !q.IsInt64() || Times(p.BitLen(), int(q.Int64())) > maxBits {
				r.failLimitf("an integer exceeds %d bits", maxBits)
			}
		case q.BitLen() > 1: // for 0, 1 and -1 only the parity of the exponent matters
			q = big.NewInt(int64(2 + q.Bit(0)))
		}
		v.Exp(p, q, nil)
	}
	if v.BitLen() > maxBits {
		r.failLimitf("an integer exceeds %d bits", maxBits)
	}
	return NormInt(v)
}
