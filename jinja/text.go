package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// runeLen is how many bytes the character c at the start of s takes; a byte that is not UTF-8 counts as one.
func runeLen(s string, c rune) int {
	if c != utf8.RuneError {
		return utf8.RuneLen(c)
	}
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// maxDigits bounds integers that are read or printed, as Python does by default.
const maxDigits = 4300

// text is Python's str.
func (r *run) text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *undefined:
		return ""
	default:
		return r.repr(v)
	}
}

// repr is Python's repr.
func (r *run) repr(v any) string {
	if s, ok := v.(string); ok {
		r.reserve(len(s))
		q := quote(s)
		r.reserve(len(q))
		return q
	}
	var b strings.Builder
	r.appendRepr(&b, v)
	r.reserve(b.Len())
	return b.String()
}

func (r *run) appendRepr(b *strings.Builder, v any) {
	defer r.enter()()
	r.step(1)
	if b.Len() > r.limits.Output {
		r.reserve(b.Len())
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(r.bigText(v))
	case float64:
		b.WriteString(floatText(v))
	case string:
		r.reserve(len(v))
		b.WriteString(quote(v))
	case *undefined:
		b.WriteString("Undefined")
	case *list:
		r.reprAll(b, "[", v.items, "]")
	case Tuple:
		if len(v) == 1 {
			r.reprAll(b, "(", v, ",)")
		} else {
			r.reprAll(b, "(", v, ")")
		}
	case *view:
		r.reprAll(b, v.name+"([", v.items, "])")
	case *Dict:
		r.reprDict(b, v)
	case *namespace:
		b.WriteString("<Namespace ")
		r.reprDict(b, &v.attrs)
		b.WriteByte('>')
	case span:
		b.WriteString("range(" + strconv.FormatInt(v.start, 10) + ", " + strconv.FormatInt(v.stop, 10))
		if v.step != 1 {
			b.WriteString(", " + strconv.FormatInt(v.step, 10))
		}
		b.WriteByte(')')
	case *macro:
		b.WriteString("<Macro " + quote(v.node.name) + ">")
	case *loop:
		b.WriteString("<LoopContext " + strconv.Itoa(v.at+1) + "/" + strconv.Itoa(len(v.items)) + ">")
	case *generator:
		b.WriteString("<generator object " + v.name + ">")
	case *callable:
		b.WriteString("<function " + v.name + ">")
	}
}

func (r *run) reprAll(b *strings.Builder, open string, items []any, end string) {
	b.WriteString(open)
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		r.appendRepr(b, item)
	}
	b.WriteString(end)
}

func (r *run) reprDict(b *strings.Builder, d *Dict) {
	b.WriteByte('{')
	for i, k := range d.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		r.appendRepr(b, k)
		b.WriteString(": ")
		r.appendRepr(b, d.values[i])
	}
	b.WriteByte('}')
}

func (r *run) bigText(v *big.Int) string {
	if v.BitLen() > maxDigits*4 {
		r.failf("Exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	s := v.String()
	if len(strings.TrimPrefix(s, "-")) > maxDigits {
		r.failf("Exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	return s
}

// floatText is Python's repr of a float: the shortest digits that read back as the same number, with an
// exponent below 1e-4 and from 1e16 on.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// quote is Python's repr of a string.
func quote(s string) string {
	q := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		q = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = append(b, q)
	for _, c := range s {
		switch {
		case c == rune(q) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(c):
			b = utf8.AppendRune(b, c)
		case c < 0x100:
			b = append(append(b, `\x`...), hexDigits(c, 2)...)
		case c < 0x10000:
			b = append(append(b, `\u`...), hexDigits(c, 4)...)
		default:
			b = append(append(b, `\U`...), hexDigits(c, 8)...)
		}
	}
	return string(append(b, q))
}

func hexDigits(c rune, n int) string {
	s := strconv.FormatInt(int64(c), 16)
	return strings.Repeat("0", n-len(s)) + s
}

// isSpace is Python's str.isspace for one character.
func isSpace(c rune) bool { return c >= 0x1c && c <= 0x1f || unicode.IsSpace(c) }
