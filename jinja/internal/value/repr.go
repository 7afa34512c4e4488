package value

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// Text is Python's str.
func (r *Runtime) Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *Undefined:
		return ""
	default:
		return r.Repr(v)
	}
}

// Repr is Python's repr.
func (r *Runtime) Repr(v any) string {
	var b strings.Builder
	r.appendRepr(&b, v)
	return r.Made(b.String())
}

func (r *Runtime) appendRepr(b *strings.Builder, v any) {
	r.Enter()
	defer r.Leave()
	r.Step(1)
	r.CheckOutput(b.Len())
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(r.IntText(v))
	case float64:
		b.WriteString(pytext.Float(v))
	case string:
		r.Reserve(len(v))
		b.WriteString(pytext.Quote(v))
	case *Undefined:
		b.WriteString("Undefined")
	case *Sequence:
		begin, end := "[", "]"
		switch {
		case v.Type == TypeTuple && len(v.Items) == 1:
			begin, end = "(", ",)"
		case v.Type == TypeTuple:
			begin, end = "(", ")"
		case v.IsView():
			begin, end = v.Type+"([", "])"
		}
		b.WriteString(begin)
		for i, item := range v.Items {
			if i > 0 {
				b.WriteString(", ")
			}
			r.appendRepr(b, item)
		}
		b.WriteString(end)
	case *Dict:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			r.appendRepr(b, k)
			b.WriteString(": ")
			r.appendRepr(b, v.values[i])
		}
		b.WriteByte('}')
	case Range:
		b.WriteString("range(" + strconv.FormatInt(v.start, 10) + ", " + strconv.FormatInt(v.stop, 10))
		if v.step != 1 {
			b.WriteString(", " + strconv.FormatInt(v.step, 10))
		}
		b.WriteByte(')')
	case Object:
		b.WriteString(v.Repr(r))
	}
}

// IntText formats an integer in decimal.
func (r *Runtime) IntText(v *big.Int) string {
	if v.BitLen() <= pytext.MaxDigits*4 {
		if s := v.String(); len(strings.TrimPrefix(s, "-")) <= pytext.MaxDigits {
			return s
		}
	}
	r.Failf("Exceeds the limit (%d digits) for integer string conversion", pytext.MaxDigits)
	return ""
}
