package value

import (
	"math"
	"strings"
)

var sequenceMethods = map[string]method[*Sequence]{
	"count": {[]string{"/value"}, func(c Call, s *Sequence) any {
		n := int64(0)
		for _, item := range s.Items {
			if c.Equal(item, c.Arg(0)) {
				n++
			}
		}
		return n
	}},
	"index": {[]string{"/value", "/start?", "/stop?"}, func(c Call, s *Sequence) any {
		begin, end := c.bounds(len(s.Items), c.Arg(1), c.Arg(2))
		for i := begin; i < end; i++ {
			if c.Equal(s.Items[i], c.Arg(0)) {
				return int64(i)
			}
		}
		c.Failf("%s is not in %s", c.Repr(c.Arg(0)), s.Type)
		return nil
	}},
}

var listMethods = map[string]method[*Sequence]{
	"copy":   {nil, func(_ Call, s *Sequence) any { return List(s.Items) }},
	"append": {}, "clear": {}, "extend": {}, "insert": {}, "pop": {}, "remove": {}, "reverse": {}, "sort": {},
}

var dictMethods = map[string]method[*Dict]{
	"items": {nil, func(c Call, d *Dict) any {
		c.Step(len(d.keys))
		return &Sequence{typeItems, d.Pairs()}
	}},
	"keys":   {nil, func(_ Call, d *Dict) any { return &Sequence{typeKeys, d.keys} }},
	"values": {nil, func(_ Call, d *Dict) any { return &Sequence{typeValues, d.values} }},
	"get": {[]string{"/key", "/default?"}, func(c Call, d *Dict) any {
		if v, ok := d.get(c.Hash(c.Arg(0))); ok {
			return v
		}
		return c.Arg(1)
	}},
	"copy":     {nil, func(_ Call, d *Dict) any { return &Dict{keys: d.keys, values: d.values, index: d.index} }},
	"fromkeys": {[]string{"/iterable", "/value?"}, func(c Call, _ *Dict) any { return FromKeys(c) }},
	"clear":    {}, "pop": {}, "popitem": {}, "setdefault": {}, "update": {},
}

// FromKeys is dict.fromkeys(iterable, value).
func FromKeys(c Call) any {
	d := &Dict{}
	for _, k := range c.Iterate(c.Arg(0)) {
		c.Step(1)
		c.Put(d, k, c.Arg(1))
	}
	return d
}

// Member returns an attribute of a value. As in Jinja2's sandbox, methods that would change the value are undefined, and
// so are names that begin and end with two underscores.
func (r *Runtime) Member(obj any, name string) (v any, ok bool) {
	r.Use(obj)
	if d, ok := obj.(*Dict); ok {
		return bind(dictMethods, d, name)
	}
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		return unsafe(obj, name), true
	}
	switch o := obj.(type) {
	case string:
		if name == "format" {
			return NewFunction(name, func(c Call) any {
				f := formatter{Runtime: c.Runtime, args: c.Rest}
				return c.Made(f.format(o, 2))
			}, "**"), true
		}
		return bind(stringMethods, o, name)
	case *Sequence:
		if o.IsView() {
			return nil, false
		}
		if o.Type == TypeList {
			if v, ok := bind(listMethods, o, name); ok {
				return v, true
			}
		}
		return bind(sequenceMethods, o, name)
	case Object:
		return o.Member(r, name)
	}
	if n, ok := AsNumber(obj); ok {
		return numberMember(n, name)
	}
	return nil, false
}

func numberMember(n any, name string) (v any, ok bool) {
	f, float := n.(float64)
	var result any
	switch {
	case name == "real":
		return n, true
	case name == "is_integer":
		result = !float || f == math.Trunc(f) && !math.IsInf(f, 0)
	case name == "bit_length" && !float:
		result = int64(toBig(n).BitLen())
	default:
		return nil, false
	}
	return NewFunction(name, func(Call) any { return result }), true
}
