package value

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// Percent is Python's text % args.
func (r *Runtime) Percent(text string, args any) string {
	var b strings.Builder
	values := []any{args}
	if t, ok := args.(*Sequence); ok && t.Type == TypeTuple {
		values = t.Items
	}
	next := func() any {
		if len(values) == 0 {
			r.Failf("not enough arguments for format string")
		}
		v := values[0]
		values = values[1:]
		return v
	}
	mapping, _ := args.(*Dict)
	for {
		before, rest, ok := strings.Cut(text, "%")
		b.WriteString(before)
		if !ok {
			break
		}
		m := percentPattern.FindStringSubmatch(rest)
		if m == nil {
			r.Failf("incomplete format")
		}
		text = rest[len(m[0]):]
		value := next
		if m[1] != "" || m[5] == "(" {
			if mapping == nil || m[1] == "" {
				r.Failf("format requires a mapping")
			}
			key := m[1][1 : len(m[1])-1]
			v, ok := mapping.Get(key)
			if !ok {
				r.Failf("KeyError: %s", pytext.Quote(key))
			}
			value = func() any { return v }
		}
		spec := r.percentSpec(m, value)
		if spec.Verb == '%' {
			b.WriteByte('%')
			continue
		}
		r.Step(1)
		b.WriteString(r.percentValue(spec, value()))
		r.Reserve(b.Len())
	}
	if len(values) > 0 && mapping == nil {
		r.Failf("not all arguments converted during string formatting")
	}
	return r.Made(b.String())
}

// percentPattern matches what follows a percent sign: [(key)][flags][width][.precision]verb.
var percentPattern = regexp.MustCompile(`^(\([^)]*\))?([-+ #0]*)(\*|\d*)(\.(?:\*|\d*))?(?s:(.))`)

// percentSpec returns the specification in a match of percentPattern. arg is the value for a width or precision that is
// given as *.
func (r *Runtime) percentSpec(m []string, arg func() any) pytext.Spec {
	has := func(flag string) bool { return strings.Contains(m[2], flag) }
	number := func(s string) int {
		if s == "*" {
			return r.Int(arg())
		}
		return pytext.Number(s)
	}
	spec := pytext.Spec{Fill: " ", Precision: -1, Alternate: has("#"), Zero: has("0"), Width: number(m[3]), Verb: m[5][0]}
	switch {
	case has("+"):
		spec.Sign = '+'
	case has(" "):
		spec.Sign = ' '
	}
	if has("-") || spec.Width < 0 {
		spec.Width, spec.Align = max(spec.Width, -spec.Width), '<'
	}
	if m[4] != "" {
		spec.Precision = max(number(m[4][1:]), 0)
	}
	return spec
}

func (r *Runtime) percentValue(spec pytext.Spec, v any) string {
	switch spec.Verb {
	case 's':
		return r.pad(spec, pytext.Prefix(r.Text(v), spec.Precision), '>')
	case 'r', 'a':
		return r.pad(spec, pytext.Prefix(r.Repr(v), spec.Precision), '>')
	case 'c':
		text, ok := v.(string)
		if !ok || utf8.RuneCountInString(text) != 1 {
			text = string(rune(r.Int(v)))
		}
		return r.pad(spec, text, '>')
	}
	if strings.IndexByte("diuxXoeEfFgG", spec.Verb) < 0 {
		r.Failf("unsupported format character '%c'", spec.Verb)
	}
	r.Use(v)
	n, ok := AsNumber(v)
	f, float := n.(float64)
	if !ok || float && strings.IndexByte("xXo", spec.Verb) >= 0 {
		r.Failf("%%%c format: a real number is required, not %s", spec.Verb, TypeName(v))
	}
	if strings.IndexByte("diu", spec.Verb) >= 0 {
		spec.Verb = 'd'
		if float {
			if n, ok = FloatToInt(f); !ok {
				r.Failf("cannot convert float %s to integer", pytext.Float(f))
			}
		}
	}
	return r.number(spec, n)
}

// number formats a number and pads it.
func (r *Runtime) number(spec pytext.Spec, n any) string {
	if spec.Zero && spec.Align == 0 {
		spec.Fill, spec.Align = "0", '='
	}
	var text string
	var ok bool
	f, float := n.(float64)
	if float || spec.IsFloat() {
		if !float {
			f = r.Float(n)
		}
		if spec.Precision > 1000 {
			r.failLimitf("the precision %d is too large", spec.Precision)
		}
		text, ok = spec.Float(f)
	} else {
		r.Reserve(max(spec.Precision, 0))
		text, ok = spec.Int(toBig(n))
	}
	if !ok {
		r.Failf("Unknown format code '%c' for object of type '%s'", spec.Verb, TypeName(n))
	}
	return r.pad(spec, text, '>')
}

// pad pads a string to the width of its specification.
func (r *Runtime) pad(spec pytext.Spec, text string, align byte) string {
	if spec.Width == 0 {
		return text
	}
	return spec.Pad(text, r.padding(text, spec.Width, len(spec.Fill)), align)
}

// formatter carries out one call of Python's text.format.
type formatter struct {
	*Runtime

	args Args
	auto int // the index of the next field without a name
}

// format replaces the fields of a string. depth is how deeply fields may nest in specifications.
func (f *formatter) format(text string, depth int) string {
	if depth < 0 {
		f.Failf("Max string recursion exceeded")
	}
	var b strings.Builder
	for {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			return b.String() + text
		}
		b.WriteString(text[:at])
		brace, rest := text[at], text[at+1:]
		switch {
		case rest != "" && rest[0] == brace:
			b.WriteByte(brace)
			text = rest[1:]
		case brace == '}':
			f.Failf("Single '}' encountered in format string")
		default:
			end := fieldEnd(rest)
			if end < 0 {
				f.Failf("expected '}' before end of string")
			}
			f.Step(1)
			b.WriteString(f.field(rest[:end], depth))
			f.Reserve(b.Len())
			text = rest[end+1:]
		}
	}
}

// fieldEnd returns the position of the brace that ends a field, or -1.
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
func (f *formatter) field(s string, depth int) string {
	name, spec := s, ""
	if at := strings.IndexAny(s, ":!"); at >= 0 {
		name, spec = s[:at], s[at:]
	}
	conversion := byte(0)
	if strings.HasPrefix(spec, "!") {
		if len(spec) < 2 || len(spec) > 2 && spec[2] != ':' {
			f.Failf("expected ':' after conversion specifier")
		}
		conversion, spec = spec[1], spec[2:]
	}
	v := f.value(name)
	spec = f.format(strings.TrimPrefix(spec, ":"), depth-1)
	switch conversion {
	case 0:
	case 's':
		v = f.Text(v)
	case 'r', 'a':
		v = f.Repr(v)
	default:
		f.Failf("Unknown conversion specifier %c", conversion)
	}
	return f.formatValue(v, spec)
}

// value looks up the name of a field: an argument, followed by attributes and elements.
func (f *formatter) value(name string) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	if first == "" {
		first = strconv.Itoa(f.auto)
		f.auto++
	}
	var v any
	if n, err := strconv.Atoi(first); err == nil && n >= 0 {
		if n >= len(f.args.Positional) {
			f.Failf("Replacement index %d out of range for positional args tuple", n)
		}
		v = f.args.Positional[n]
	} else {
		var ok bool
		if v, ok = f.args.Named.Get(first); !ok {
			f.Failf("KeyError: %s", pytext.Quote(first))
		}
	}
	for rest != "" {
		m := stepPattern.FindStringSubmatch(rest)
		if m == nil {
			f.Failf("Missing ']' in format string")
		}
		rest = rest[len(m[0]):]
		if m[0][0] != '[' {
			v = f.Attr(v, m[1])
		} else if n, err := strconv.ParseInt(m[2], 10, 64); err == nil {
			v = f.Item(v, n)
		} else {
			v = f.Item(v, m[2])
		}
	}
	return v
}

// stepPattern matches an attribute or element in the name of a field.
var stepPattern = regexp.MustCompile(`^(?s:\.([^.\[]*)|\[([^\]]*)\])`)

// formatValue is Python's format(v, spec).
func (r *Runtime) formatValue(v any, s string) string {
	if s == "" {
		return r.Text(v)
	}
	spec, ok := pytext.ParseSpec(s)
	if !ok {
		r.Failf("Invalid format specifier")
	}
	if n, ok := AsNumber(v); ok {
		if _, float := n.(float64); !float && spec.Precision >= 0 && !spec.IsFloat() {
			r.Failf("Precision not allowed in integer format specifier")
		}
		return r.number(spec, n)
	}
	text, ok := v.(string)
	if !ok {
		r.Failf("unsupported format string passed to %s.__format__", TypeName(v))
	}
	if spec.Verb != 0 && spec.Verb != 's' || spec.Sign != 0 || spec.Align == '=' || spec.Comma != 0 {
		r.Failf("Invalid format specifier '%s' for object of type 'str'", s)
	}
	return r.pad(spec, pytext.Prefix(text, spec.Precision), '<')
}
