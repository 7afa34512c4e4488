package adapter

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// readLiteral reads a value that LiteLLM wrote into a span attribute as text, either as JSON or by Python's repr, and
// returns it as JSON. Tuples become lists; nan and infinities, which JSON lacks, become null. It reads only what repr
// writes: no expressions, prefixes, adjacent strings or comments. Errors have code agl.CodeInvalid and give the
// offset in bytes.
func readLiteral(text string) (jsontext.Value, error) {
	if raw := jsontext.Value(text); raw.IsValid(jsontext.AllowDuplicateNames(true)) {
		return raw, nil
	}
	r := literalReader{text: text, out: make([]byte, 0, len(text))}
	err := r.value(0)
	if err == nil {
		if r.space(); r.at < len(r.text) {
			err = r.fail("the end of the text")
		}
	}
	if err != nil {
		return nil, err
	}
	return r.out, nil
}

// literalReader translates text into out.
type literalReader struct {
	text string
	at   int
	out  []byte
}

func (r *literalReader) fail(want string) error {
	return agl.Errorf(agl.CodeInvalid, "literal: want %s at offset %d of %d", want, r.at, len(r.text))
}

func (r *literalReader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek skips spaces and returns the next byte, 0 at the end.
func (r *literalReader) peek() byte {
	r.space()
	if r.at >= len(r.text) {
		return 0
	}
	return r.text[r.at]
}

func (r *literalReader) value(depth int) error {
	if depth > maxDepth {
		return r.fail("at most " + strconv.Itoa(maxDepth) + " levels")
	}
	switch c := r.peek(); {
	case c == '[':
		return r.sequence(depth, ']', "[]")
	case c == '(':
		return r.sequence(depth, ')', "[]")
	case c == '{':
		return r.sequence(depth, '}', "{}")
	case c == '\'' || c == '"':
		return r.str()
	case c == '-' || '0' <= c && c <= '9':
		return r.number()
	default:
		return r.word()
	}
}

// sequence reads a list, a tuple or a dict, from its opening to its closing bracket.
func (r *literalReader) sequence(depth int, end byte, as string) error {
	r.at++
	r.out = append(r.out, as[0])
	for n := 0; r.peek() != end; n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		if end == '}' {
			if err := r.key(); err != nil {
				return err
			}
		}
		if err := r.value(depth + 1); err != nil {
			return err
		}
		switch next := r.peek(); {
		case next == ',':
			r.at++
		case next != end || end == ')' && n == 0: // one value in parentheses is not a tuple
			return r.fail("a comma or " + strconv.QuoteRune(rune(end)))
		}
	}
	r.at++
	r.out = append(r.out, as[1])
	return nil
}

// key reads a key and the colon after it. A key that is a number becomes a string.
func (r *literalReader) key() (err error) {
	switch c := r.peek(); {
	case c == '\'' || c == '"':
		err = r.str()
	case c == '-' || '0' <= c && c <= '9':
		r.out = append(r.out, '"')
		err = r.number()
		r.out = append(r.out, '"')
	default:
		err = r.fail("a string or a number as key")
	}
	if err != nil {
		return err
	}
	if r.peek() != ':' {
		return r.fail("a colon")
	}
	r.at++
	r.out = append(r.out, ':')
	return nil
}

func (r *literalReader) word() error {
	start := r.at
	for r.at < len(r.text) && isWordByte(r.text[r.at]) {
		r.at++
	}
	switch r.text[start:r.at] {
	case "None", "null", "nan", "NaN", "inf", "Infinity":
		r.out = append(r.out, "null"...)
	case "True", "true":
		r.out = append(r.out, "true"...)
	case "False", "false":
		r.out = append(r.out, "false"...)
	default:
		r.at = start
		return r.fail("a value")
	}
	return nil
}

func isWordByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c >= utf8.RuneSelf
}

// number reads a number, or Python's -inf.
func (r *literalReader) number() error {
	start := r.at
	if r.text[r.at] == '-' {
		r.at++
	}
	if r.at < len(r.text) && (r.text[r.at] == 'i' || r.text[r.at] == 'I') {
		return r.word()
	}
	for r.at < len(r.text) && (isWordByte(r.text[r.at]) || r.text[r.at] == '.' || isSign(r.text[r.at]) && isExponent(r.text[r.at-1])) {
		r.at++
	}
	number := r.text[start:r.at]
	if !jsontext.Value(number).IsValid() {
		r.at = start
		return r.fail("a number")
	}
	r.out = append(r.out, number...)
	return nil
}

func isSign(c byte) bool     { return c == '+' || c == '-' }
func isExponent(c byte) bool { return c == 'e' || c == 'E' }

// str reads a string in either kind of quotes.
func (r *literalReader) str() error {
	quote := r.text[r.at]
	r.at++
	var content []byte
	for {
		if r.at >= len(r.text) {
			return r.fail("the end of a string")
		}
		switch c := r.text[r.at]; c {
		case quote:
			r.at++
			r.out = rawjson.AppendString(r.out, string(content))
			return nil
		case '\n':
			return r.fail("the end of a string")
		case '\\':
			var err error
			if content, err = r.escape(content); err != nil {
				return err
			}
		default:
			content = append(content, c)
			r.at++
		}
	}
}

// escape reads one escape sequence. An unknown one stands for itself, as in Python.
func (r *literalReader) escape(dst []byte) ([]byte, error) {
	if r.at+1 >= len(r.text) {
		return nil, r.fail("the end of a string")
	}
	c := r.text[r.at+1]
	switch c {
	case 'x':
		return r.hex(dst, 2)
	case 'u':
		return r.hex(dst, 4)
	case 'U':
		return r.hex(dst, 8)
	case 'N':
		return nil, r.fail("an escape that repr writes")
	case '0', '1', '2', '3', '4', '5', '6', '7':
		return r.octal(dst), nil
	}
	r.at += 2
	if c == '\n' {
		return dst, nil
	}
	const names, values = `\'"abfnrtv`, "\\'\"\a\b\f\n\r\t\v"
	if i := strings.IndexByte(names, c); i >= 0 {
		return append(dst, values[i]), nil
	}
	return append(dst, '\\', c), nil
}

// hex reads an escape with this number of hexadecimal digits. The two halves of a surrogate pair are joined.
func (r *literalReader) hex(dst []byte, digits int) ([]byte, error) {
	first, ok := r.hexAt(r.at+2, digits)
	if !ok {
		return nil, r.fail(strconv.Itoa(digits) + " hexadecimal digits and a code point")
	}
	r.at += 2 + digits
	if digits == 4 && utf16.IsSurrogate(first) && r.at+1 < len(r.text) && r.text[r.at:r.at+2] == `\u` {
		if second, ok := r.hexAt(r.at+2, 4); ok {
			if joined := utf16.DecodeRune(first, second); joined != utf8.RuneError {
				r.at += 6
				return utf8.AppendRune(dst, joined), nil
			}
		}
	}
	return utf8.AppendRune(dst, first), nil
}

func (r *literalReader) hexAt(from, digits int) (rune, bool) {
	if from+digits > len(r.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(r.text[from:from+digits], 16, 32)
	return rune(n), err == nil && n <= utf8.MaxRune
}

// octal reads an escape of one to three octal digits.
func (r *literalReader) octal(dst []byte) []byte {
	var n rune
	r.at++
	for i := 0; i < 3 && r.at < len(r.text) && '0' <= r.text[r.at] && r.text[r.at] <= '7'; i++ {
		n = n*8 + rune(r.text[r.at]-'0')
		r.at++
	}
	return utf8.AppendRune(dst, n)
}
