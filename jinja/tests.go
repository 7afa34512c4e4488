package jinja

import (
	"math/big"
)

// testTable are the tests of Jinja2.
func testTable() map[string]builtin {
	value, pair := []string{"value"}, []string{"value", "other"}
	is := func(ok func(r *run, v any) bool) builtin {
		return builtin{value, func(r *run, a bound) any { return ok(r, a.values[0]) }}
	}
	compare := func(op string) builtin {
		return builtin{pair, func(r *run, a bound) any { return r.compare(op, a.values[0], a.values[1]) }}
	}
	t := map[string]builtin{
		"defined":   is(func(_ *run, v any) bool { return typeName(v) != "Undefined" }),
		"undefined": is(func(_ *run, v any) bool { return typeName(v) == "Undefined" }),
		"none":      is(func(_ *run, v any) bool { return v == nil }),
		"boolean":   is(func(_ *run, v any) bool { return typeName(v) == "bool" }),
		"true":      is(func(_ *run, v any) bool { return v == true }),
		"false":     is(func(_ *run, v any) bool { return v == false }),
		"integer":   is(func(_ *run, v any) bool { return typeName(v) == "int" }),
		"float":     is(func(_ *run, v any) bool { return typeName(v) == "float" }),
		"number":    is(func(_ *run, v any) bool { _, ok := asNumber(v); return ok }),
		"string":    is(func(_ *run, v any) bool { return typeName(v) == "str" }),
		"mapping":   is(func(_ *run, v any) bool { return typeName(v) == "dict" }),
		"sequence":  is(isSequence),
		"iterable":  is(isIterable),
		"callable":  is(isCallable),
		"escaped":   is(func(*run, any) bool { return false }),
		"lower":     is(func(r *run, v any) bool { return r.cased("islower", v) }),
		"upper":     is(func(r *run, v any) bool { return r.cased("isupper", v) }),
		"odd":       is(func(r *run, v any) bool { return r.equal(r.binary("%", v, int64(2)), int64(1)) }),
		"even":      is(func(r *run, v any) bool { return r.equal(r.binary("%", v, int64(2)), int64(0)) }),
		"filter":    is(func(r *run, v any) bool { _, ok := r.filters[r.str(v)]; return ok }),
		"test":      is(func(r *run, v any) bool { _, ok := r.tests[r.str(v)]; return ok }),
		"sameas":    {pair, func(r *run, a bound) any { return r.same(a.values[0], a.values[1]) }},
		"in":        {pair, func(r *run, a bound) any { return r.contains(a.values[1], a.values[0]) }},
		"divisibleby": {[]string{"value", "num"}, func(r *run, a bound) any {
			return r.equal(r.binary("%", a.values[0], a.values[1]), int64(0))
		}},
	}
	for name, op := range map[string]string{
		"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "!=": "!=",
		"lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
		"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=",
	} {
		t[name] = compare(op)
	}
	return t
}

func (r *run) cased(name string, v any) bool {
	s := r.text(v)
	r.read(s)
	return casePredicate(name, s)
}

func isSequence(_ *run, v any) bool {
	switch v.(type) {
	case string, *list, Tuple, *Dict, span, *undefined:
		return true
	}
	return false
}

func isIterable(_ *run, v any) bool {
	switch v.(type) {
	case nil, bool, int64, *big.Int, float64, *namespace, *macro, *callable:
		return false
	}
	return true
}

func isCallable(_ *run, v any) bool {
	switch v.(type) {
	case *callable, *macro, *undefined, *loop:
		return true
	}
	return false
}
