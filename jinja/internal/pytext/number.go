package pytext

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// MaxDigits is the longest integer that is read or printed, as in Python by default.
const MaxDigits = 4300

// trimNumber removes white space around a number and single underscores inside it.
func trimNumber(s string) (string, bool) {
	s = strings.ToLower(strings.TrimFunc(s, IsSpace))
	ok := !strings.HasPrefix(s, "_") && !strings.HasSuffix(s, "_") && !strings.Contains(s, "__")
	return strings.ReplaceAll(s, "_", ""), ok
}

// ParseInt parses as int(s, base) does.
func ParseInt(s string, base int) (*big.Int, bool) {
	s, ok := trimNumber(s)
	if !ok || len(s) > MaxDigits || base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	digits := strings.TrimLeft(s, "+-")
	sign := s[:len(s)-len(digits)]
	return new(big.Int).SetString(sign+strings.TrimPrefix(digits, map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]), base)
}

// ParseFloat parses as float(s) does.
func ParseFloat(s string) (float64, bool) {
	s, ok := trimNumber(s)
	if !ok || strings.ContainsAny(s, "xp") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// Float returns the repr of a float: the shortest digits that parse to the same number, with an exponent if it is below
// 1e-4 or at least 1e16.
func Float(f float64) string {
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	s := strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, format, -1, 64), "+"))
	if strings.Trim(s, "-0123456789") == "" {
		s += ".0"
	}
	return s
}

// FloatJSON formats a float as json.dumps does.
func FloatJSON(f float64) string {
	switch s := Float(f); s {
	case "nan":
		return "NaN"
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	default:
		return s
	}
}

// Spec says how one value is formatted, by the % operator or by str.format.
type Spec struct {
	Fill      string // one character
	Align     byte   // one of < > ^ =, or 0 for the type's own
	Sign      byte   // + or a blank, or 0
	Alternate bool
	Zero      bool
	Width     int
	Comma     byte // , or _ between thousands, or 0
	Precision int  // -1 if none
	Verb      byte // 0 if none
}

// Flag removes and returns the first byte of s if it is in set. Otherwise it returns 0.
func Flag(s *string, set string) byte {
	if *s == "" || strings.IndexByte(set, (*s)[0]) < 0 {
		return 0
	}
	c := (*s)[0]
	*s = (*s)[1:]
	return c
}

// Digits removes the digits at the start of s and returns their value: 0 if there are none, at most MaxInt.
func Digits(s *string) int {
	n := 0
	for n < len(*s) && IsDigit((*s)[n]) {
		n++
	}
	v, _ := strconv.Atoi((*s)[:n])
	*s = (*s)[n:]
	return v
}

// ParseSpec parses the specification of a replacement field: [[fill]align][sign][#][0][width][,][.precision][verb].
func ParseSpec(s string) (spec Spec, ok bool) {
	spec = Spec{Fill: " ", Precision: -1}
	if fill := CharAt(s, 0); len(s) > len(fill) && strings.IndexByte("<>^=", s[len(fill)]) >= 0 {
		spec.Fill, s = fill, s[len(fill):]
	}
	spec.Align = Flag(&s, "<>^=")
	if spec.Sign = Flag(&s, "+- "); spec.Sign == '-' {
		spec.Sign = 0
	}
	spec.Alternate = Flag(&s, "#") != 0
	spec.Zero = Flag(&s, "0") != 0
	spec.Width = Digits(&s)
	spec.Comma = Flag(&s, ",_")
	if Flag(&s, ".") != 0 {
		spec.Precision = Digits(&s)
	}
	spec.Verb = Flag(&s, "bcdeEfFgGnosxX%")
	return spec, s == ""
}

// Pad adds n fill characters. align applies if the specification has none.
func (s Spec) Pad(text string, n int, align byte) string {
	if s.Align != 0 {
		align = s.Align
	}
	left := n
	at := 0
	switch align {
	case '<':
		left = 0
	case '^':
		left = n / 2
	case '=': // after the sign and the prefix
		for at < len(text) && strings.IndexByte("+- ", text[at]) >= 0 {
			at++
		}
		if len(text) > at+1 && text[at] == '0' && strings.IndexByte("xXob", text[at+1]) >= 0 {
			at += 2
		}
	}
	return text[:at] + strings.Repeat(s.Fill, left) + text[at:] + strings.Repeat(s.Fill, n-left)
}

// IsFloat reports whether the verb formats integers as floats, too.
func (s Spec) IsFloat() bool { return strings.IndexByte("eEfFgG%", s.Verb) >= 0 }

// Int formats an integer without padding. The precision is the minimum number of digits. ok is false if the verb does
// not apply to integers.
func (s Spec) Int(n *big.Int) (text string, ok bool) {
	base, groups, prefix := 10, 3, ""
	switch s.Verb {
	case 0, 'd', 'n':
	case 'x', 'X':
		base = 16
	case 'o':
		base = 8
	case 'b':
		base = 2
	default:
		return "", false
	}
	if base != 10 {
		groups = 4
		if s.Alternate {
			prefix = "0" + string(rune(s.Verb))
		}
	}
	digits := new(big.Int).Abs(n).Text(base)
	if s.Verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	digits = strings.Repeat("0", max(s.Precision-len(digits), 0)) + digits
	return s.sign(n.Sign() < 0) + prefix + s.group(digits, len(digits), groups), true
}

// Float formats a float without padding. ok is false if the verb does not apply to floats.
func (s Spec) Float(f float64) (text string, ok bool) {
	abs, precision := math.Abs(f), s.Precision
	if precision < 0 {
		precision = 6
	}
	switch s.Verb {
	case 0:
		if s.Precision < 0 {
			text = Float(abs)
		} else if text = generalFloat(abs, max(precision, 1), s.Alternate); strings.Trim(text, "0123456789") == "" {
			text += ".0"
		}
	case 'e', 'E', 'f', 'F':
		text = strconv.FormatFloat(abs, s.Verb|0x20, precision, 64)
	case '%':
		text = strconv.FormatFloat(abs*100, 'f', precision, 64) + "%"
	case 'g', 'G', 'n':
		text = generalFloat(abs, max(precision, 1), s.Alternate)
	default:
		return "", false
	}
	text = strings.ToLower(strings.TrimPrefix(text, "+")) // of +Inf and NaN
	if s.Verb >= 'A' && s.Verb <= 'Z' {
		text = strings.ToUpper(text)
	}
	whole := 0
	for whole < len(text) && IsDigit(text[whole]) {
		whole++
	}
	return s.sign(math.Signbit(f) && !math.IsNaN(f)) + s.group(text, whole, 3), true
}

// generalFloat formats a positive number as C's %g.
func generalFloat(f float64, digits int, keepZeros bool) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', digits-1, 64), "e")
	n, _ := strconv.Atoi(exponent)
	exponential := n < -4 || n >= digits
	text := mantissa
	if !exponential {
		text = strconv.FormatFloat(f, 'f', digits-1-n, 64)
	}
	if !keepZeros && strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if exponential {
		text += "e" + exponent
	}
	return text
}

func (s Spec) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case s.Sign != 0:
		return string(rune(s.Sign))
	default:
		return ""
	}
}

// group separates the first digits of text, up to end, into groups.
func (s Spec) group(text string, end, size int) string {
	if s.Comma == 0 {
		return text
	}
	for i := end - size; i > 0; i -= size {
		text = text[:i] + string(rune(s.Comma)) + text[i:]
	}
	return text
}
