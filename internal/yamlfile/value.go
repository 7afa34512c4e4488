package yamlfile

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Value declares one value of a file: the variable that it is read into, and its
// schema. The functions of this package create it.
type Value struct {
	kind   yaml.Kind // the kind of node that it must be; 0 is any
	must   string    // what it must be, for the error of a node of another kind
	take   func(r *reader, n *yaml.Node, at string)
	schema func(d *defs) object
}

// Must sets what errors say that the value must be, instead of "a mapping", "a list" or "a text".
func (v Value) Must(be string) Value {
	v.must = be
	return v
}

// read reads a node.
func (v Value) read(r *reader, n *yaml.Node, at string) {
	if v.kind != 0 && n.Kind != v.kind {
		r.wrong(n, at, v.must)
		return
	}
	v.take(r, n, at)
}

// List declares a list. item declares one of its items.
func List[T any](to *[]T, item func(*T) Value) Value { return listOf(to, item, 0) }

// NonEmptyList declares a list of at least one item.
func NonEmptyList[T any](to *[]T, item func(*T) Value) Value { return listOf(to, item, 1) }

func listOf[T any](to *[]T, item func(*T) Value, least int) Value {
	return Value{
		kind: yaml.SequenceNode, must: "a list",
		schema: func(d *defs) object {
			out := object{{"type", "array"}, {"items", item(new(T)).schema(d)}}
			if least > 0 {
				out = append(out, member{"minItems", least})
			}
			return out
		},
		take: func(r *reader, n *yaml.Node, at string) {
			if len(n.Content) < least {
				r.failf(n, "%s: empty, there must be one at least", at)
			}
			*to = make([]T, len(n.Content))
			for i, each := range n.Content {
				item(&(*to)[i]).read(r, r.plain(each), fmt.Sprintf("%s[%d]", at, i))
			}
		},
	}
}

// Entry is an entry of a mapping whose keys are free.
type Entry[T any] struct {
	Name  string
	Value T
}

// Map declares a mapping with any keys that match a pattern, a regular expression. what describes such a key in errors: "the
// name of a variable". Entries keep the order of the file.
func Map[T any](to *[]Entry[T], what, pattern string, value func(*T) Value) Value {
	allowed := regexp.MustCompile(pattern)
	return Value{
		kind: yaml.MappingNode, must: "a mapping",
		schema: func(d *defs) object {
			return object{
				{"type", "object"},
				{"propertyNames", object{{"pattern", pattern}}},
				{"additionalProperties", value(new(T)).schema(d)},
			}
		},
		take: func(r *reader, n *yaml.Node, at string) {
			first := make(map[string]int)
			*to = make([]Entry[T], 0, len(n.Content)/2) // never grows: values are bound to its items
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i]
				path := below(at, key.Value)
				switch line := first[key.Value]; {
				case key.Kind != yaml.ScalarNode || !allowed.MatchString(key.Value):
					r.failf(key, "%s: got %q, must be %s, like %s", at, key.Value, what, pattern)
				case line > 0:
					r.failf(key, "%s: given twice, first in line %d", path, line)
				default:
					first[key.Value] = key.Line
					r.keys[path] = key
					*to = append(*to, Entry[T]{Name: key.Value})
					value(&(*to)[len(*to)-1].Value).read(r, r.plain(n.Content[i+1]), path)
				}
			}
		},
	}
}

// Short declares a mapping that may be abbreviated to a single value, that of one of its keys.
func Short(single, mapping Value) Value {
	must := single.must + " or " + mapping.must
	return Value{
		must:   must,
		schema: func(d *defs) object { return object{{"anyOf", []object{single.schema(d), mapping.schema(d)}}} },
		take: func(r *reader, n *yaml.Node, at string) {
			switch n.Kind {
			case yaml.MappingNode:
				mapping.read(r, n, at)
			case yaml.ScalarNode:
				single.read(r, n, at)
			default:
				r.wrong(n, at, must)
			}
		},
	}
}

// Via declares a value that set converts. set is called only if the value has no mistakes.
func Via[T any](value func(*T) Value, set func(T)) Value {
	var v T
	via := value(&v)
	bound := via
	via.take = func(r *reader, n *yaml.Node, at string) {
		before := len(r.mistakes)
		bound.take(r, n, at)
		if len(r.mistakes) == before {
			set(v)
		}
	}
	return via
}
