package jinja

import (
	"html"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agl-go/agl/jinja/internal/pytext"
	"github.com/agl-go/agl/jinja/internal/value"
)

// filterTable returns the filters of Jinja2 except those for HTML pages, those that call other filters or tests, and
// filesizeformat, pprint, random and wordwrap, which no chat template is known to use.
func filterTable() map[string]value.Builtin {
	changeCase := func(method string) value.Builtin {
		return value.NewBuiltin(func(c value.Call) any { return c.ChangeCase(method, c.ArgText(0, "")) }, "value")
	}
	text := value.NewBuiltin(func(c value.Call) any { return c.ArgText(0, "") }, "value")
	extreme := func(sign int) value.Builtin {
		return value.NewBuiltin(func(c value.Call) any { return filterExtreme(c, sign) }, "value", "case_sensitive?", "attribute?")
	}
	t := map[string]value.Builtin{
		"abs":        value.NewBuiltin(filterAbs, "value"),
		"attr":       value.NewBuiltin(filterAttr, "obj", "name"),
		"batch":      value.NewBuiltin(filterBatch, "value", "linecount", "fill_with?"),
		"capitalize": changeCase("capitalize"),
		"center":     value.NewBuiltin(func(c value.Call) any { return c.Justify("center", c.ArgText(0, ""), c.ArgInt(1, 80), " ") }, "value", "width?"),
		"default":    value.NewBuiltin(filterDefault, "value", "default_value?", "boolean?"),
		"dictsort":   value.NewBuiltin(filterDictSort, "value", "case_sensitive?", "by?", "reverse?"),
		"escape":     value.NewBuiltin(filterEscape, "value"),
		"first":      value.NewBuiltin(filterFirst, "value"),
		"float":      value.NewBuiltin(filterFloat, "value", "default?"),
		"format":     value.NewBuiltin(filterFormat, "value", "**"),
		"groupby":    value.NewBuiltin(filterGroupBy, "value", "attribute", "default?", "case_sensitive?"),
		"indent":     value.NewBuiltin(filterIndent, "s", "width?", "first?", "blank?"),
		"int":        value.NewBuiltin(filterInt, "value", "default?", "base?"),
		"items":      value.NewBuiltin(filterItems, "value"),
		"join":       value.NewBuiltin(filterJoin, "value", "d?", "attribute?"),
		"last":       value.NewBuiltin(filterLast, "value"),
		"length":     value.NewBuiltin(filterLength, "value"),
		"list":       value.NewBuiltin(func(c value.Call) any { return value.List(slices.Clip(c.Iterate(c.Arg(0)))) }, "value"),
		"lower":      changeCase("lower"),
		"max":        extreme(1),
		"min":        extreme(-1),
		"replace":    value.NewBuiltin(filterReplace, "s", "old", "new", "count?"),
		"reverse":    value.NewBuiltin(filterReverse, "value"),
		"round":      value.NewBuiltin(filterRound, "value", "precision?", "method?"),
		"safe":       text,
		"slice":      value.NewBuiltin(filterSlice, "value", "slices", "fill_with?"),
		"sort":       value.NewBuiltin(filterSort, "value", "reverse?", "case_sensitive?", "attribute?"),
		"string":     text,
		"sum":        value.NewBuiltin(filterSum, "value", "attribute?", "start?"),
		"title":      value.NewBuiltin(filterTitle, "value"),
		"tojson":     value.NewBuiltin(filterToJSON, "x", "ensure_ascii?", "indent?", "separators?", "sort_keys?"),
		"trim":       value.NewBuiltin(func(c value.Call) any { return c.Strip(c.ArgText(0, ""), c.Arg(1), true, true) }, "value", "chars?"),
		"truncate":   value.NewBuiltin(filterTruncate, "s", "length?", "killwords?", "end?", "leeway?"),
		"unique":     value.NewBuiltin(filterUnique, "value", "case_sensitive?", "attribute?"),
		"upper":      changeCase("upper"),
		"urlencode":  value.NewBuiltin(filterURLEncode, "value"),
		"wordcount":  value.NewBuiltin(filterWordCount, "value"),
	}
	t["count"], t["d"], t["e"] = t["length"], t["default"], t["escape"]
	return t
}

func filterAbs(c value.Call) any {
	c.Use(c.Arg(0))
	n, ok := value.AsNumber(c.Arg(0))
	if !ok {
		c.Failf("bad operand type for abs(): '%s'", value.TypeName(c.Arg(0)))
	}
	if f, ok := n.(float64); ok {
		return math.Abs(f)
	}
	if c.Compare("<", n, int64(0)) {
		return c.Unary("-", n)
	}
	return n
}

func filterAttr(c value.Call) any {
	name := c.ArgStr(1, "")
	if v, ok := c.Member(c.Arg(0), name); ok {
		return v
	}
	return value.Missing(c.Arg(0), pytext.Quote(name))
}

func filterDefault(c value.Call) any {
	_, undefined := c.Arg(0).(*value.Undefined)
	if undefined || c.Flag(2) && !c.Truth(c.Arg(0)) {
		return c.ArgOr(1, "")
	}
	return c.Arg(0)
}

func filterEscape(c value.Call) any { return c.Made(html.EscapeString(c.ArgText(0, ""))) }

func filterFloat(c value.Call) any {
	c.Use(c.Arg(0))
	if n, ok := value.AsNumber(c.Arg(0)); ok {
		return c.Float(n)
	}
	if s, ok := c.Arg(0).(string); ok {
		if f, ok := pytext.ParseFloat(s); ok {
			return f
		}
	}
	return c.ArgOr(1, 0.0)
}

func filterInt(c value.Call) any {
	c.Use(c.Arg(0))
	n, ok := value.AsNumber(c.Arg(0))
	if s, isText := c.Arg(0).(string); isText {
		if i, ok := pytext.ParseInt(s, c.ArgInt(2, 10)); ok {
			return value.NormInt(i)
		}
		n, ok = pytext.ParseFloat(s)
	}
	if f, isFloat := n.(float64); isFloat && ok {
		n, ok = value.FloatToInt(f)
	}
	if !ok {
		return c.ArgOr(1, int64(0))
	}
	return n
}

func filterFormat(c value.Call) any {
	text := c.ArgText(0, "")
	switch {
	case c.Rest.Named.Len() == 0:
		return c.Percent(text, value.Tuple(c.Rest.Positional...))
	case len(c.Rest.Positional) > 0:
		c.Failf("can't handle positional and keyword arguments at the same time")
	}
	return c.Percent(text, &c.Rest.Named)
}

func filterIndent(c value.Call) any {
	s, indent := c.ArgStr(0, ""), indentation(c, 1, 4)
	lines := pytext.SplitLines(s+"\n", false)
	c.Reserve(len(s) + value.Times(len(lines), len(indent)+1))
	for i, line := range lines {
		if i == 0 && c.Flag(2) || i > 0 && (line != "" || c.Flag(3)) {
			lines[i] = indent + line
		}
	}
	return strings.Join(lines, "\n")
}

func filterReplace(c value.Call) any {
	n := -1
	if c.Arg(3) != nil {
		n = c.ArgInt(3, -1)
	}
	return c.Replace(c.ArgText(0, ""), c.ArgText(1, ""), c.ArgText(2, ""), n)
}

func filterRound(c value.Call) any {
	c.Use(c.Arg(0))
	precision := c.ArgInt(1, 0)
	n, ok := value.AsNumber(c.Arg(0))
	if !ok {
		c.Failf("type %s doesn't define __round__ method", value.TypeName(c.Arg(0)))
	}
	scale := math.Pow(10, float64(precision))
	switch c.ArgText(2, "common") {
	case "common":
		if f, ok := n.(float64); ok {
			return roundFloat(f, precision)
		}
		if precision < 0 {
			c.Failf("rounding an integer to a negative precision is not supported")
		}
		return n
	case "ceil":
		return math.Ceil(c.Float(n)*scale) / scale
	case "floor":
		return math.Floor(c.Float(n)*scale) / scale
	}
	c.Failf("method must be common, ceil or floor")
	return nil
}

// roundFloat rounds the exact value to a number of decimal places, half to even.
func roundFloat(f float64, precision int) float64 {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0) || precision > 323:
		return f
	case precision < 0:
		scale := math.Pow(10, float64(-precision))
		return math.RoundToEven(f/scale) * scale
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
	return rounded
}

// filterTitle capitalizes words. Unlike for the method title, a word begins after white space, a hyphen or a bracket.
func filterTitle(c value.Call) any {
	text := c.ArgText(0, "")
	c.Reserve(len(text))
	isBreak := func(c rune) bool { return pytext.IsSpace(c) || strings.ContainsRune("-({[<", c) }
	var b strings.Builder
	for text != "" {
		end := len(text)
		if i := strings.IndexFunc(text, isBreak); i >= 0 {
			_, n := utf8.DecodeRuneInString(text[i:])
			end = i + n
		}
		first := pytext.Prefix(text, 1)
		b.WriteString(pytext.ChangeCase("upper", first) + pytext.ChangeCase("lower", text[len(first):end]))
		text = text[end:]
	}
	return c.Made(b.String())
}

func filterTruncate(c value.Call) any {
	s, length, end := c.ArgStr(0, ""), c.ArgInt(1, 255), c.ArgStr(3, "...")
	leeway := 5
	if c.Arg(4) != nil {
		leeway = c.ArgInt(4, leeway)
	}
	keep := length - utf8.RuneCountInString(end)
	if keep < 0 || leeway < 0 {
		c.Failf("expected length >= %d and leeway >= 0, got %d and %d", length-keep, length, leeway)
	}
	c.Reserve(len(s))
	if utf8.RuneCountInString(s) <= length+leeway {
		return s
	}
	s = pytext.Prefix(s, keep)
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !c.Flag(2) {
		s = s[:i]
	}
	return c.Made(s + end)
}

func filterURLEncode(c value.Call) any {
	v := c.Arg(0)
	if d, ok := v.(*value.Dict); ok {
		v = value.List(d.Pairs())
	}
	items, ok := c.Items(v)
	if _, isText := v.(string); isText || !ok {
		return c.Made(strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(c.Text(v))))
	}
	parts := make([]string, len(items))
	for i, item := range items {
		pair := c.Unpack(item, 2)
		parts[i] = c.Made(url.QueryEscape(c.Text(pair[0])) + "=" + url.QueryEscape(c.Text(pair[1])))
	}
	return c.Made(strings.Join(parts, "&"))
}

func filterWordCount(c value.Call) any {
	text := c.ArgText(0, "")
	c.Read(text)
	words := int64(0)
	for range strings.FieldsFuncSeq(text, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) }) {
		words++
	}
	return words
}
