package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// The filters over sequences.

func dictPairs(d *Dict) *list {
	pairs := make([]any, len(d.keys))
	for i, k := range d.keys {
		pairs[i] = Tuple{k, d.values[i]}
	}
	return &list{pairs}
}

func filterLength(r *run, a bound) any {
	n, ok := length(a.values[0])
	if !ok {
		r.failf("object of type '%s' has no len()", typeName(a.values[0]))
	}
	if s, ok := a.values[0].(string); ok {
		r.read(s)
	}
	return int64(n)
}

func filterFirst(r *run, a bound) any {
	if g, ok := a.values[0].(*generator); ok {
		if v, ok := g.next(); ok {
			return v
		}
	} else if items := r.iterate(a.values[0]); len(items) > 0 {
		return items[0]
	}
	return &undefined{"No first item, sequence was empty."}
}

func filterLast(r *run, a bound) any {
	items, ok := r.reversible(a.values[0])
	if !ok {
		r.use(a.values[0])
		r.failf("'%s' object is not reversible", typeName(a.values[0]))
	}
	if len(items) == 0 {
		return &undefined{"No last item, sequence was empty."}
	}
	return items[len(items)-1]
}

// reversible are the items of what Python can walk backwards.
func (r *run) reversible(v any) (items []any, ok bool) {
	switch v.(type) {
	case *generator, *undefined, *loop:
		return nil, false
	}
	return r.items(v)
}

func filterReverse(r *run, a bound) any {
	v := a.values[0]
	if s, ok := v.(string); ok {
		return r.slice(s, nil, nil, int64(-1))
	}
	backwards, lazy := r.reversible(v)
	if !lazy {
		backwards = r.iterate(v)
	}
	backwards = slices.Clone(backwards)
	r.step(len(backwards))
	slices.Reverse(backwards)
	if !lazy {
		return &list{backwards}
	}
	return generate("reversed", backwards)
}

// generate gives items once.
func generate(name string, items []any) *generator {
	return &generator{name, func() (v any, ok bool) {
		if len(items) == 0 {
			return nil, false
		}
		v, items = items[0], items[1:]
		return v, true
	}}
}

func filterItems(r *run, a bound) any {
	switch d := a.values[0].(type) {
	case *undefined:
		return generate("do_items", nil)
	case *Dict:
		return generate("do_items", dictPairs(d).items)
	}
	r.failf("Can only get item pairs from a mapping.")
	return nil
}

func filterJoin(r *run, a bound) any {
	var items []any
	get := r.getter(a.or(2, nil), false, nil)
	for _, item := range r.iterate(a.values[0]) {
		items = append(items, r.text(get(item)))
	}
	return r.joinStrict(r.text(a.or(1, "")), &list{items})
}

// getter gives the value by which a filter looks at an item: an attribute, which may be a path with dots, or
// the item itself; with fold, texts in lower case. A missing attribute is def, unless that is nil.
func (r *run) getter(attribute any, fold bool, def any) func(item any) any {
	var path []any
	switch v := attribute.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(v, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && isDigit(part[0]) {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	default:
		path = []any{v}
	}
	return func(item any) any {
		r.step(1)
		for _, part := range path {
			item = r.item(item, part)
			if _, ok := item.(*undefined); ok && def != nil {
				item = def
			}
		}
		if s, ok := item.(string); ok && fold {
			r.reserve(len(s))
			return changeCase("lower", s)
		}
		return item
	}
}

func (r *run) extreme(a bound, sign int) any {
	key := r.getter(a.or(2, nil), !r.truth(a.or(1, false)), nil)
	items := r.iterate(a.values[0])
	if len(items) == 0 {
		return &undefined{"No aggregated item, sequence was empty."}
	}
	best, bestKey := items[0], key(items[0])
	for _, item := range items[1:] {
		k := key(item)
		if c, ok := r.order("<", k, bestKey); ok && c*sign > 0 {
			best, bestKey = item, k
		}
	}
	return best
}

// sorted is items in the order of their keys; equal ones keep their places.
func (r *run) sorted(items []any, key func(item any) any, reverse bool) []any {
	type keyed struct{ key, item any }
	all := make([]keyed, len(items))
	for i, item := range items {
		all[i] = keyed{key(item), item}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		c, _ := r.order("<", a.key, b.key)
		if reverse {
			return -c
		}
		return c
	})
	out := make([]any, len(all))
	for i, k := range all {
		out[i] = k.item
	}
	return out
}

func filterSort(r *run, a bound) any {
	fold := !r.truth(a.or(2, false))
	attribute := a.or(3, nil)
	key := r.getter(attribute, fold, nil)
	if s, ok := attribute.(string); ok && strings.Contains(s, ",") {
		var keys []func(any) any
		for part := range strings.SplitSeq(s, ",") {
			keys = append(keys, r.getter(part, fold, nil))
		}
		key = func(item any) any {
			all := make([]any, len(keys))
			for i, k := range keys {
				all[i] = k(item)
			}
			return &list{all}
		}
	}
	return &list{r.sorted(r.iterate(a.values[0]), key, r.truth(a.or(1, false)))}
}

func filterDictSort(r *run, a bound) any {
	d, ok := a.values[0].(*Dict)
	if !ok {
		r.use(a.values[0])
		r.failf("'%s' object has no attribute 'items'", typeName(a.values[0]))
	}
	at := int64(0)
	switch r.text(a.or(2, "key")) {
	case "key":
	case "value":
		at = 1
	default:
		r.failf(`You can only sort by either "key" or "value"`)
	}
	return &list{r.sorted(dictPairs(d).items, r.getter(at, !r.truth(a.or(1, false)), nil), r.truth(a.or(3, false)))}
}

func filterUnique(r *run, a bound) any {
	key := r.getter(a.or(2, nil), !r.truth(a.or(1, false)), nil)
	seen := map[any]bool{}
	var out []any
	for _, item := range r.iterate(a.values[0]) {
		if h := r.hash(key(item)); !seen[h] {
			seen[h] = true
			out = append(out, item)
		}
	}
	return generate("sync_do_unique", out)
}

func filterGroupBy(r *run, a bound) any {
	attribute, def := a.values[1], a.or(2, nil)
	fold := !r.truth(a.or(3, false))
	key, plain := r.getter(attribute, fold, def), r.getter(attribute, false, def)
	var groups []any
	var last any
	var members *list
	for _, item := range r.sorted(r.iterate(a.values[0]), key, false) {
		k := key(item)
		if members == nil || !r.equal(k, last) {
			members, last = &list{}, k
			groups = append(groups, Tuple{plain(item), members})
		}
		members.items = append(members.items, item)
	}
	return &list{groups}
}

func filterSum(r *run, a bound) any {
	get := r.getter(a.or(1, nil), false, nil)
	total := a.or(2, int64(0))
	if _, ok := total.(string); ok {
		r.failf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, item := range r.iterate(a.values[0]) {
		total = r.binary("+", total, get(item))
	}
	return total
}

func filterBatch(r *run, a bound) any {
	n := r.int(a.values[1])
	var rows, row []any
	for _, item := range r.iterate(a.values[0]) {
		if len(row) == n {
			rows, row = append(rows, &list{row}), nil
		}
		row = append(row, item)
	}
	if fill := a.or(2, nil); fill != nil && len(row) > 0 && len(row) < n {
		r.reserve(times(n, 16))
		for len(row) < n {
			row = append(row, fill)
		}
	}
	if len(row) > 0 {
		rows = append(rows, &list{row})
	}
	return generate("do_batch", rows)
}

func filterSlice(r *run, a bound) any {
	items, n := r.iterate(a.values[0]), r.int(a.values[1])
	if n <= 0 {
		r.failf("integer division or modulo by zero")
	}
	r.reserve(times(n, 16))
	r.step(n)
	size, longer := len(items)/n, len(items)%n
	var columns []any
	for i := range n {
		begin := i*size + min(i, longer)
		end := begin + size
		if i < longer {
			end++
		}
		column := slices.Clone(items[begin:end])
		if fill := a.or(2, nil); fill != nil && i >= longer {
			column = append(column, fill)
		}
		columns = append(columns, &list{column})
	}
	return generate("sync_do_slice", columns)
}

func filterMap(r *run, a bound) any {
	if !r.truth(a.values[0]) {
		return generate("sync_do_map", nil)
	}
	source := r.stream(a.values[0])
	var apply func(item any) any
	if len(a.extra.pos) == 0 {
		var attribute, def any
		for i, name := range a.extra.names {
			switch name {
			case "attribute":
				attribute = a.extra.named[i]
			case "default":
				def = a.extra.named[i]
			default:
				r.failf("Unexpected keyword argument %s", quote(name))
			}
		}
		if attribute == nil {
			r.failf("map requires a filter argument")
		}
		apply = r.getter(attribute, false, def)
	} else {
		name := r.str(a.extra.pos[0])
		filter, ok := r.filters[name]
		if !ok {
			r.failf("No filter named %s.", quote(name))
		}
		apply = func(item any) any {
			args := a.extra
			args.pos = append([]any{item}, args.pos[1:]...)
			return filter.call(r, name, args)
		}
	}
	return &generator{"sync_do_map", func() (any, bool) {
		item, ok := source()
		if !ok {
			return nil, false
		}
		r.step(1)
		return apply(item), true
	}}
}

// stream gives the items of v one by one.
func (r *run) stream(v any) func() (any, bool) {
	if g, ok := v.(*generator); ok {
		return g.next
	}
	return generate("", r.iterate(v)).next
}

// selectFilter keeps the items that pass a test, or of which an attribute does.
func selectFilter(name string, byAttribute, keep bool) func(r *run, a bound) any {
	return func(r *run, a bound) any {
		if !r.truth(a.values[0]) {
			return generate(name, nil)
		}
		get := func(item any) any { return item }
		args := a.extra
		if byAttribute {
			if len(args.pos) == 0 {
				r.failf("Missing parameter for attribute name")
			}
			get = r.getter(args.pos[0], false, nil)
			args.pos = args.pos[1:]
		}
		passes := func(item any) bool { return r.truth(item) }
		if len(args.pos) > 0 {
			named := r.str(args.pos[0])
			test, ok := r.tests[named]
			if !ok {
				r.failf("No test named %s.", quote(named))
			}
			passes = func(item any) bool {
				with := args
				with.pos = append([]any{item}, args.pos[1:]...)
				return r.truth(test.call(r, named, with))
			}
		}
		source := r.stream(a.values[0])
		return &generator{"select_or_reject", func() (any, bool) {
			for {
				item, ok := source()
				if !ok {
					return nil, false
				}
				r.step(1)
				if passes(get(item)) == keep {
					return item, true
				}
			}
		}}
	}
}
