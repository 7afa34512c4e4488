package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
	"github.com/agl-go/agl/jinja/internal/value"
)

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	*value.Runtime

	b         strings.Builder
	ascii     bool
	sort      bool
	lines     bool // every element is on a line of its own
	indent    string
	item, key string // the separators after an item and a key
}

// filterToJSON is transformers' filter, which escapes nothing for HTML.
func filterToJSON(c value.Call) any {
	w := &jsonWriter{Runtime: c.Runtime, ascii: c.Flag(1), sort: c.Flag(4), item: ", ", key: ": "}
	if c.Arg(2) != nil {
		w.indent, w.lines, w.item = indentation(c, 2, 0), true, ","
	}
	if sep := c.Arg(3); sep != nil {
		pair := c.Unpack(sep, 2)
		w.item, w.key = c.Str(pair[0]), c.Str(pair[1])
	}
	w.value(c.Arg(0), 0)
	return w.b.String()
}

// indentation returns an argument that is a string or a number of blanks.
func indentation(c value.Call, i, def int) string {
	if s, ok := c.Arg(i).(string); ok {
		return s
	}
	n := max(c.ArgInt(i, def), 0)
	c.Reserve(n)
	return strings.Repeat(" ", n)
}

func (w *jsonWriter) write(s string) {
	w.Reserve(len(s))
	w.b.WriteString(s)
	w.CheckOutput(w.b.Len())
}

func (w *jsonWriter) value(v any, depth int) {
	w.Enter()
	defer w.Leave()
	w.Step(1)
	if text, ok := w.scalar(v); ok {
		w.write(text)
		return
	}
	switch v := v.(type) {
	case string:
		w.write(pytext.QuoteJSON(v, w.ascii))
	case *value.Sequence:
		if v.IsView() {
			w.fail(v)
		}
		w.elements("[", "]", len(v.Items), depth, func(i int) { w.value(v.Items[i], depth+1) })
	case *value.Dict:
		order := make([]int, v.Len())
		for i := range order {
			order[i] = i
		}
		if w.sort {
			slices.SortStableFunc(order, func(a, b int) int {
				x, _ := v.At(a)
				y, _ := v.At(b)
				c, _ := w.Order("<", x, y)
				return c
			})
		}
		w.elements("{", "}", len(order), depth, func(i int) {
			k, v := v.At(order[i])
			w.writeKey(k)
			w.value(v, depth+1)
		})
	default:
		w.fail(v)
	}
}

func (w *jsonWriter) fail(v any) {
	w.Failf("Object of type %s is not JSON serializable", value.TypeName(v))
}

// elements writes n elements between brackets.
func (w *jsonWriter) elements(begin, end string, n, depth int, element func(i int)) {
	w.write(begin)
	for i := range n {
		if i > 0 {
			w.write(w.item)
		}
		w.newLine(depth + 1)
		element(i)
	}
	if n > 0 {
		w.newLine(depth)
	}
	w.write(end)
}

func (w *jsonWriter) newLine(depth int) {
	if w.lines {
		w.Reserve(value.Times(depth, len(w.indent)))
		w.write("\n" + strings.Repeat(w.indent, depth))
	}
}

// scalar formats None, a bool or a number.
func (w *jsonWriter) scalar(v any) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case *big.Int:
		return w.IntText(v), true
	case float64:
		return pytext.FloatJSON(v), true
	}
	return "", false
}

// writeKey writes the key of an object.
func (w *jsonWriter) writeKey(k any) {
	text, ok := k.(string)
	if !ok {
		text, ok = w.scalar(k)
	}
	if !ok {
		w.Failf("keys must be str, int, float, bool or None, not %s", value.TypeName(k))
	}
	w.write(pytext.QuoteJSON(text, w.ascii))
	w.write(w.key)
}
