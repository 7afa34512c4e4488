package jinja

import "strings"

// globalValues are the functions that every template has.
func globalValues() map[string]any {
	return map[string]any{
		"range":           method("range", []string{"start", "stop?", "step?"}, newRange),
		"dict":            &callable{name: "dict", call: newDict, members: map[string]any{"fromkeys": fromKeys()}},
		"namespace":       &callable{name: "namespace", call: newNamespace},
		"cycler":          method("cycler", []string{"*"}, newCycler),
		"joiner":          method("joiner", []string{"sep?"}, newJoiner),
		"raise_exception": method("raise_exception", []string{"message"}, raiseException),
		"strftime_now":    method("strftime_now", []string{"format"}, strftimeNow),
	}
}

// maxRange is the longest range that the sandbox allows.
const maxRange = 100_000

func newRange(r *run, a bound) any {
	s := span{stop: int64(r.int(a.values[0])), step: 1}
	if a.given(1) {
		s.start, s.stop = s.stop, int64(r.int(a.values[1]))
	}
	if a.given(2) {
		s.step = int64(r.int(a.values[2]))
	}
	if s.step == 0 {
		r.failf("range() arg 3 must not be zero")
	}
	const far = 1 << 62
	if max(s.start, s.stop, s.step) > far || min(s.start, s.stop, s.step) < -far {
		r.failf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	n := int64(0)
	switch {
	case s.step > 0 && s.stop > s.start:
		n = (s.stop-s.start-1)/s.step + 1
	case s.step < 0 && s.stop < s.start:
		n = (s.start-s.stop-1)/-s.step + 1
	}
	if n > maxRange {
		r.failf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	s.n = int(n)
	return s
}

// newDict is Python's dict(mapping or pairs, name=value, …).
func newDict(r *run, a callArgs) any {
	d := &Dict{}
	if len(a.pos) > 1 {
		r.failf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Dict); ok {
			for i, k := range from.keys {
				r.step(1)
				d.put(r.hash(k), k, from.values[i])
			}
		} else {
			for _, item := range r.iterate(a.pos[0]) {
				pair := r.iterate(item)
				if len(pair) != 2 {
					r.failf("dictionary update sequence element has length %d; 2 is required", len(pair))
				}
				r.step(1)
				d.put(r.hash(pair[0]), pair[0], pair[1])
			}
		}
	}
	for i, name := range a.names {
		d.Set(name, a.named[i])
	}
	return d
}

func newNamespace(r *run, a callArgs) any {
	ns := &namespace{}
	d := newDict(r, a).(*Dict)
	for i, k := range d.keys {
		name, ok := k.(string)
		if !ok {
			r.failf("the names of a namespace must be texts")
		}
		ns.set(r, name, d.values[i])
	}
	return ns
}

func newCycler(r *run, a bound) any {
	items := a.extra.pos
	if len(items) == 0 {
		r.failf("at least one item has to be provided")
	}
	at := 0
	d := &namespace{}
	update := func() { d.attrs.Set("current", items[at]) }
	update()
	d.attrs.Set("next", method("next", nil, func(*run, bound) any {
		v := items[at]
		at = (at + 1) % len(items)
		update()
		return v
	}))
	d.attrs.Set("reset", method("reset", nil, func(*run, bound) any {
		at = 0
		update()
		return nil
	}))
	return d
}

func newJoiner(_ *run, a bound) any {
	used := false
	return method("joiner", nil, func(*run, bound) any {
		if !used {
			used = true
			return ""
		}
		return a.or(0, ", ")
	})
}

func raiseException(r *run, a bound) any {
	r.failAsf(Raised, "%s", r.text(a.values[0]))
	return nil
}

// strftimeNow formats the present as strftime of the C locale does.
func strftimeNow(r *run, a bound) any {
	format, now := r.str(a.values[0]), r.now()
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if layout, ok := strftimeLayouts[format[i]]; ok {
			b.WriteString(now.Format(layout))
			continue
		}
		if format[i] == '-' && i+1 < len(format) {
			if layout, ok := strftimeLayouts[format[i+1]]; ok { // without leading zeros
				i++
				s := strings.TrimLeft(now.Format(layout), "0 ")
				if s == "" {
					s = "0"
				}
				b.WriteString(s)
				continue
			}
		}
		writeDatePart(&b, format[i], now)
	}
	return r.made(b.String())
}
