package jinja

import (
	"slices"

	"github.com/agl-go/agl/jinja/internal/value"
)

// is makes a test without arguments of its own.
func is(ok func(c value.Call, v any) bool) value.Builtin {
	return value.NewBuiltin(func(c value.Call) any { return ok(c, c.Arg(0)) }, "value")
}

// testTable returns the tests of Jinja2 except those that need the library.
func testTable() map[string]value.Builtin {
	isType := func(names ...string) value.Builtin {
		return is(func(_ value.Call, v any) bool { return slices.Contains(names, value.TypeName(v)) })
	}
	with := func(ok func(c value.Call, v, other any) bool) value.Builtin {
		return value.NewBuiltin(func(c value.Call) any { return ok(c, c.Arg(0), c.Arg(1)) }, "value", "other")
	}
	remainder := func(c value.Call, v, by any) any { return c.Binary("%", v, by) }
	t := map[string]value.Builtin{
		"defined":     is(func(_ value.Call, v any) bool { return value.TypeName(v) != "Undefined" }),
		"undefined":   isType("Undefined"),
		"none":        isType("NoneType"),
		"boolean":     isType("bool"),
		"integer":     isType("int"),
		"float":       isType("float"),
		"string":      isType("str"),
		"mapping":     isType("dict"),
		"true":        is(func(_ value.Call, v any) bool { return v == true }),
		"false":       is(func(_ value.Call, v any) bool { return v == false }),
		"number":      is(func(_ value.Call, v any) bool { _, ok := value.AsNumber(v); return ok }),
		"sequence":    isType("list", "tuple", "str", "dict", "range", "Undefined"),
		"iterable":    is(isIterable),
		"callable":    is(isCallable),
		"escaped":     is(func(value.Call, any) bool { return false }),
		"lower":       is(func(c value.Call, v any) bool { return c.IsCase("islower", c.Text(v)) }),
		"upper":       is(func(c value.Call, v any) bool { return c.IsCase("isupper", c.Text(v)) }),
		"odd":         is(func(c value.Call, v any) bool { return c.Equal(remainder(c, v, int64(2)), int64(1)) }),
		"even":        is(func(c value.Call, v any) bool { return c.Equal(remainder(c, v, int64(2)), int64(0)) }),
		"sameas":      with(func(c value.Call, v, other any) bool { return c.Same(v, other) }),
		"divisibleby": value.NewBuiltin(func(c value.Call) any { return c.Equal(remainder(c, c.Arg(0), c.Arg(1)), int64(0)) }, "value", "num"),
	}
	for name, op := range map[string]string{
		"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "!=": "!=", "in": "in",
		"lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
		"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=",
	} {
		t[name] = with(func(c value.Call, v, other any) bool { return c.Compare(op, v, other) })
	}
	return t
}

func isIterable(_ value.Call, v any) bool {
	switch v.(type) {
	case string, *value.Sequence, *value.Dict, value.Range, *value.Undefined, value.Iterable:
		return true
	}
	return false
}

func isCallable(_ value.Call, v any) bool {
	switch v.(type) {
	case *value.Undefined, value.Callable:
		return true
	}
	return false
}
