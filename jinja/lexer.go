package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// token is a piece of the source. The text of a string is its value, escapes resolved.
type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokVarEnd:
		return "}}"
	case tokBlockEnd:
		return "%}"
	default:
		return t.text
	}
}

// lexer cuts a template into tokens. Text directly inside the template has one of three ends: a tag with
// "-" strips all white space before it, "+" none, and otherwise blocks and comments that stand alone on their
// line lose the blanks before them (lstrip_blocks) and the newline after them (trim_blocks).
type lexer struct {
	src       string
	pos, line int
	// lineStart says that the text at pos begins a line although the character before it is not a newline
	// that is part of the text: it was trimmed with a tag.
	lineStart bool
	tokens    []token
}

func lex(source string) []token {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{src: source, line: 1, lineStart: true}
	for l.pos < len(l.src) {
		l.root()
	}
	l.emit(tokEOF, "")
	return l.tokens
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// advance moves over n bytes and counts their lines.
func (l *lexer) advance(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
	l.lineStart = n > 0 && l.src[l.pos-1] == '\n'
}

func (l *lexer) rest() string { return l.src[l.pos:] }

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	rest := l.rest()
	at := -1
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == '{' && (rest[i+1] == '%' || rest[i+1] == '{' || rest[i+1] == '#') {
			at = i
			break
		}
	}
	if at < 0 {
		l.emit(tokData, rest)
		l.advance(len(rest))
		return
	}
	kind := rest[at+1]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	text := rest[:at]
	l.emitData(l.strip(text, sign, kind != '{'))
	skip := at + 2
	if sign != 0 {
		skip++
	}
	l.advance(skip)
	switch kind {
	case '#':
		l.comment()
	case '{':
		l.emit(tokVarBegin, "{{")
		l.tag(tokVarEnd)
	default:
		if n, ok := l.word("raw"); ok {
			l.advance(n)
			l.raw()
			return
		}
		l.emit(tokBlockBegin, "{%")
		l.tag(tokBlockEnd)
	}
}

func (l *lexer) emitData(text string) {
	if text != "" {
		l.emit(tokData, text)
	}
}

// strip applies the sign of a tag to the text before it.
func (l *lexer) strip(text string, sign byte, block bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || !block:
		return text
	}
	begin := strings.LastIndexByte(text, '\n') + 1
	if (begin > 0 || l.lineStart) && strings.Trim(text[begin:], " \t") == "" {
		return text[:begin]
	}
	return text
}

// spaces is the length of the white space at the start of s.
func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// word matches a block of one word behind its opening mark, such as raw, up to its end; with trim_blocks only
// where that is asked for by the caller.
func (l *lexer) word(name string) (n int, ok bool) {
	s := l.rest()
	n = spaces(s)
	if !strings.HasPrefix(s[n:], name) {
		return 0, false
	}
	n += len(name)
	n += spaces(s[n:])
	switch {
	case strings.HasPrefix(s[n:], "-%}"):
		n += 3
		return n + spaces(s[n:]), true
	case strings.HasPrefix(s[n:], "%}"):
		return n + 2, true
	}
	return 0, false
}

// raw reads text up to the endraw block.
func (l *lexer) raw() {
	begin := l.pos
	line := l.line
	for i := 0; ; {
		at := strings.Index(l.src[begin+i:], "{%")
		if at < 0 {
			failSyntaxf(line, "missing end of raw block")
		}
		at += begin + i
		l.pos = at + 2
		sign := byte(0)
		if l.pos < len(l.src) && (l.src[l.pos] == '-' || l.src[l.pos] == '+') {
			sign = l.src[l.pos]
			l.pos++
		}
		end, ok := l.endraw()
		if !ok {
			i = at + 2 - begin
			continue
		}
		stop := l.pos + end
		l.pos = begin
		l.emitData(l.strip(l.src[begin:at], sign, true))
		l.advance(stop - begin)
		return
	}
}

func (l *lexer) endraw() (n int, ok bool) {
	s := l.rest()
	n = spaces(s)
	if !strings.HasPrefix(s[n:], "endraw") {
		return 0, false
	}
	n += len("endraw")
	n += spaces(s[n:])
	m, ok := blockEnd(s[n:], "%}")
	return n + m, ok
}

// blockEnd is the length of the end of a block or comment at the start of s, with what it swallows.
func blockEnd(s, end string) (n int, ok bool) {
	switch {
	case strings.HasPrefix(s, "+"+end):
		return 1 + len(end), true
	case strings.HasPrefix(s, "-"+end):
		n = 1 + len(end)
		return n + spaces(s[n:]), true
	case strings.HasPrefix(s, end+"\n"):
		return len(end) + 1, true
	case strings.HasPrefix(s, end):
		return len(end), true
	}
	return 0, false
}

func (l *lexer) comment() {
	rest := l.rest()
	for i := range rest {
		if n, ok := blockEnd(rest[i:], "#}"); ok {
			l.advance(i + n)
			return
		}
	}
	failSyntaxf(l.line, "missing end of comment tag")
}

// tag reads expressions up to the end of the tag. Inside brackets the marks of an end are operators.
func (l *lexer) tag(end tokenKind) {
	var open []byte
	for {
		rest := l.rest()
		if rest == "" {
			return // the parser says what is missing
		}
		if len(open) == 0 {
			if n, ok := tagEnd(rest, end); ok {
				l.emit(end, "")
				l.advance(n)
				return
			}
		}
		if n := spaces(rest); n > 0 {
			l.advance(n)
			continue
		}
		if n, kind := number(rest, l.src[l.pos-1] == '.'); n > 0 {
			l.emit(kind, rest[:n])
			l.advance(n)
			continue
		}
		if n := nameLength(rest); n > 0 {
			l.emit(tokName, rest[:n])
			l.advance(n)
			continue
		}
		if rest[0] == '\'' || rest[0] == '"' {
			l.str(rest)
			continue
		}
		open = l.operator(rest, open)
	}
}

func tagEnd(s string, end tokenKind) (n int, ok bool) {
	if end == tokBlockEnd {
		return blockEnd(s, "%}")
	}
	if strings.HasPrefix(s, "-}}") {
		return 3 + spaces(s[3:]), true
	}
	return 2, strings.HasPrefix(s, "}}")
}

func (l *lexer) operator(rest string, open []byte) []byte {
	n := 1
	if len(rest) > 1 {
		switch rest[:2] {
		case "**", "//", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	if n == 1 && !strings.ContainsRune("+-*/%()[]{}<>=.:|,~;", rune(rest[0])) {
		r, _ := utf8.DecodeRuneInString(rest)
		failSyntaxf(l.line, "unexpected character %q", r)
	}
	switch c := rest[0]; c {
	case '(', '[', '{':
		open = append(open, c)
	case ')', ']', '}':
		if len(open) == 0 {
			failSyntaxf(l.line, "unexpected '%c'", c)
		}
		last := open[len(open)-1]
		if last+1 != c && last+2 != c {
			failSyntaxf(l.line, "unexpected '%c' after '%c'", c, last)
		}
		open = open[:len(open)-1]
	}
	l.emit(tokOp, rest[:n])
	l.advance(n)
	return open
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits is the length of a run of digits of a base with single underscores between them.
func digits(s string, ok func(c byte) bool) int {
	n := 0
	for n < len(s) {
		switch {
		case ok(s[n]):
			n++
		case s[n] == '_' && n > 0 && n+1 < len(s) && ok(s[n+1]):
			n += 2
		default:
			return n
		}
	}
	return n
}

// number is the length and kind of the number at the start of s. Behind a dot it is an index, never a float.
func number(s string, index bool) (int, tokenKind) {
	whole := digits(s, isDigit)
	if whole == 0 {
		return 0, 0
	}
	n, float := whole, false
	if index {
		return whole, tokInt
	}
	if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		n += 1 + digits(s[n+1:], isDigit)
		float = true
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if m < len(s) && isDigit(s[m]) {
			n = m + digits(s[m:], isDigit)
			float = true
		}
	}
	if float {
		return n, tokFloat
	}
	if s[0] != '0' {
		return whole, tokInt
	}
	if len(s) > 2 {
		var ok func(c byte) bool
		switch s[1] | 0x20 {
		case 'b':
			ok = func(c byte) bool { return c == '0' || c == '1' }
		case 'o':
			ok = func(c byte) bool { return c >= '0' && c <= '7' }
		case 'x':
			ok = func(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		}
		if ok != nil {
			if n := digits(s[2:], ok); n > 0 {
				return 2 + n, tokInt
			}
		}
	}
	return digits(s, func(c byte) bool { return c == '0' }), tokInt
}

// nameLength is the length of the identifier at the start of s.
func nameLength(s string) int {
	for i, r := range s {
		inside := i > 0 && (unicode.IsDigit(r) || unicode.IsMark(r))
		if r != '_' && !unicode.IsLetter(r) && !inside {
			return i
		}
	}
	return len(s)
}

// str reads a string literal.
func (l *lexer) str(rest string) {
	quote := rest[0]
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			l.emit(tokString, unescape(l.line, rest[1:i]))
			l.advance(i + 1)
			return
		}
	}
	failSyntaxf(l.line, "a string has no end")
}

// unescape resolves the escapes of a Python string literal. Those that are unknown stay as they are.
func unescape(line int, s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			r, ok := hex(s[i+1:], n)
			if !ok || r > unicode.MaxRune {
				failSyntaxf(line, "a \\%c escape needs %d hexadecimal digits of a character", c, n)
			}
			b.WriteRune(r)
			i += n
		case 'N':
			failSyntaxf(line, "\\N escapes are not supported")
		default:
			if j := strings.IndexByte("abfnrtv", c); j >= 0 {
				b.WriteByte("\a\b\f\n\r\t\v"[j])
				continue
			}
			if c < '0' || c > '7' {
				b.WriteByte('\\')
				b.WriteByte(c)
				continue
			}
			v, n := rune(0), 0
			for ; n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7'; n++ {
				v = v*8 + rune(s[i+n]-'0')
			}
			b.WriteRune(v)
			i += n - 1
		}
	}
	return b.String()
}

func hex(s string, n int) (v rune, ok bool) {
	if len(s) < n {
		return 0, false
	}
	for i := range n {
		c := s[i]
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, v >= 0
}
