package pytext

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"regexp"
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

var jsonNumbers = strings.NewReplacer("nan", "NaN", "inf", "Infinity")

// FloatJSON formats a float as json.dumps does.
func FloatJSON(f float64) string { return jsonNumbers.Replace(Float(f)) }

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

var specPattern = regexp.MustCompile(`^(?s:(.)?([<>^=]))?([-+ ]?)(#?)(0?)(\d*)([,_]?)(\.\d*)?([bcdeEfFgGnosxX%]?)$`)

// ParseSpec parses the specification of a replacement field: [[fill]align][sign][#][0][width][,][.precision][verb].
func ParseSpec(s string) (spec Spec, ok bool) {
	m := specPattern.FindStringSubmatch(s)
	if m == nil {
		return spec, false
	}
	first := func(s string) byte { return (s + "\x00")[0] }
	spec = Spec{
		Fill: m[1], Align: first(m[2]), Sign: first(strings.TrimPrefix(m[3], "-")), Alternate: m[4] != "", Zero: m[5] != "",
		Width: Number(m[6]), Comma: first(m[7]), Precision: -1, Verb: first(m[9]),
	}
	spec.Fill = cmp.Or(spec.Fill, m[5], " ")
	if m[8] != "" {
		spec.Precision = Number(m[8][1:])
	}
	return spec, true
}

// Number returns the value of decimal digits: 0 if there are none, at most MaxInt.
func Number(digits string) int {
	v, _ := strconv.Atoi(digits)
	return v
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
	verb, groups, prefix := string(rune(s.Verb)), 4, ""
	switch s.Verb {
	case 0, 'd', 'n':
		verb, groups = "d", 3
	case 'x', 'X', 'o', 'b':
		if s.Alternate {
			prefix = "0" + verb
		}
	default:
		return "", false
	}
	digits := fmt.Sprintf("%.*"+verb, max(s.Precision, 1), new(big.Int).Abs(n))
	return s.sign(n.Sign() < 0) + prefix + s.group(digits, len(digits), groups), true
}

// Float formats a float without padding. ok is false if the verb does not apply to floats.
func (s Spec) Float(f float64) (text string, ok bool) {
	precision, verb, flag, unit := s.Precision, s.Verb, "", ""
	if precision < 0 {
		precision = 6
	}
	if s.Alternate {
		flag = "#"
	}
	abs := math.Abs(f)
	switch verb {
	case 0, 'n':
		verb = 'g'
	case '%':
		abs, verb, unit = abs*100, 'f', "%"
	case 'e', 'E', 'f', 'F', 'g', 'G':
	default:
		return "", false
	}
	text = strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%"+flag+".*"+string(rune(verb)), precision, abs), "+")) + unit
	switch {
	case s.Verb == 0 && s.Precision < 0:
		text = Float(abs)
	case s.Verb == 0 && strings.Trim(text, "0123456789") == "":
		text += ".0"
	case verb <= 'Z':
		text = strings.ToUpper(text)
	}
	whole := len(text) - len(strings.TrimLeft(text, "0123456789"))
	return s.sign(math.Signbit(f) && !math.IsNaN(f)) + s.group(text, whole, 3), true
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
