package jinja

import "github.com/agl-go/agl/jinja/internal/value"

// library holds the filters and tests by name.
type library struct{ filters, tests map[string]value.Builtin }

func newLibrary() library {
	filters, tests := filterTable(), testTable()
	filters["map"] = value.NewBuiltin(mapFilter(filters), "value", "**")
	filters["select"] = value.NewBuiltin(selectFilter(tests, false, true), "value", "**")
	filters["reject"] = value.NewBuiltin(selectFilter(tests, false, false), "value", "**")
	filters["selectattr"] = value.NewBuiltin(selectFilter(tests, true, true), "value", "**")
	filters["rejectattr"] = value.NewBuiltin(selectFilter(tests, true, false), "value", "**")
	l := library{filters, tests}
	tests["filter"] = is(func(c value.Call, v any) bool { return l.hasFilter(c.Str(v)) })
	tests["test"] = is(func(c value.Call, v any) bool { return l.hasTest(c.Str(v)) })
	return l
}

func (l library) hasFilter(name string) bool {
	_, ok := l.filters[name]
	return ok
}

func (l library) hasTest(name string) bool {
	_, ok := l.tests[name]
	return ok
}
