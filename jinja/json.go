package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	r         *run
	b         strings.Builder
	ascii     bool
	sort      bool
	indent    string
	lines     bool // every element on a line of its own
	item, key string
}

// filterToJSON is transformers' filter, which escapes nothing for HTML.
func filterToJSON(r *run, a bound) any {
	w := &jsonWriter{r: r, ascii: r.truth(a.or(1, false)), sort: r.truth(a.or(4, false)), item: ", ", key: ": "}
	switch indent := a.or(2, nil).(type) {
	case nil:
	case string:
		w.indent, w.lines = indent, true
	default:
		n := max(r.int(indent), 0)
		r.reserve(n)
		w.indent, w.lines = strings.Repeat(" ", n), true
	}
	if w.lines {
		w.item = ","
	}
	if sep := a.or(3, nil); sep != nil {
		pair := r.iterate(sep)
		if len(pair) != 2 {
			r.failf("separators must be two texts")
		}
		w.item, w.key = r.str(pair[0]), r.str(pair[1])
	}
	w.value(a.values[0], 0)
	return w.b.String()
}

func (w *jsonWriter) write(s string) {
	w.r.reserve(len(s))
	w.b.WriteString(s)
	if w.b.Len() > w.r.limits.Output {
		w.r.reserve(w.b.Len())
	}
}

func (w *jsonWriter) value(v any, depth int) {
	defer w.r.enter()()
	w.r.step(1)
	switch v := v.(type) {
	case nil:
		w.write("null")
	case bool:
		w.write(strconv.FormatBool(v))
	case int64:
		w.write(strconv.FormatInt(v, 10))
	case *big.Int:
		w.write(w.r.bigText(v))
	case float64:
		w.write(jsonFloat(v))
	case string:
		w.text(v)
	case *list:
		w.array(v.items, depth)
	case Tuple:
		w.array(v, depth)
	case *Dict:
		w.object(v, depth)
	default:
		w.r.failf("Object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	default:
		return floatText(f)
	}
}

func (w *jsonWriter) newline(depth int) {
	if w.lines {
		w.r.reserve(times(depth, len(w.indent)))
		w.b.WriteString("\n" + strings.Repeat(w.indent, depth))
	}
}

func (w *jsonWriter) array(items []any, depth int) {
	if len(items) == 0 {
		w.write("[]")
		return
	}
	w.write("[")
	for i, v := range items {
		if i > 0 {
			w.write(w.item)
		}
		w.newline(depth + 1)
		w.value(v, depth+1)
	}
	w.newline(depth)
	w.write("]")
}

func (w *jsonWriter) object(d *Dict, depth int) {
	if len(d.keys) == 0 {
		w.write("{}")
		return
	}
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if w.sort {
		slices.SortStableFunc(order, func(a, b int) int {
			c, ok := w.r.order("<", d.keys[a], d.keys[b])
			if !ok {
				return 0
			}
			return cmp.Compare(c, 0)
		})
	}
	w.write("{")
	for i, at := range order {
		if i > 0 {
			w.write(w.item)
		}
		w.newline(depth + 1)
		w.text(w.keyText(d.keys[at]))
		w.write(w.key)
		w.value(d.values[at], depth+1)
	}
	w.newline(depth)
	w.write("}")
}

func (w *jsonWriter) keyText(k any) string {
	switch k := k.(type) {
	case string:
		return k
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(k)
	case int64, *big.Int:
		return w.r.text(k)
	case float64:
		return jsonFloat(k)
	}
	w.r.failf("keys must be str, int, float, bool or None, not %s", typeName(k))
	return ""
}

// text writes a string literal.
func (w *jsonWriter) text(s string) {
	b := make([]byte, 0, len(s)+2)
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c < 0x20 || w.ascii && c >= 0x7f && c < 0x10000:
			b = append(append(b, `\u`...), hexDigits(c, 4)...)
		case w.ascii && c >= 0x10000:
			c -= 0x10000
			b = append(append(b, `\u`...), hexDigits(0xd800+c>>10, 4)...)
			b = append(append(b, `\u`...), hexDigits(0xdc00+c&0x3ff, 4)...)
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	w.write(string(append(b, '"')))
}
