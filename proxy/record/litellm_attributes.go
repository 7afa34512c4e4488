package record

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// attrs appends the attributes of a span to a buffer. Names that come from JSON keep
// their spelling.
type attrs struct{ buf []byte }

func newAttrs(dst []byte) *attrs { return &attrs{buf: append(dst, '{')} }

func (a *attrs) done() []byte { return append(a.buf, '}') }

// key begins a member; the parts of its name are joined by dots.
func (a *attrs) key(prefix string, name []byte) {
	if a.buf[len(a.buf)-1] != '{' {
		a.buf = append(a.buf, ',')
	}
	a.buf = append(a.buf, '"')
	a.buf = append(a.buf, prefix...)
	if name != nil {
		a.buf = append(a.buf, '.')
		a.buf = append(a.buf, name...)
	}
	a.buf = append(a.buf, `":`...)
}

// raw writes a value that is already in the form of an attribute.
func (a *attrs) raw(key string, value []byte) {
	a.key(key, nil)
	a.buf = append(a.buf, value...)
}

// text writes a string. A byte that is not UTF-8 becomes U+FFFD; the ignored error only
// reports that.
func (a *attrs) text(key, value string) {
	a.key(key, nil)
	a.buf, _ = jsontext.AppendQuote(a.buf, value)
}

// json writes a JSON value as a string.
func (a *attrs) json(key string, value []byte) {
	a.key(key, nil)
	a.buf = appendQuoted(a.buf, value)
}

func (a *attrs) integer(key string, value int64) {
	a.key(key, nil)
	a.buf = strconv.AppendInt(a.buf, value, 10)
}

func (a *attrs) boolean(key string, value bool) {
	a.key(key, nil)
	a.buf = strconv.AppendBool(a.buf, value)
}

func (a *attrs) seconds(key string, value float64) {
	a.key(key, nil)
	a.buf = strconv.AppendFloat(a.buf, value, 'f', 6, 64)
}

// idsText writes lists of token ids as a string. Nothing in it needs an escape.
func (a *attrs) idsText(key string, appendLists func(dst []byte) []byte) {
	a.key(key, nil)
	a.buf = append(appendLists(append(a.buf, '"')), '"')
}

// value writes a JSON value: strings, numbers and booleans as themselves, objects and
// lists as a string of JSON. Null is left out, because an attribute cannot be null.
func (a *attrs) value(prefix string, name, value []byte) {
	switch value[0] {
	case 'n':
	case '{', '[':
		a.key(prefix, name)
		a.buf = appendQuoted(a.buf, value)
	default:
		a.key(prefix, name)
		a.buf = append(a.buf, value...)
	}
}

// python is value with objects and lists as Python literals.
func (a *attrs) python(prefix string, name, value []byte) {
	if value[0] != '{' && value[0] != '[' {
		a.value(prefix, name, value)
		return
	}
	a.key(prefix, name)
	a.buf = appendPython(a.buf, value)
}

// message writes a chat message under prefix: its members by name, content that is not
// a string as JSON, and tool calls flat, with name and arguments beside the id.
func (a *attrs) message(prefix string, message []byte) {
	a.messageAt(prefix, message, rawjson.SkipSpace(message, 0), func(i int) int { return rawjson.SkipValue(message, i) })
}

// messageAt is message for the one that starts at i of raw. It returns the offset after it, or -1 if it does not end.
func (a *attrs) messageAt(prefix string, raw []byte, i int, skip func(i int) int) int {
	if i >= len(raw) || raw[i] != '{' {
		return skip(i)
	}
	return rawjson.WalkMembers(raw, i, func(m rawjson.Member) int {
		end := skip(m.ValueStart)
		switch {
		case end < 0:
		case string(m.Name) == "tool_calls" && raw[m.ValueStart] == '[':
			a.toolCalls(prefix, raw[m.ValueStart:end])
		default:
			a.value(prefix, m.Name, raw[m.ValueStart:end:end])
		}
		return end
	})
}

func (a *attrs) toolCalls(prefix string, calls []byte) {
	i := 0
	openai.Elements(calls, func(call []byte) {
		at := prefix + ".tool_calls." + strconv.Itoa(i)
		i++
		openai.Members(call, func(name, value []byte) {
			if string(name) != "function" || value[0] != '{' {
				a.value(at, name, value)
				return
			}
			openai.Members(value, func(name, value []byte) { a.value(at, name, value) })
		})
	})
}
