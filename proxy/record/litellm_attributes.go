package record

import (
	"strconv"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// attrs writes the attributes of a span. Names that come from JSON keep their spelling.
type attrs struct{ rawjson.Object }

// dotted begins a member whose name has two parts, with a dot in between.
func (a *attrs) dotted(prefix string, name []byte) {
	b := a.Object
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(append(b, '"'), prefix...)
	b = append(append(b, '.'), name...)
	b = append(b, `":`...)
	a.Object = b
}

// json writes a JSON value as a string.
func (a *attrs) json(key string, value []byte) {
	a.Key(key)
	a.Object = appendQuoted(a.Object, value)
}

func (a *attrs) seconds(key string, value float64) {
	a.Key(key)
	a.Object = strconv.AppendFloat(a.Object, value, 'f', 6, 64)
}

// idsText writes lists of token ids as a string. Nothing in it needs an escape.
func (a *attrs) idsText(key string, appendLists func(dst []byte) []byte) {
	a.Key(key)
	a.Object = append(appendLists(append(a.Object, '"')), '"')
}

// value writes a JSON value: strings, numbers and booleans as themselves, objects and
// lists as a string of JSON. Null is left out, because an attribute cannot be null.
func (a *attrs) value(prefix string, name, value []byte) {
	switch value[0] {
	case 'n':
	case '{', '[':
		a.dotted(prefix, name)
		a.Object = appendQuoted(a.Object, value)
	default:
		a.dotted(prefix, name)
		a.Object = append(a.Object, value...)
	}
}

// python is value with objects and lists as Python literals.
func (a *attrs) python(prefix string, name, value []byte) {
	if value[0] != '{' && value[0] != '[' {
		a.value(prefix, name, value)
		return
	}
	a.dotted(prefix, name)
	a.Object = appendPython(a.Object, value)
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
