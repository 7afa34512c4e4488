package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is an argument that must be a text.
func (r *run) str(v any) string {
	r.use(v)
	s, ok := v.(string)
	if !ok {
		r.failf("a string is required, not '%s'", typeName(v))
	}
	return s
}

// int is an argument that must be an integer that a machine word holds.
func (r *run) int(v any) int {
	r.use(v)
	n, _ := asNumber(v)
	i, ok := n.(int64)
	if !ok {
		r.failf("'%s' object cannot be interpreted as an integer", typeName(v))
	}
	return int(i)
}

// made charges for a text that a method made, and for reading the text that it was made from.
func (r *run) made(s string) string {
	r.reserve(len(s))
	return s
}

// stringMethod is a method of str.
func stringMethod(s, name string) (any, bool) {
	var params []string
	var fn func(r *run, a bound) any
	switch name {
	case "upper", "lower", "title", "capitalize", "swapcase", "casefold":
		fn = func(r *run, _ bound) any {
			r.reserve(len(s))
			return changeCase(name, s)
		}
	case "strip", "lstrip", "rstrip":
		params = []string{"/chars?"}
		fn = func(r *run, a bound) any { return r.strip(s, a.or(0, nil), name != "rstrip", name != "lstrip") }
	case "split", "rsplit":
		params = []string{"sep?", "maxsplit?"}
		fn = func(r *run, a bound) any {
			return r.split(s, a.or(0, nil), r.int(a.or(1, int64(-1))), name == "rsplit")
		}
	case "splitlines":
		params = []string{"keepends?"}
		fn = func(r *run, a bound) any {
			r.step(len(s) / 16)
			return r.texts(splitLines(s, r.truth(a.or(0, false))))
		}
	case "startswith", "endswith":
		params = []string{"/prefix", "/start?", "/end?"}
		fn = func(r *run, a bound) any { return r.affix(s, a, name == "startswith") }
	case "find", "rfind", "index", "rindex", "count":
		params = []string{"/sub", "/start?", "/end?"}
		fn = func(r *run, a bound) any { return r.search(name, s, a) }
	case "replace":
		params = []string{"/old", "/new", "/count?"}
		fn = func(r *run, a bound) any {
			return r.replace(s, r.str(a.values[0]), r.str(a.values[1]), r.int(a.or(2, int64(-1))))
		}
	case "join":
		params = []string{"/iterable"}
		fn = func(r *run, a bound) any { return r.joinStrict(s, a.values[0]) }
	case "center", "ljust", "rjust":
		params = []string{"/width", "/fillchar?"}
		fn = func(r *run, a bound) any {
			return r.justify(name, s, r.int(a.values[0]), r.str(a.or(1, " ")))
		}
	case "removeprefix":
		params = []string{"/prefix"}
		fn = func(r *run, a bound) any { return strings.TrimPrefix(s, r.str(a.values[0])) }
	case "removesuffix":
		params = []string{"/suffix"}
		fn = func(r *run, a bound) any { return strings.TrimSuffix(s, r.str(a.values[0])) }
	default:
		return otherStringMethod(s, name)
	}
	return method(name, params, fn), true
}

// otherStringMethod is one of the methods that templates use less.
func otherStringMethod(s, name string) (any, bool) {
	switch name {
	case "zfill":
		return method(name, []string{"/width"}, func(r *run, a bound) any { return r.zfill(s, r.int(a.values[0])) }), true
	case "partition", "rpartition":
		return method(name, []string{"/sep"}, func(r *run, a bound) any {
			return r.partition(s, r.str(a.values[0]), name == "rpartition")
		}), true
	case "format":
		return method(name, []string{"**"}, func(r *run, a bound) any { return r.format(s, a.extra) }), true
	case "expandtabs":
		return method(name, []string{"tabsize?"}, func(r *run, a bound) any {
			return r.expandTabs(s, r.int(a.or(0, int64(8))))
		}), true
	}
	return stringPredicate(s, name)
}

// stringPredicate is one of the methods of str that say what its characters are.
func stringPredicate(s, name string) (any, bool) {
	var ok func(c rune) bool
	empty := false
	switch name {
	case "isspace":
		ok = isSpace
	case "isalpha":
		ok = unicode.IsLetter
	case "isdigit", "isdecimal", "isnumeric":
		ok = func(c rune) bool { return isNumeric(name, c) }
	case "isalnum":
		ok = func(c rune) bool { return unicode.IsLetter(c) || isNumeric("isnumeric", c) }
	case "isascii":
		ok, empty = func(c rune) bool { return c < utf8.RuneSelf }, true
	case "isprintable":
		ok, empty = unicode.IsPrint, true
	case "isidentifier":
		return method(name, nil, func(r *run, _ bound) any {
			r.read(s)
			return s != "" && nameLength(s) == len(s)
		}), true
	case "islower", "isupper", "istitle":
		return method(name, nil, func(r *run, _ bound) any {
			r.read(s)
			return casePredicate(name, s)
		}), true
	default:
		return nil, false
	}
	return method(name, nil, func(r *run, _ bound) any {
		r.read(s)
		return (s != "" || empty) && strings.IndexFunc(s, func(c rune) bool { return !ok(c) }) < 0
	}), true
}

// isNumeric tells the three kinds of digits apart: decimal ones, those with a digit value, those with any.
func isNumeric(name string, c rune) bool {
	if unicode.Is(unicode.Nd, c) || name == "isdecimal" {
		return unicode.Is(unicode.Nd, c)
	}
	if name == "isdigit" {
		return c == '²' || c == '³' || c == '¹' || c >= '⁰' && c <= '⁹' && c != '\u2071' || c >= '₀' && c <= '₉' || c >= '①' && c <= '⑨'
	}
	return unicode.IsNumber(c)
}

// casePredicate is islower, isupper or istitle.
func casePredicate(name, s string) bool {
	found, inWord := false, false
	for _, c := range s {
		upper := unicode.IsUpper(c) || unicode.IsTitle(c)
		lower := unicode.IsLower(c)
		switch {
		case name == "islower" && upper, name == "isupper" && (lower || unicode.IsTitle(c)):
			return false
		case name == "istitle" && (upper && inWord || lower && !inWord):
			return false
		}
		inWord = upper || lower
		found = found || inWord
	}
	return found
}

func (r *run) strip(s string, chars any, left, right bool) string {
	r.read(s)
	cut := isSpace
	if chars != nil {
		set := r.str(chars)
		r.step(times(len(s)/64, len(set)))
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

// texts makes a list of texts.
func (r *run) texts(parts []string) *list {
	r.step(len(parts))
	r.reserve(times(len(parts), 16))
	items := make([]any, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return &list{items}
}

func (r *run) split(s string, sep any, limit int, fromRight bool) *list {
	r.step(1 + len(s)/16)
	if sep == nil {
		return r.texts(splitSpace(s, limit, fromRight))
	}
	by := r.str(sep)
	if by == "" {
		r.failf("empty separator")
	}
	if limit < 0 {
		return r.texts(strings.Split(s, by))
	}
	if !fromRight {
		return r.texts(strings.SplitN(s, by, limit+1))
	}
	var parts []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, by)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(by):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return r.texts(parts)
}

// splitSpace splits at runs of white space, at most limit times if that is not negative.
func splitSpace(s string, limit int, fromRight bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	if fromRight {
		s = strings.TrimRightFunc(s, isSpace)
	} else {
		s = strings.TrimLeftFunc(s, isSpace)
	}
	for ; limit > 0 && s != ""; limit-- {
		if fromRight {
			i := strings.LastIndexFunc(s, isSpace)
			if i < 0 {
				break
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+n:])
			s = strings.TrimRightFunc(s[:i], isSpace)
			continue
		}
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			break
		}
		parts = append(parts, s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	if s != "" {
		parts = append(parts, s)
	}
	if fromRight {
		slices.Reverse(parts)
	}
	return parts
}

// splitLines splits at every end of line that Python knows.
func splitLines(s string, keep bool) []string {
	var lines []string
	begin := 0
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		if !strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", c) || c == utf8.RuneError {
			i += n
			continue
		}
		if c == '\r' && strings.HasPrefix(s[i+1:], "\n") {
			n = 2
		}
		end := i
		if keep {
			end += n
		}
		lines = append(lines, s[begin:end])
		i += n
		begin = i
	}
	if begin < len(s) {
		lines = append(lines, s[begin:])
	}
	return lines
}

// window is the part of s between two optional places, counted in characters; ok is false where the first
// lies behind the end of s.
func (r *run) window(s string, start, stop any) (part string, skipped int, ok bool) {
	if start == nil && stop == nil {
		return s, 0, true
	}
	chars := []rune(s)
	r.reserve(len(s))
	begin, end := r.bounds(len(chars), start, stop)
	if i := r.sliceBound(start, 0); i > int64(len(chars)) || begin > end {
		return "", 0, false
	}
	return string(chars[begin:end]), begin, true
}

func (r *run) affix(s string, a bound, prefix bool) bool {
	s, _, ok := r.window(s, a.or(1, nil), a.or(2, nil))
	list, isTuple := a.values[0].(Tuple)
	if !isTuple {
		list = Tuple{a.values[0]}
	}
	for _, v := range list {
		text := r.str(v)
		r.step(1)
		r.read(text)
		if ok && (prefix && strings.HasPrefix(s, text) || !prefix && strings.HasSuffix(s, text)) {
			return true
		}
	}
	return false
}

func (r *run) search(name, s string, a bound) any {
	sub := r.str(a.values[0])
	r.step(1 + len(s)/64)
	s, skipped, ok := r.window(s, a.or(1, nil), a.or(2, nil))
	if name == "count" {
		if !ok {
			return int64(0)
		}
		return int64(strings.Count(s, sub))
	}
	at := -1
	switch {
	case !ok:
	case name == "find", name == "index":
		at = strings.Index(s, sub)
	default:
		at = strings.LastIndex(s, sub)
	}
	if at < 0 {
		if name == "index" || name == "rindex" {
			r.failf("substring not found")
		}
		return int64(-1)
	}
	return int64(skipped + runeCount(s[:at]))
}

func (r *run) replace(s, old, to string, n int) string {
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	r.step(1 + len(s)/64)
	r.reserve(len(s) + times(count, len(to)))
	return strings.Replace(s, old, to, n)
}

// joinStrict is the method of str, which takes texts only.
func (r *run) joinStrict(sep string, over any) string {
	parts := r.iterate(over)
	texts := make([]string, len(parts))
	total := times(len(parts), len(sep))
	for i, p := range parts {
		s, ok := p.(string)
		if !ok {
			r.failf("sequence item %d: expected str instance, %s found", i, typeName(p))
		}
		texts[i] = s
		total += len(s)
	}
	r.step(len(parts))
	r.reserve(total)
	return strings.Join(texts, sep)
}

func (r *run) justify(name, s string, width int, fill string) string {
	if runeCount(fill) != 1 {
		r.failf("the fill character must be exactly one character long")
	}
	r.read(s)
	pad := width - runeCount(s)
	if pad <= 0 {
		return s
	}
	r.reserve(len(s) + times(pad, len(fill)))
	left := 0
	switch name {
	case "rjust":
		left = pad
	case "center":
		left = pad/2 + pad&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, pad-left)
}

func (r *run) zfill(s string, width int) string {
	r.read(s)
	pad := width - runeCount(s)
	if pad <= 0 {
		return s
	}
	r.reserve(len(s) + pad)
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", pad) + s
}

func (r *run) partition(s, sep string, last bool) Tuple {
	if sep == "" {
		r.failf("empty separator")
	}
	r.step(1 + len(s)/64)
	i := strings.Index(s, sep)
	if last {
		i = strings.LastIndex(s, sep)
	}
	switch {
	case i >= 0:
		return Tuple{s[:i], sep, s[i+len(sep):]}
	case last:
		return Tuple{"", "", s}
	default:
		return Tuple{s, "", ""}
	}
}

func (r *run) expandTabs(s string, size int) string {
	var b strings.Builder
	column := 0
	r.step(1 + len(s)/16)
	for _, c := range s {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				r.reserve(b.Len() + n)
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
		case '\n', '\r':
			column = 0
			b.WriteRune(c)
		default:
			column++
			b.WriteRune(c)
		}
	}
	return r.made(b.String())
}
