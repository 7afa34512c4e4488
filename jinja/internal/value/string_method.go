package value

import (
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl/jinja/internal/pytext"
)

// method is a method of a type. The sandbox refuses a method without a function.
type method[T any] struct {
	params []string
	fn     func(c Call, self T) any
}

// bind looks up a method and binds it to its object.
func bind[T any](table map[string]method[T], self T, name string) (v any, ok bool) {
	m, ok := table[name]
	if !ok {
		return nil, false
	}
	if m.fn == nil {
		return unsafe(self, name), true
	}
	return NewFunction(name, func(c Call) any { return m.fn(c, self) }, m.params...), true
}

func unsafe(obj any, name string) *Undefined {
	return &Undefined{"access to attribute " + pytext.Quote(name) + " of '" + TypeName(obj) + "' object is unsafe."}
}

// stringMethods are the methods of str except format, which looks up methods itself.
var stringMethods = newStringMethods()

func newStringMethods() map[string]method[string] {
	place := []string{"/sub", "/start?", "/end?"}
	t := map[string]method[string]{
		"strip":        {[]string{"/chars?"}, func(c Call, s string) any { return c.Strip(s, c.Arg(0), true, true) }},
		"lstrip":       {[]string{"/chars?"}, func(c Call, s string) any { return c.Strip(s, c.Arg(0), true, false) }},
		"rstrip":       {[]string{"/chars?"}, func(c Call, s string) any { return c.Strip(s, c.Arg(0), false, true) }},
		"split":        {[]string{"sep?", "maxsplit?"}, func(c Call, s string) any { return split(c, s, false) }},
		"rsplit":       {[]string{"sep?", "maxsplit?"}, func(c Call, s string) any { return split(c, s, true) }},
		"splitlines":   {[]string{"keepends?"}, splitLines},
		"partition":    {[]string{"/sep"}, func(c Call, s string) any { return partition(c, s, false) }},
		"rpartition":   {[]string{"/sep"}, func(c Call, s string) any { return partition(c, s, true) }},
		"startswith":   {place, func(c Call, s string) any { return affix(c, s, strings.HasPrefix) }},
		"endswith":     {place, func(c Call, s string) any { return affix(c, s, strings.HasSuffix) }},
		"find":         {place, func(c Call, s string) any { return find(c, s, strings.Index) }},
		"rfind":        {place, func(c Call, s string) any { return find(c, s, strings.LastIndex) }},
		"index":        {place, func(c Call, s string) any { return found(c, find(c, s, strings.Index)) }},
		"rindex":       {place, func(c Call, s string) any { return found(c, find(c, s, strings.LastIndex)) }},
		"count":        {place, count},
		"join":         {[]string{"/iterable"}, func(c Call, s string) any { return c.Join(s, c.Iterate(c.Arg(0))) }},
		"center":       {[]string{"/width", "/fillchar?"}, func(c Call, s string) any { return justify(c, "center", s) }},
		"ljust":        {[]string{"/width", "/fillchar?"}, func(c Call, s string) any { return justify(c, "ljust", s) }},
		"rjust":        {[]string{"/width", "/fillchar?"}, func(c Call, s string) any { return justify(c, "rjust", s) }},
		"zfill":        {[]string{"/width"}, zfill},
		"expandtabs":   {[]string{"tabsize?"}, expandTabs},
		"removeprefix": {[]string{"/prefix"}, func(c Call, s string) any { return strings.TrimPrefix(s, c.ArgStr(0, "")) }},
		"removesuffix": {[]string{"/suffix"}, func(c Call, s string) any { return strings.TrimSuffix(s, c.ArgStr(0, "")) }},
		"replace": {[]string{"/old", "/new", "/count?"}, func(c Call, s string) any {
			return c.Replace(s, c.ArgStr(0, ""), c.ArgStr(1, ""), c.ArgInt(2, -1))
		}},
		"isidentifier": {nil, func(c Call, s string) any { c.Read(s); return s != "" && pytext.IdentifierLen(s) == len(s) }},
	}
	for _, name := range []string{"upper", "lower", "title", "capitalize", "swapcase", "casefold"} {
		t[name] = method[string]{nil, func(c Call, s string) any { return c.ChangeCase(name, s) }}
	}
	for _, name := range []string{"islower", "isupper", "istitle"} {
		t[name] = method[string]{nil, func(c Call, s string) any { return c.IsCase(name, s) }}
	}
	for name := range pytext.Predicates {
		t[name] = method[string]{nil, func(c Call, s string) any { c.Read(s); return pytext.IsAll(name, s) }}
	}
	return t
}

// ChangeCase applies a method that changes case, such as upper.
func (r *Runtime) ChangeCase(method, s string) string {
	r.Reserve(len(s))
	return pytext.ChangeCase(method, s)
}

// IsCase applies islower, isupper or istitle.
func (r *Runtime) IsCase(method, s string) bool {
	r.Read(s)
	return pytext.IsCase(method, s)
}

// Strip removes characters at the ends: those of the string chars, or white space if chars is nil.
func (r *Runtime) Strip(s string, chars any, left, right bool) string {
	r.Read(s)
	cut := pytext.IsSpace
	if chars != nil {
		set := r.Str(chars)
		r.Step(Times(len(s)/64, len(set)))
		cut = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

func split(c Call, s string, fromRight bool) any {
	limit := c.ArgInt(1, -1)
	c.Step(1 + len(s)/16)
	if c.Arg(0) == nil {
		return c.texts(pytext.SplitSpace(s, limit, fromRight))
	}
	sep := separator(c)
	switch {
	case limit < 0:
		return c.texts(strings.Split(s, sep))
	case fromRight:
		return c.texts(pytext.SplitRight(s, sep, limit))
	default:
		return c.texts(strings.SplitN(s, sep, limit+1))
	}
}

// separator returns the first argument, which must not be empty.
func separator(c Call) string {
	sep := c.ArgStr(0, "")
	if sep == "" {
		c.Failf("empty separator")
	}
	return sep
}

func splitLines(c Call, s string) any {
	c.Step(len(s) / 16)
	return c.texts(pytext.SplitLines(s, c.Flag(0)))
}

func partition(c Call, s string, fromRight bool) any {
	sep := separator(c)
	c.Step(1 + len(s)/64)
	i := strings.Index(s, sep)
	if fromRight {
		i = strings.LastIndex(s, sep)
	}
	switch {
	case i >= 0:
		return Tuple(s[:i], sep, s[i+len(sep):])
	case fromRight:
		return Tuple("", "", s)
	default:
		return Tuple(s, "", "")
	}
}

// window returns the part of s between the optional positions in arguments 1 and 2, and the number of characters before
// it. ok is false if the part would begin after the end of s.
func window(c Call, s string) (part string, skipped int, ok bool) {
	start, stop := c.Arg(1), c.Arg(2)
	if start == nil && stop == nil {
		return s, 0, true
	}
	c.Reserve(len(s))
	chars := []rune(s)
	begin, end := c.bounds(len(chars), start, stop)
	if c.bound(start, 0) > int64(len(chars)) || begin > end {
		return "", 0, false
	}
	return string(chars[begin:end]), begin, true
}

// affix reports whether s has the argument, or one of a tuple, as a prefix or suffix.
func affix(c Call, s string, has func(s, affix string) bool) any {
	s, _, ok := window(c, s)
	affixes := []any{c.Arg(0)}
	if t, isSequence := c.Arg(0).(*Sequence); isSequence && t.Type == TypeTuple {
		affixes = t.Items
	}
	for _, v := range affixes {
		text := c.Str(v)
		c.Step(1)
		c.Read(text)
		if ok && has(s, text) {
			return true
		}
	}
	return false
}

// find returns the position of the argument in s, or -1.
func find(c Call, s string, index func(s, sub string) int) any {
	sub := c.ArgStr(0, "")
	c.Step(1 + len(s)/64)
	s, skipped, ok := window(c, s)
	at := -1
	if ok {
		at = index(s, sub)
	}
	if at < 0 {
		return int64(-1)
	}
	return int64(skipped + utf8.RuneCountInString(s[:at]))
}

// found fails if the position is -1.
func found(c Call, at any) any {
	if at == int64(-1) {
		c.Failf("substring not found")
	}
	return at
}

func count(c Call, s string) any {
	sub := c.ArgStr(0, "")
	c.Step(1 + len(s)/64)
	s, _, ok := window(c, s)
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(s, sub))
}

// Replace replaces the first n occurrences, or all if n is negative.
func (r *Runtime) Replace(s, old, to string, n int) string {
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	r.Step(1 + len(s)/64)
	r.Reserve(len(s) + Times(count, len(to)))
	return strings.Replace(s, old, to, n)
}

// Join joins strings. It fails if an element is not a string.
func (r *Runtime) Join(sep string, parts []any) string {
	texts := make([]string, len(parts))
	total := Times(len(parts), len(sep))
	for i, p := range parts {
		s, ok := p.(string)
		if !ok {
			r.Failf("sequence item %d: expected str instance, %s found", i, TypeName(p))
		}
		texts[i] = s
		total += len(s)
	}
	r.Step(len(parts))
	r.Reserve(total)
	return strings.Join(texts, sep)
}

// justify applies center, ljust or rjust.
func justify(c Call, method, s string) any {
	return c.Justify(method, s, c.ArgInt(0, 0), c.ArgStr(1, " "))
}

// Justify applies center, ljust or rjust.
func (r *Runtime) Justify(method, s string, width int, fill string) string {
	if utf8.RuneCountInString(fill) != 1 {
		r.Failf("the fill character must be exactly one character long")
	}
	n := r.padding(s, width, len(fill))
	left := 0
	switch method {
	case "rjust":
		left = n
	case "center":
		left = n/2 + n&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left)
}

// padding returns how many fill characters a string needs to reach a width. It reserves them; size is their size in bytes.
func (r *Runtime) padding(s string, width, size int) int {
	r.Read(s)
	n := max(width-utf8.RuneCountInString(s), 0)
	if n > 0 {
		r.Reserve(len(s) + Times(n, size))
	}
	return n
}

func zfill(c Call, s string) any {
	zeros := strings.Repeat("0", c.padding(s, c.ArgInt(0, 0), 1))
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return s[:1] + zeros + s[1:]
	}
	return zeros + s
}

func expandTabs(c Call, s string) any {
	size := c.ArgInt(0, 8)
	c.Step(1 + len(s)/16)
	var b strings.Builder
	column := 0
	for _, char := range s {
		switch char {
		case '\t':
			if size > 0 {
				n := size - column%size
				c.Reserve(b.Len() + n)
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		b.WriteRune(char)
	}
	return c.Made(b.String())
}
