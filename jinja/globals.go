package jinja

import (
	"time"

	"github.com/agl-go/agl/jinja/internal/pytext"
	"github.com/agl-go/agl/jinja/internal/value"
)

// globals returns the functions that every template can call.
func globals(now func() time.Time) map[string]any {
	dict := value.NewFunction("dict", newDict, "**")
	dict.Members = map[string]any{"fromkeys": value.NewFunction("fromkeys", value.FromKeys, "/iterable", "/value?")}
	all := map[string]any{"dict": dict}
	add := func(name string, fn func(c value.Call) any, params ...string) {
		all[name] = value.NewFunction(name, fn, params...)
	}
	add("namespace", newNamespace, "**")
	add("range", newRange, "start", "stop?", "step?")
	add("cycler", newCycler, "*")
	add("joiner", newJoiner, "sep?")
	add("raise_exception", raiseException, "message")
	add("strftime_now", func(c value.Call) any { return c.Made(pytext.Strftime(c.ArgStr(0, ""), now())) }, "format")
	return all
}

// raised is the panic of raise_exception. [Template.Render] turns it into an error.
type raised string

func raiseException(c value.Call) any { panic(raised(c.ArgText(0, ""))) }

// maxRange is the longest range that the sandbox allows.
const maxRange = 100_000

func newRange(c value.Call) any {
	start, stop, step := 0, c.ArgInt(0, 0), c.ArgInt(2, 1)
	if c.Given(1) {
		start, stop = stop, c.ArgInt(1, 0)
	}
	if step == 0 {
		c.Failf("range() arg 3 must not be zero")
	}
	s := value.NewRange(int64(start), int64(stop), int64(step))
	if s.Len() > maxRange {
		c.Failf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return s
}

// newDict is Python's dict(mapping or pairs, name=value, …).
func newDict(c value.Call) any {
	d := &value.Dict{}
	if len(c.Rest.Positional) > 1 {
		c.Failf("dict expected at most 1 argument, got %d", len(c.Rest.Positional))
	}
	if len(c.Rest.Positional) == 1 {
		from := c.Rest.Positional[0]
		if d, ok := from.(*value.Dict); ok {
			from = value.List(d.Pairs())
		}
		for _, item := range c.Iterate(from) {
			pair := c.Unpack(item, 2)
			c.Step(1)
			c.Put(d, pair[0], pair[1])
		}
	}
	for k, v := range c.Rest.Named.All() {
		c.Put(d, k, v)
	}
	return d
}

func newNamespace(c value.Call) any {
	ns := &value.Namespace{}
	for k, v := range newDict(c).(*value.Dict).All() {
		name, ok := k.(string)
		if !ok {
			c.Failf("the attribute names of a namespace must be strings")
		}
		ns.Set(c.Runtime, name, v)
	}
	return ns
}

func newCycler(c value.Call) any {
	items := c.Rest.Positional
	if len(items) == 0 {
		c.Failf("at least one item has to be provided")
	}
	cycler := &value.Namespace{}
	at := 0
	move := func(to int) (left any) {
		left, at = items[at], to%len(items)
		cycler.Attrs.Set("current", items[at])
		return left
	}
	move(0)
	cycler.Attrs.Set("next", value.NewFunction("next", func(value.Call) any { return move(at + 1) }))
	cycler.Attrs.Set("reset", value.NewFunction("reset", func(value.Call) any { move(0); return nil }))
	return cycler
}

func newJoiner(c value.Call) any {
	used := false
	return value.NewFunction("joiner", func(value.Call) any {
		if !used {
			used = true
			return ""
		}
		return c.ArgOr(0, ", ")
	})
}
