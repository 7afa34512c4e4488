package syntax

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl/jinja/internal/pytext"
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

// token is a piece of the source. The text of a string literal is its value.
type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	if t.kind == tokEOF {
		return "the end of the template"
	}
	return t.text
}

// The patterns of Jinja2's lexer. The end of a tag includes the white space that it removes.
var (
	tagBegin   = pattern(`(\{[%{#])([-+]?)`)
	rawBegin   = pattern(`^ raw (?:-%\} |%\})`)
	rawEnd     = pattern(`\{%([-+]?) endraw (?:\+%\}|-%\} |%\}\n?)`)
	commentEnd = pattern(`(?:\+#\}|-#\} |#\}\n?)`)
	float      = pattern(`^DD(?:(?:\.DD)?[eE][-+]?DD|\.DD)`)
	integer    = pattern(`^(?i:0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[0-9a-f])+|[1-9](?:_?[0-9])*|0(?:_?0)*)`)
)

// pattern compiles a regular expression in which a blank stands for any white space and DD for decimal digits.
func pattern(s string) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer(" ", `[\s\v\x1c-\x1f\x{85}\p{Z}]*`, "DD", `(?:[0-9]+_)*[0-9]+`).Replace(s))
}

// lexer cuts a source into tokens. What a tag does to the text around it depends on its sign: "-" removes all
// white space on that side, "+" keeps it. Without a sign, a block or comment that stands alone on its line
// removes the blanks before it (lstrip_blocks) and the newline after it (trim_blocks).
type lexer struct {
	src       string
	pos, line int
	// lineStart reports whether pos is at the start of a line. The newline before it may belong to a tag.
	lineStart bool
	tokens    []token
}

func lex(source string) []token {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true, tokens: make([]token, 0, len(source)/4)}
	for l.pos < len(l.src) {
		l.textAndTag()
	}
	l.emit(tokEOF, "")
	return l.tokens
}

func (l *lexer) rest() string { return l.src[l.pos:] }

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// emitText emits the text before a tag without the white space that the tag removes.
func (l *lexer) emitText(text, sign string, block bool) {
	switch begin := strings.LastIndexByte(text, '\n') + 1; {
	case sign == "-":
		text = strings.TrimRightFunc(text, pytext.IsSpace)
	case sign == "" && block && (begin > 0 || l.lineStart) && strings.Trim(text[begin:], " \t") == "":
		text = text[:begin]
	}
	if text != "" {
		l.emit(tokData, text)
	}
}

// advance moves over n bytes and counts their lines.
func (l *lexer) advance(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
	l.lineStart = n > 0 && l.src[l.pos-1] == '\n'
}

// textAndTag reads the text up to the next tag, and the tag.
func (l *lexer) textAndTag() {
	rest := l.rest()
	m := tagBegin.FindStringSubmatchIndex(rest)
	if m == nil {
		l.emit(tokData, rest)
		l.advance(len(rest))
		return
	}
	mark, sign := rest[m[2]:m[3]], rest[m[4]:m[5]]
	l.emitText(rest[:m[0]], sign, mark != "{{")
	l.advance(m[1])
	rest = l.rest()
	switch mark {
	case "{#":
		end := commentEnd.FindStringIndex(rest)
		if end == nil {
			failf(l.line, "missing end of comment tag")
		}
		l.advance(end[1])
	case "{{":
		l.emit(tokVarBegin, mark)
		l.tag(tokVarEnd, "}}")
	default:
		if begin := rawBegin.FindString(rest); begin != "" {
			l.advance(len(begin))
			l.raw()
			return
		}
		l.emit(tokBlockBegin, mark)
		l.tag(tokBlockEnd, "%}")
	}
}

// raw reads text up to the end of a raw block.
func (l *lexer) raw() {
	rest := l.rest()
	m := rawEnd.FindStringSubmatchIndex(rest)
	if m == nil {
		failf(l.line, "missing end of raw block")
	}
	l.emitText(rest[:m[0]], rest[m[2]:m[3]], true)
	l.advance(m[1])
}

// tag reads the tokens of a tag and its end. Inside brackets the mark of an end is an operator.
func (l *lexer) tag(end tokenKind, mark string) {
	var open []byte
	for l.pos < len(l.src) {
		rest := l.rest()
		if n := tagEnd(rest, mark); n > 0 && len(open) == 0 {
			l.emit(end, mark)
			l.advance(n)
			return
		}
		if n := spaces(rest); n > 0 {
			l.advance(n)
			continue
		}
		var kind tokenKind
		var n int
		switch {
		case pytext.IsDigit(rest[0]):
			kind, n = number(rest, l.src[l.pos-1] == '.')
		case rest[0] == '\'' || rest[0] == '"':
			l.str(rest)
			continue
		default:
			kind, n = tokName, pytext.IdentifierLen(rest)
		}
		if n == 0 {
			kind, n = tokOp, l.operator(rest, &open)
		}
		l.emit(kind, rest[:n])
		l.advance(n)
	}
}

// tagEnd returns the length of the end of a tag at the start of s, with the white space that it removes; 0 if none.
func tagEnd(s, mark string) int {
	after, ok := strings.CutPrefix(strings.TrimPrefix(s, "-"), mark)
	switch {
	case ok && s[0] == '-':
		return len(mark) + 1 + spaces(after)
	case ok && mark == "%}" && strings.HasPrefix(after, "\n"):
		return len(mark) + 1
	case ok:
		return len(mark)
	case mark == "%}" && strings.HasPrefix(s, "+%}"):
		return len(mark) + 1
	default:
		return 0
	}
}

// spaces returns the length of the white space at the start of s.
func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, pytext.IsSpace)) }

// number returns the kind and length of the number at the start of s. A number after a dot is an index, never a float.
func number(s string, index bool) (tokenKind, int) {
	after := strings.TrimLeft(s, "0123456789")
	if !index && after != "" && strings.IndexByte("._eE", after[0]) >= 0 {
		if n := len(float.FindString(s)); n > 0 {
			return tokFloat, n
		}
	}
	if s[0] != '0' && !strings.HasPrefix(after, "_") {
		return tokInt, len(s) - len(after)
	}
	return tokInt, len(integer.FindString(s))
}

// operator returns the length of the operator at the start of s. open is the stack of open brackets.
func (l *lexer) operator(s string, open *[]byte) int {
	if len(s) > 1 {
		switch s[:2] {
		case "**", "//", "==", "!=", ">=", "<=":
			return 2
		}
	}
	switch c := s[0]; {
	case strings.IndexByte("([{", c) >= 0:
		*open = append(*open, c)
	case strings.IndexByte(")]}", c) >= 0:
		if len(*open) == 0 {
			failf(l.line, "unexpected '%c'", c)
		}
		last := (*open)[len(*open)-1]
		if last+1 != c && last+2 != c { // in ASCII the closing bracket is one or two places after the opening one
			failf(l.line, "unexpected '%c' after '%c'", c, last)
		}
		*open = (*open)[:len(*open)-1]
	case strings.IndexByte("+-*/%<>=.:|,~;", c) < 0:
		r, _ := utf8.DecodeRuneInString(s)
		failf(l.line, "unexpected character %q", r)
	}
	return 1
}

// str reads a string literal.
func (l *lexer) str(rest string) {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			l.emit(tokString, unescape(l.line, rest[1:i]))
			l.advance(i + 1)
			return
		}
	}
	failf(l.line, "unterminated string")
}

// unescape resolves the escapes of a Python string literal. Unknown escapes stay as they are.
func unescape(line int, s string) string {
	var b strings.Builder
	for {
		at := strings.IndexByte(s, '\\')
		if at < 0 || at+1 == len(s) {
			return b.String() + s
		}
		b.WriteString(s[:at])
		s = s[at:]
		switch c := s[1]; {
		case c == '\n':
			s = s[2:]
		case c == 'N':
			failf(line, `\N escapes are not supported`)
		case c >= '0' && c <= '7':
			v, n := rune(0), 1
			for ; n < 4 && n < len(s) && s[n] >= '0' && s[n] <= '7'; n++ {
				v = v*8 + rune(s[n]-'0')
			}
			b.WriteRune(v)
			s = s[n:]
		case strings.IndexByte(`abfnrtv\'"xuU`, c) >= 0:
			r, _, tail, err := strconv.UnquoteChar(s, c)
			if err != nil {
				failf(line, "a \\%c escape needs the hexadecimal digits of a character", c)
			}
			b.WriteRune(r)
			s = tail
		default:
			b.WriteString(s[:2])
			s = s[2:]
		}
	}
}
