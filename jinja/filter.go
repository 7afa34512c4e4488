package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// filterTable are the filters of Jinja2 that chat templates may use. Those for HTML pages are left out.
func filterTable() map[string]builtin {
	value := []string{"value"}
	attribute := []string{"value", "case_sensitive?", "attribute?"}
	t := map[string]builtin{
		"abs":        {value, filterAbs},
		"attr":       {[]string{"obj", "name"}, filterAttr},
		"batch":      {[]string{"value", "linecount", "fill_with?"}, filterBatch},
		"capitalize": {value, caseFilter("capitalize")},
		"center":     {[]string{"value", "width?"}, filterCenter},
		"default":    {[]string{"value", "default_value?", "boolean?"}, filterDefault},
		"dictsort":   {[]string{"value", "case_sensitive?", "by?", "reverse?"}, filterDictSort},
		"escape":     {value, filterEscape},
		"first":      {value, filterFirst},
		"float":      {[]string{"value", "default?"}, filterFloat},
		"format":     {[]string{"value", "**"}, filterFormat},
		"groupby":    {[]string{"value", "attribute", "default?", "case_sensitive?"}, filterGroupBy},
		"indent":     {[]string{"s", "width?", "first?", "blank?"}, filterIndent},
		"int":        {[]string{"value", "default?", "base?"}, filterInt},
		"items":      {value, filterItems},
		"join":       {[]string{"value", "d?", "attribute?"}, filterJoin},
		"last":       {value, filterLast},
		"length":     {value, filterLength},
		"list":       {value, func(r *run, a bound) any { return &list{slices.Clip(r.iterate(a.values[0]))} }},
		"lower":      {value, caseFilter("lower")},
		"map":        {[]string{"value", "**"}, filterMap},
		"max":        {attribute, func(r *run, a bound) any { return r.extreme(a, 1) }},
		"min":        {attribute, func(r *run, a bound) any { return r.extreme(a, -1) }},
		"replace":    {[]string{"s", "old", "new", "count?"}, filterReplace},
		"reverse":    {value, filterReverse},
		"round":      {[]string{"value", "precision?", "method?"}, filterRound},
		"safe":       {value, func(r *run, a bound) any { return r.text(a.values[0]) }},
		"slice":      {[]string{"value", "slices", "fill_with?"}, filterSlice},
		"sort":       {[]string{"value", "reverse?", "case_sensitive?", "attribute?"}, filterSort},
		"string":     {value, func(r *run, a bound) any { return r.text(a.values[0]) }},
		"sum":        {[]string{"value", "attribute?", "start?"}, filterSum},
		"title":      {value, filterTitle},
		"tojson":     {[]string{"x", "ensure_ascii?", "indent?", "separators?", "sort_keys?"}, filterToJSON},
		"trim":       {[]string{"value", "chars?"}, filterTrim},
		"truncate":   {[]string{"s", "length?", "killwords?", "end?", "leeway?"}, filterTruncate},
		"unique":     {attribute, filterUnique},
		"upper":      {value, caseFilter("upper")},
		"urlencode":  {value, filterURLEncode},
		"wordcount":  {value, filterWordCount},

		"select":     {[]string{"value", "**"}, selectFilter("select", false, true)},
		"reject":     {[]string{"value", "**"}, selectFilter("reject", false, false)},
		"selectattr": {[]string{"value", "**"}, selectFilter("selectattr", true, true)},
		"rejectattr": {[]string{"value", "**"}, selectFilter("rejectattr", true, false)},
	}
	t["count"], t["d"], t["e"] = t["length"], t["default"], t["escape"]
	return t
}

func caseFilter(name string) func(r *run, a bound) any {
	return func(r *run, a bound) any {
		s := r.text(a.values[0])
		r.reserve(len(s))
		return changeCase(name, s)
	}
}

func filterAbs(r *run, a bound) any {
	r.use(a.values[0])
	switch n, _ := asNumber(a.values[0]); n := n.(type) {
	case int64, *big.Int:
		return normInt(new(big.Int).Abs(toBig(n)))
	case float64:
		return math.Abs(n)
	}
	r.failf("bad operand type for abs(): '%s'", typeName(a.values[0]))
	return nil
}

func filterAttr(r *run, a bound) any {
	name := r.str(a.values[1])
	if v, ok := r.member(a.values[0], name); ok {
		return v
	}
	return missing(a.values[0], quote(name))
}

func filterCenter(r *run, a bound) any {
	return r.justify("center", r.text(a.values[0]), r.int(a.or(1, int64(80))), " ")
}

func filterDefault(r *run, a bound) any {
	_, isUndefined := a.values[0].(*undefined)
	if isUndefined || r.truth(a.or(2, false)) && !r.truth(a.values[0]) {
		return a.or(1, "")
	}
	return a.values[0]
}

func filterEscape(r *run, a bound) any {
	return r.made(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(r.text(a.values[0])))
}

func filterFloat(r *run, a bound) any {
	switch n, ok := asNumber(a.values[0]); {
	case ok:
		return r.toFloat(n)
	default:
		r.use(a.values[0])
	}
	if s, ok := a.values[0].(string); ok {
		if f, ok := parseFloat(s); ok {
			return f
		}
	}
	return a.or(1, 0.0)
}

// parseFloat reads a number as Python's float does.
func parseFloat(s string) (float64, bool) {
	s = strings.ToLower(strings.TrimFunc(s, isSpace))
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") || strings.ContainsAny(s, "xp") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterInt(r *run, a bound) any {
	def := a.or(1, int64(0))
	v := a.values[0]
	r.use(v)
	switch n, _ := asNumber(v); n := n.(type) {
	case int64, *big.Int:
		return n
	case float64:
		return floatInt(n, def)
	}
	s, ok := v.(string)
	if !ok {
		return def
	}
	base := r.int(a.or(2, int64(10)))
	digits := strings.TrimFunc(s, isSpace)
	if base == 10 {
		digits = strings.TrimPrefix(digits, "+")
	}
	if len(digits) <= maxDigits && !strings.HasPrefix(digits, "_") && !strings.HasSuffix(digits, "_") && !strings.Contains(digits, "__") {
		for _, prefix := range []string{map[int]string{2: "0b", 8: "0o", 16: "0x"}[base], ""} {
			rest := strings.TrimPrefix(strings.ToLower(digits), prefix)
			if n, ok := new(big.Int).SetString(strings.ReplaceAll(rest, "_", ""), base); ok {
				return normInt(n)
			}
		}
	}
	if f, ok := parseFloat(s); ok {
		return floatInt(f, def)
	}
	return def
}

func floatInt(f float64, def any) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return def
	}
	n, _ := big.NewFloat(f).Int(nil)
	return normInt(n)
}

func filterFormat(r *run, a bound) any {
	text := r.text(a.values[0])
	if len(a.extra.names) == 0 {
		return r.percent(text, Tuple(a.extra.pos))
	}
	if len(a.extra.pos) > 0 {
		r.failf("can't handle positional and keyword arguments at the same time")
	}
	d := &Dict{}
	for i, name := range a.extra.names {
		d.Set(name, a.extra.named[i])
	}
	return r.percent(text, d)
}

func filterIndent(r *run, a bound) any {
	s := r.str(a.values[0])
	indent, ok := a.or(1, int64(4)).(string)
	if !ok {
		n := max(r.int(a.or(1, int64(4))), 0)
		r.reserve(n)
		indent = strings.Repeat(" ", n)
	}
	lines := splitLines(s+"\n", false)
	r.reserve(len(s) + times(len(lines), len(indent)+1))
	blank := r.truth(a.or(3, false))
	var b strings.Builder
	if r.truth(a.or(2, false)) {
		b.WriteString(indent)
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if blank || line != "" {
				b.WriteString(indent)
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

func filterReplace(r *run, a bound) any {
	n := -1
	if v := a.or(3, nil); v != nil {
		n = r.int(v)
	}
	return r.replace(r.text(a.values[0]), r.text(a.values[1]), r.text(a.values[2]), n)
}

func filterRound(r *run, a bound) any {
	v := a.values[0]
	r.use(v)
	precision := r.int(a.or(1, int64(0)))
	n, ok := asNumber(v)
	if !ok {
		r.failf("type %s doesn't define __round__ method", typeName(v))
	}
	switch how := r.text(a.or(2, "common")); how {
	case "common":
		if f, ok := n.(float64); ok {
			return roundFloat(f, precision)
		}
		if precision >= 0 {
			return n
		}
		r.failf("rounding of integers to tens is not supported")
	case "ceil", "floor":
		scale := math.Pow(10, float64(precision))
		f := r.toFloat(n) * scale
		if how == "ceil" {
			return math.Ceil(f) / scale
		}
		return math.Floor(f) / scale
	}
	r.failf("method must be common, ceil or floor")
	return nil
}

// roundFloat rounds the exact value to a number of decimal places, halves to even.
func roundFloat(f float64, precision int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) || precision > 323 {
		return f
	}
	if precision >= 0 {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		if err != nil {
			return f
		}
		return rounded
	}
	scale := math.Pow(10, float64(-precision))
	return math.RoundToEven(f/scale) * scale
}

func filterTitle(r *run, a bound) any {
	// Words begin at white space and at these brackets; the rest of a word is lower case.
	var b strings.Builder
	begin := true
	text := r.text(a.values[0])
	r.reserve(len(text))
	for _, c := range text {
		switch {
		case begin:
			b.WriteString(changeCase("upper", string(c)))
		default:
			b.WriteString(changeCase("lower", string(c)))
		}
		begin = isSpace(c) || strings.ContainsRune("-({[<", c)
	}
	return r.made(b.String())
}

func filterTrim(r *run, a bound) any {
	return r.strip(r.text(a.values[0]), a.or(1, nil), true, true)
}

func filterTruncate(r *run, a bound) any {
	s := r.str(a.values[0])
	length, end := r.int(a.or(1, int64(255))), r.str(a.or(3, "..."))
	leeway := 5
	if v := a.or(4, nil); v != nil {
		leeway = r.int(v)
	}
	keep := length - runeCount(end)
	if keep < 0 || leeway < 0 {
		r.failf("expected length >= %d and leeway >= 0, got %d and %d", runeCount(end), length, leeway)
	}
	r.reserve(len(s))
	chars := []rune(s)
	if len(chars) <= length+leeway {
		return s
	}
	s = string(chars[:keep])
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !r.truth(a.or(2, false)) {
		s = s[:i]
	}
	return r.made(s + end)
}

func filterURLEncode(r *run, a bound) any {
	encode := func(v any) string {
		var b strings.Builder
		for _, c := range []byte(r.text(v)) {
			if isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("_.-~/", c) >= 0 {
				b.WriteByte(c)
			} else {
				b.WriteString("%" + strings.ToUpper(hexDigits(rune(c), 2)))
			}
		}
		return r.made(b.String())
	}
	v := a.values[0]
	if d, ok := v.(*Dict); ok {
		v = dictPairs(d)
	}
	items, ok := r.items(v)
	if _, isText := v.(string); isText || !ok {
		return encode(v)
	}
	parts := make([]string, len(items))
	for i, item := range items {
		pair := r.iterate(item)
		if len(pair) != 2 {
			r.failf("%d values to unpack into 2 names", len(pair))
		}
		parts[i] = strings.ReplaceAll(encode(pair[0]), "/", "%2F") + "=" + strings.ReplaceAll(encode(pair[1]), "/", "%2F")
	}
	return r.made(strings.Join(parts, "&"))
}

func filterWordCount(r *run, a bound) any {
	words, in := int64(0), false
	text := r.text(a.values[0])
	r.read(text)
	for _, c := range text {
		word := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
		if word && !in {
			words++
		}
		in = word
	}
	return words
}
