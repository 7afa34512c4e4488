package jinja

import (
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl/jinja/internal/pytext"
	"github.com/agl-go/agl/jinja/internal/value"
)

func filterLength(c value.Call) any {
	if s, ok := c.Arg(0).(string); ok {
		c.Read(s)
	}
	n, ok := value.Length(c.Arg(0))
	if !ok {
		c.Failf("object of type '%s' has no len()", value.TypeName(c.Arg(0)))
	}
	return int64(n)
}

func filterFirst(c value.Call) any {
	if v, ok := stream(c, c.Arg(0))(); ok {
		return v
	}
	return &value.Undefined{Message: "No first item, sequence was empty."}
}

// stream returns an iterator over the items of v.
func stream(c value.Call, v any) func() (any, bool) {
	if it, ok := v.(*value.Iterator); ok {
		return it.Next
	}
	return value.IterateOnce("", c.Iterate(v)).Next
}

func filterLast(c value.Call) any {
	items, ok := reversible(c, c.Arg(0))
	if !ok {
		c.Failf("'%s' object is not reversible", value.TypeName(c.Arg(0)))
	}
	if len(items) == 0 {
		return &value.Undefined{Message: "No last item, sequence was empty."}
	}
	return items[len(items)-1]
}

// reversible returns the items of v if Python can iterate over it backwards.
func reversible(c value.Call, v any) (items []any, ok bool) {
	if _, forwards := v.(value.Iterable); forwards {
		return nil, false
	}
	return c.Items(v)
}

func filterReverse(c value.Call) any {
	if s, ok := c.Arg(0).(string); ok {
		return c.Slice(s, nil, nil, int64(-1))
	}
	items, ok := reversible(c, c.Arg(0))
	if !ok {
		items = c.Iterate(c.Arg(0))
	}
	c.Step(len(items))
	items = slices.Clone(items)
	slices.Reverse(items)
	if !ok {
		return value.List(items)
	}
	return value.IterateOnce("reversed", items)
}

func filterItems(c value.Call) any {
	switch d := c.Arg(0).(type) {
	case *value.Undefined:
		return value.IterateOnce("do_items", nil)
	case *value.Dict:
		return value.IterateOnce("do_items", d.Pairs())
	}
	c.Failf("Can only get item pairs from a mapping.")
	return nil
}

func filterJoin(c value.Call) any {
	items := slices.Clone(c.Iterate(c.Arg(0)))
	get := getter(c, c.Arg(2), false, nil)
	for i, item := range items {
		items[i] = c.Text(get(item))
	}
	return c.Join(c.ArgText(1, ""), items)
}

// getter returns a function that gets an attribute of an item: a name, a path with dots or an index. If attribute is
// nil, the function returns the item itself. With fold, it converts strings to lower case. def replaces a missing
// attribute unless it is nil.
func getter(c value.Call, attribute any, fold bool, def any) func(item any) any {
	var path []any
	switch v := attribute.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(v, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && pytext.IsDigit(part[0]) {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	default:
		path = []any{v}
	}
	return func(item any) any {
		c.Step(1)
		for _, part := range path {
			item = c.Item(item, part)
			if _, ok := item.(*value.Undefined); ok && def != nil {
				item = def
			}
		}
		if s, ok := item.(string); ok && fold {
			return c.ChangeCase("lower", s)
		}
		return item
	}
}

// filterExtreme returns the greatest item, or the least if sign is negative.
func filterExtreme(c value.Call, sign int) any {
	key := getter(c, c.Arg(2), !c.Flag(1), nil)
	items := c.Iterate(c.Arg(0))
	if len(items) == 0 {
		return &value.Undefined{Message: "No aggregated item, sequence was empty."}
	}
	best, bestKey := items[0], key(items[0])
	for _, item := range items[1:] {
		k := key(item)
		if order, ok := c.Order("<", k, bestKey); ok && order*sign > 0 {
			best, bestKey = item, k
		}
	}
	return best
}

// sorted returns the items as a list, ordered by their keys. The sort is stable.
func sorted(c value.Call, items []any, key func(item any) any, reverse bool) *value.Sequence {
	type keyed struct{ key, item any }
	all := make([]keyed, len(items))
	for i, item := range items {
		all[i] = keyed{key(item), item}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		order, _ := c.Order("<", a.key, b.key)
		if reverse {
			return -order
		}
		return order
	})
	out := make([]any, len(all))
	for i, k := range all {
		out[i] = k.item
	}
	return value.List(out)
}

func filterSort(c value.Call) any {
	fold, attribute := !c.Flag(2), c.Arg(3)
	key := getter(c, attribute, fold, nil)
	if s, ok := attribute.(string); ok && strings.Contains(s, ",") {
		var keys []func(any) any
		for part := range strings.SplitSeq(s, ",") {
			keys = append(keys, getter(c, part, fold, nil))
		}
		key = func(item any) any {
			all := make([]any, len(keys))
			for i, k := range keys {
				all[i] = k(item)
			}
			return value.List(all)
		}
	}
	return sorted(c, c.Iterate(c.Arg(0)), key, c.Flag(1))
}

func filterDictSort(c value.Call) any {
	c.Use(c.Arg(0))
	d, ok := c.Arg(0).(*value.Dict)
	if !ok {
		c.Failf("'%s' object has no attribute 'items'", value.TypeName(c.Arg(0)))
	}
	at := slices.Index([]string{"key", "value"}, c.ArgText(2, "key"))
	if at < 0 {
		c.Failf(`You can only sort by either "key" or "value"`)
	}
	return sorted(c, d.Pairs(), getter(c, int64(at), !c.Flag(1), nil), c.Flag(3))
}

func filterUnique(c value.Call) any {
	key := getter(c, c.Arg(2), !c.Flag(1), nil)
	seen := map[any]bool{}
	var out []any
	for _, item := range c.Iterate(c.Arg(0)) {
		if h := c.Hash(key(item)); !seen[h] {
			seen[h] = true
			out = append(out, item)
		}
	}
	return value.IterateOnce("sync_do_unique", out)
}

func filterGroupBy(c value.Call) any {
	key, plain := getter(c, c.Arg(1), !c.Flag(3), c.Arg(2)), getter(c, c.Arg(1), false, c.Arg(2))
	groups := value.List(nil)
	var last any
	var members *value.Sequence
	for _, item := range sorted(c, c.Iterate(c.Arg(0)), key, false).Items {
		k := key(item)
		if members == nil || !c.Equal(k, last) {
			members, last = value.List(nil), k
			groups.Items = append(groups.Items, value.Tuple(plain(item), members))
		}
		members.Items = append(members.Items, item)
	}
	return groups
}

func filterSum(c value.Call) any {
	get := getter(c, c.Arg(1), false, nil)
	total := c.ArgOr(2, int64(0))
	if _, ok := total.(string); ok {
		c.Failf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, item := range c.Iterate(c.Arg(0)) {
		total = c.Binary("+", total, get(item))
	}
	return total
}

func filterBatch(c value.Call) any {
	n := c.ArgInt(1, 0)
	var rows []any
	row := value.List(nil)
	for _, item := range c.Iterate(c.Arg(0)) {
		if len(row.Items) == n {
			rows = append(rows, row)
			row = value.List(nil)
		}
		row.Items = append(row.Items, item)
	}
	if len(row.Items) > 0 {
		rows = append(rows, row)
		if fill := c.Arg(2); fill != nil && len(row.Items) < n {
			c.Reserve(value.Times(n, 16))
			row.Items = append(row.Items, slices.Repeat([]any{fill}, n-len(row.Items))...)
		}
	}
	return value.IterateOnce("do_batch", rows)
}

func filterSlice(c value.Call) any {
	items, n := c.Iterate(c.Arg(0)), c.ArgInt(1, 0)
	if n <= 0 {
		c.Failf("division by zero")
	}
	c.Reserve(value.Times(n, 16))
	c.Step(n)
	size, longer := len(items)/n, len(items)%n
	columns := make([]any, n)
	for i := range columns {
		begin := i*size + min(i, longer)
		end := begin + size
		if i < longer {
			end++
		}
		column := slices.Clone(items[begin:end])
		if fill := c.Arg(2); fill != nil && i >= longer {
			column = append(column, fill)
		}
		columns[i] = value.List(column)
	}
	return value.IterateOnce("sync_do_slice", columns)
}

// mapFilter returns the filter map, which applies one of the filters or gets an attribute.
func mapFilter(filters map[string]value.Builtin) func(c value.Call) any {
	return func(c value.Call) any {
		if !c.Truth(c.Arg(0)) {
			return value.IterateOnce("sync_do_map", nil)
		}
		next := stream(c, c.Arg(0))
		apply := named(c, "filter", filters, c.Rest.Positional)
		if apply == nil {
			var attribute, def any
			for k, v := range c.Rest.Named.All() {
				switch k {
				case "attribute":
					attribute = v
				case "default":
					def = v
				default:
					c.Failf("Unexpected keyword argument %s", c.Repr(k))
				}
			}
			if attribute == nil {
				c.Failf("map requires a filter argument")
			}
			apply = getter(c, attribute, false, def)
		}
		return value.NewIterator("sync_do_map", func() (any, bool) {
			item, ok := next()
			if !ok {
				return nil, false
			}
			c.Step(1)
			return apply(item), true
		})
	}
}

// named looks up the filter or test whose name is the first of args. It returns a function that applies it to an item
// with the other arguments of the call, or nil if there are no args.
func named(c value.Call, what string, table map[string]value.Builtin, args []any) func(item any) any {
	if len(args) == 0 {
		return nil
	}
	name := c.Str(args[0])
	f, ok := table[name]
	if !ok {
		c.Failf("No %s named %s.", what, pytext.Quote(name))
	}
	return func(item any) any {
		return f.Call(c.Runtime, name, value.Args{Positional: append([]any{item}, args[1:]...), Named: c.Rest.Named})
	}
}

// selectFilter returns a filter that keeps the items that pass a test, or those that fail if keep is false. With
// byAttribute it tests an attribute of the item.
func selectFilter(tests map[string]value.Builtin, byAttribute, keep bool) func(c value.Call) any {
	return func(c value.Call) any {
		if !c.Truth(c.Arg(0)) {
			return value.IterateOnce("select_or_reject", nil)
		}
		args := c.Rest.Positional
		get := getter(c, nil, false, nil)
		if byAttribute {
			if len(args) == 0 {
				c.Failf("Missing parameter for attribute name")
			}
			get, args = getter(c, args[0], false, nil), args[1:]
		}
		passes := named(c, "test", tests, args)
		if passes == nil {
			passes = func(item any) any { return item }
		}
		next := stream(c, c.Arg(0))
		return value.NewIterator("select_or_reject", func() (any, bool) {
			for {
				item, ok := next()
				if !ok {
					return nil, false
				}
				c.Step(1)
				if c.Truth(passes(get(item))) == keep {
					return item, true
				}
			}
		})
	}
}
