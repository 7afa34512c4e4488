package jinja

import (
	"math"
	"strconv"
	"strings"
)

// layout is how one value is formatted, by the % operator or by str.format.
type layout struct {
	fill      string
	align     byte // one of < > ^ =, or 0 for the type's own
	sign      byte // + or a blank, or 0
	alternate bool
	zero      bool
	width     int
	comma     byte // , or _ between thousands, or 0
	precision int  // -1 if none
	verb      byte // 0 if none
}

// percent is Python's text % args.
func (r *run) percent(text string, args any) string {
	var b strings.Builder
	list, isTuple := args.(Tuple)
	if !isTuple {
		list = Tuple{args}
	}
	used := 0
	next := func() any {
		if used >= len(list) {
			r.failf("not enough arguments for format string")
		}
		used++
		return list[used-1]
	}
	mapping, _ := args.(*Dict)
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		value := next
		if i+1 < len(text) && text[i+1] == '(' {
			end := strings.IndexByte(text[i:], ')')
			if end < 0 || mapping == nil {
				r.failf("format requires a mapping")
			}
			key := text[i+2 : i+end]
			v, ok := mapping.get(key)
			if !ok {
				r.failf("KeyError: %s", quote(key))
			}
			value = func() any { return v }
			i += end
		}
		l, n := r.percentLayout(text[i+1:], value)
		i += n
		if l.verb == '%' {
			b.WriteByte('%')
			continue
		}
		r.step(1)
		b.WriteString(r.pad(l, r.percentValue(&l, value()), '>'))
		r.reserve(b.Len())
	}
	if used < len(list) && mapping == nil {
		r.failf("not all arguments converted during string formatting")
	}
	return r.made(b.String())
}

// percentLayout reads what stands behind a percent sign.
func (r *run) percentLayout(s string, arg func() any) (l layout, n int) {
	l = layout{fill: " ", precision: -1}
	for ; n < len(s) && strings.IndexByte("-+ #0", s[n]) >= 0; n++ {
		switch s[n] {
		case '-':
			l.align = '<'
		case '+':
			l.sign = '+'
		case ' ':
			if l.sign == 0 {
				l.sign = ' '
			}
		case '#':
			l.alternate = true
		case '0':
			l.zero = true
		}
	}
	number := func() int {
		if n < len(s) && s[n] == '*' {
			n++
			return r.int(arg())
		}
		begin := n
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		return r.digits(s[begin:n])
	}
	l.width = number()
	if l.width < 0 {
		l.width, l.align = -l.width, '<'
	}
	if n < len(s) && s[n] == '.' {
		n++
		l.precision = max(number(), 0)
	}
	if n == len(s) {
		r.failf("incomplete format")
	}
	l.verb = s[n]
	return l, n + 1
}

// digits reads a width or precision; none is 0.
func (r *run) digits(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > r.limits.Output {
		r.failAsf(Limit, "a width of %s", s)
	}
	return n
}

func (r *run) percentValue(l *layout, v any) string {
	switch l.verb {
	case 's', 'r', 'a':
		l.zero = false
		text := r.text(v)
		if l.verb != 's' {
			text = r.repr(v)
		}
		return cut(text, l.precision)
	case 'c':
		l.zero = false
		if s, ok := v.(string); ok && runeCount(s) == 1 {
			return s
		}
		return string(rune(r.int(v)))
	case 'd', 'i', 'u', 'x', 'X', 'o', 'e', 'E', 'f', 'F', 'g', 'G':
		r.use(v)
		n, ok := asNumber(v)
		_, float := n.(float64)
		if !ok || float && strings.IndexByte("xXo", l.verb) >= 0 {
			r.failf("%%%c format: a real number is required, not %s", l.verb, typeName(v))
		}
		if l.align == 0 && l.zero {
			l.fill, l.align = "0", '='
		}
		if strings.IndexByte("diu", l.verb) >= 0 {
			if float {
				n = floatInt(n.(float64), int64(0))
			}
			l.verb = 'd'
		}
		minDigits := 0
		if strings.IndexByte("dxXo", l.verb) >= 0 {
			minDigits, l.precision = l.precision, -1
		}
		text := r.number(l, n)
		if at := strings.IndexAny(text, "0123456789abcdefABCDEF"); at >= 0 && len(text)-at < minDigits {
			text = text[:at] + strings.Repeat("0", minDigits-len(text)+at) + text[at:]
		}
		return text
	}
	r.failf("unsupported format character '%c'", l.verb)
	return ""
}

// cut is the first n characters of s; all if n is negative.
func cut(s string, n int) string {
	if n < 0 || len(s) <= n {
		return s
	}
	for at := range s {
		if n == 0 {
			return s[:at]
		}
		n--
	}
	return s
}

// pad fills text to the layout's width.
func (r *run) pad(l layout, text string, def byte) string {
	if l.width == 0 {
		return text
	}
	r.read(text)
	n := l.width - runeCount(text)
	if n <= 0 {
		return text
	}
	r.reserve(len(text) + times(n, len(l.fill)))
	align := l.align
	if align == 0 {
		align = def
	}
	switch align {
	case '<':
		return text + strings.Repeat(l.fill, n)
	case '^':
		return strings.Repeat(l.fill, n/2) + text + strings.Repeat(l.fill, n-n/2)
	case '=':
		at := 0
		for at < len(text) && strings.IndexByte("+- ", text[at]) >= 0 {
			at++
		}
		if len(text) > at+1 && text[at] == '0' && strings.IndexByte("xXob", text[at+1]) >= 0 {
			at += 2
		}
		return text[:at] + strings.Repeat(l.fill, n) + text[at:]
	default:
		return strings.Repeat(l.fill, n) + text
	}
}

// number formats an int64, *big.Int or float64 without padding.
func (r *run) number(l *layout, n any) string {
	var text string
	f, float := n.(float64)
	switch verb := l.verb; verb {
	case 'd', 'x', 'X', 'o', 'b', 0, 'n':
		if float {
			if verb != 0 {
				r.failf("Unknown format code '%c' for object of type 'float'", verb)
			}
			return withSign(l, r.generalFloat(l, f))
		}
		if l.precision >= 0 {
			r.failf("Precision not allowed in integer format specifier")
		}
		base := map[byte]int{'d': 10, 0: 10, 'n': 10, 'x': 16, 'X': 16, 'o': 8, 'b': 2}[verb]
		text = toBig(n).Text(base)
		prefix := ""
		if l.alternate && base != 10 {
			prefix = "0" + string(verb)
		}
		if verb == 'X' {
			text = strings.ToUpper(text)
		}
		if t, negative := strings.CutPrefix(text, "-"); negative {
			text = "-" + prefix + group(t, l.comma)
		} else {
			text = prefix + group(text, l.comma)
		}
	default:
		text = r.floatVerb(l, r.toFloat(n))
	}
	return withSign(l, text)
}

func withSign(l *layout, text string) string {
	if l.sign != 0 && text[0] != '-' {
		return string(l.sign) + text
	}
	return text
}

// generalFloat is a float without a type: as str writes it, or to a number of digits.
func (r *run) generalFloat(l *layout, f float64) string {
	if l.precision < 0 {
		return group(floatText(f), l.comma)
	}
	g := *l
	g.verb = 'g'
	text := r.floatVerb(&g, f)
	if !strings.ContainsAny(text, ".eni") {
		text += ".0"
	}
	return text
}

func (r *run) floatVerb(l *layout, f float64) string {
	precision := l.precision
	if precision < 0 {
		precision = 6
	}
	if precision > 1000 {
		r.failAsf(Limit, "a precision of %d", precision)
	}
	upper := l.verb < 'a' && l.verb != '%'
	text := ""
	switch verb := l.verb | 0x20; {
	case math.IsNaN(f):
		text = "nan"
	case math.IsInf(f, 0):
		text = strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case l.verb == '%':
		return group(strconv.FormatFloat(f*100, 'f', precision, 64), l.comma) + "%"
	case verb == 'f' || verb == 'e':
		text = strconv.FormatFloat(f, verb, precision, 64)
	case verb == 'g':
		text = generalText(f, max(precision, 1), l.alternate)
	default:
		r.failf("Unknown format code '%c'", l.verb)
	}
	if upper {
		text = strings.ToUpper(text)
	}
	return group(text, l.comma)
}

// generalText is C's %g.
func generalText(f float64, digits int, keepZeros bool) string {
	e := strconv.FormatFloat(f, 'e', digits-1, 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	trim := func(s string) string {
		if keepZeros || strings.IndexByte(s, '.') < 0 {
			return s
		}
		return strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if exponent < -4 || exponent >= digits {
		return trim(e[:at]) + e[at:]
	}
	return trim(strconv.FormatFloat(f, 'f', digits-1-exponent, 64))
}

// group puts a mark between the thousands of the whole part.
func group(text string, mark byte) string {
	if mark == 0 {
		return text
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	whole, rest := text[:end], text[end:]
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + string(mark) + whole[i:]
	}
	return sign + whole + rest
}

// format is Python's text.format(args).
func (r *run) format(text string, a callArgs) string {
	var b strings.Builder
	auto := 0
	r.formatInto(&b, text, a, &auto, 2)
	return r.made(b.String())
}

func (r *run) formatInto(b *strings.Builder, text string, a callArgs, auto *int, depth int) {
	if depth < 0 {
		r.failf("Max string recursion exceeded")
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(text) && text[i+1] == c:
			b.WriteByte(c)
			i++
		case c == '}':
			r.failf("Single '}' encountered in format string")
		case c == '{':
			end := fieldEnd(text[i+1:])
			if end < 0 {
				r.failf("expected '}' before end of string")
			}
			r.step(1)
			b.WriteString(r.field(text[i+1:i+1+end], a, auto, depth))
			r.reserve(b.Len())
			i += 1 + end
		default:
			b.WriteByte(c)
		}
	}
}

// fieldEnd is the place of the brace that ends a field; -1 if there is none.
func fieldEnd(s string) int {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats one replacement field: name!conversion:spec.
func (r *run) field(s string, a callArgs, auto *int, depth int) string {
	name, spec := s, ""
	if at := strings.IndexAny(s, ":!"); at >= 0 {
		name = s[:at]
		spec = s[at:]
	}
	conversion := byte(0)
	if strings.HasPrefix(spec, "!") {
		if len(spec) < 2 || len(spec) > 2 && spec[2] != ':' {
			r.failf("expected ':' after conversion specifier")
		}
		conversion, spec = spec[1], spec[2:]
	}
	v := r.fieldValue(name, a, auto)
	var b strings.Builder
	r.formatInto(&b, strings.TrimPrefix(spec, ":"), a, auto, depth-1)
	switch conversion {
	case 0:
	case 's':
		v = r.text(v)
	case 'r', 'a':
		v = r.repr(v)
	default:
		r.failf("Unknown conversion specifier %c", conversion)
	}
	return r.formatValue(v, b.String())
}

// fieldValue is what a field's name stands for: an argument, then attributes and elements of it.
func (r *run) fieldValue(name string, a callArgs, auto *int) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	if first == "" {
		first = strconv.Itoa(*auto)
		*auto++
	}
	var v any
	if n, err := strconv.Atoi(first); err == nil {
		if n >= len(a.pos) {
			r.failf("Replacement index %d out of range for positional args tuple", n)
		}
		v = a.pos[n]
	} else {
		found := false
		for i, given := range a.names {
			if given == first {
				v, found = a.named[i], true
			}
		}
		if !found {
			r.failf("KeyError: %s", quote(first))
		}
	}
	for rest != "" {
		if rest[0] == '[' {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				r.failf("Missing ']' in format string")
			}
			var key any = rest[1:end]
			if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil {
				key = n
			}
			v = r.item(v, key)
			rest = rest[end+1:]
			continue
		}
		end := strings.IndexAny(rest[1:], ".[") + 1
		if end == 0 {
			end = len(rest)
		}
		v = r.attr(v, rest[1:end])
		rest = rest[end:]
	}
	return v
}

// formatValue is Python's format(v, spec).
func (r *run) formatValue(v any, spec string) string {
	if spec == "" {
		return r.text(v)
	}
	l := r.parseSpec(spec)
	if _, isBool := v.(bool); isBool && l.verb == 0 {
		v = r.text(v)
	}
	if n, ok := asNumber(v); ok {
		if l.zero && l.align == 0 {
			l.fill, l.align = "0", '='
		}
		return r.pad(l, r.number(&l, n), '>')
	}
	s, ok := v.(string)
	if !ok {
		r.failf("unsupported format string passed to %s.__format__", typeName(v))
	}
	if l.verb != 0 && l.verb != 's' || l.sign != 0 || l.align == '=' || l.comma != 0 {
		r.failf("Invalid format specifier '%s' for object of type 'str'", spec)
	}
	if l.zero && l.align == 0 {
		l.fill = "0"
	}
	return r.pad(l, cut(s, l.precision), '<')
}

func (r *run) parseSpec(s string) layout {
	l := layout{fill: " ", precision: -1}
	if len(s) > 0 {
		first := runeAt(s, 0)
		if len(s) > len(first) && strings.IndexByte("<>^=", s[len(first)]) >= 0 {
			l.fill, l.align, s = first, s[len(first)], s[len(first)+1:]
		} else if strings.IndexByte("<>^=", s[0]) >= 0 {
			l.align, s = s[0], s[1:]
		}
	}
	flag := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	if l.sign = flag("+- "); l.sign == '-' {
		l.sign = 0
	}
	l.alternate = flag("#") != 0
	l.zero = flag("0") != 0
	number := func() int {
		n := 0
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		v := r.digits(s[:n])
		s = s[n:]
		return v
	}
	l.width = number()
	l.comma = flag(",_")
	if flag(".") != 0 {
		l.precision = number()
	}
	l.verb = flag("bcdeEfFgGnosxX%")
	if s != "" {
		r.failf("Invalid format specifier")
	}
	return l
}
