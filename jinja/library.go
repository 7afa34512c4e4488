package jinja

import "github.com/agl-go/agl/jinja/internal/value"

// library holds the filters and tests by name.
type library struct{ filters, tests map[string]value.Builtin }

func newLibrary() library {
	l := library{filterTable(), testTable()}
	l.filters["map"] = value.NewBuiltin(mapFilter(l.filters), "value", "**")
	l.filters["select"] = value.NewBuiltin(selectFilter(l.tests, false, true), "value", "**")
	l.filters["reject"] = value.NewBuiltin(selectFilter(l.tests, false, false), "value", "**")
	l.filters["selectattr"] = value.NewBuiltin(selectFilter(l.tests, true, true), "value", "**")
	l.filters["rejectattr"] = value.NewBuiltin(selectFilter(l.tests, true, false), "value", "**")
	l.tests["filter"] = is(func(c value.Call, v any) bool { return has(l.filters)(c.Str(v)) })
	l.tests["test"] = is(func(c value.Call, v any) bool { return has(l.tests)(c.Str(v)) })
	return l
}

// has returns a function that reports whether a table has a name.
func has(table map[string]value.Builtin) func(name string) bool {
	return func(name string) bool {
		_, ok := table[name]
		return ok
	}
}
