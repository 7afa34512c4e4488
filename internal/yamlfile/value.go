package yamlfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value declares one value of a file: how it is read into what it is bound to,
// and what its schema is. It is made by the functions of this package.
type Value struct {
	kind   yaml.Kind // that it must have; 0 is any
	must   string    // what a value of another kind is told to be
	take   func(r *reader, n *yaml.Node, at string)
	schema func(d *defs) object
}

// Must says what a value of another kind is told to be, instead of "a mapping",
// "a list" or "a text".
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

// Field is a key of a mapping.
type Field struct {
	name     string
	doc      string
	value    Value
	initial  any
	required bool
	why      string
}

// Key declares a key: what it means and what its value is.
func Key(name, doc string, value Value) Field { return Field{name: name, doc: doc, value: value} }

// Name is that of the key.
func (f Field) Name() string { return f.name }

// Default says what a file that has no such key gets: a bool, a number, or a text
// in the words of the file. It is for readers; the value stays what it is bound to.
func (f Field) Default(value any) Field {
	f.initial = value
	return f
}

// Required says that the key must be there; why, if given, is added to the
// mistake of a file that has none.
func (f Field) Required(why ...string) Field {
	f.required, f.why = true, strings.Join(why, "")
	return f
}

// Mapping declares a mapping with these keys. A key whose value is null is as
// good as none.
func Mapping(fields ...Field) Value {
	return Value{
		kind: yaml.MappingNode, must: "a mapping",
		schema: func(d *defs) object { return d.mapping(fields) },
		take: func(r *reader, n *yaml.Node, at string) {
			r.mapping(n, at, fields, false)
			for _, f := range fields {
				if path := below(at, f.name); f.required && r.keys[path] == nil {
					r.failf(n, "%s: missing%s", path, f.why)
				}
			}
		},
	}
}

// OneOf declares a mapping that has exactly one of these keys, whose values are
// mappings. One that is null is empty.
func OneOf(fields ...Field) Value {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	allowed := strings.Join(names, ", ")
	return Value{
		kind: yaml.MappingNode, must: "a mapping with one of the keys " + allowed,
		schema: func(d *defs) object {
			return append(d.mapping(fields), member{"minProperties", 1}, member{"maxProperties", 1})
		},
		take: func(r *reader, n *yaml.Node, at string) {
			given := slices.Compact(r.mapping(n, at, fields, true))
			switch {
			case len(given) > 1:
				r.failf(n, "%s: got %s, must be one of them", named(at), strings.Join(given, " and "))
			case len(n.Content) == 0:
				r.failf(n, "%s: empty, must have one of the keys %s", named(at), allowed)
			}
		},
	}
}

// mapping reads the keys of a mapping and returns those that are declared, in the
// file's order. A null is skipped, or else an empty mapping.
func (r *reader) mapping(n *yaml.Node, at string, fields []Field, nulls bool) (given []string) {
	first := make(map[string]*yaml.Node)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], r.plain(n.Content[i+1])
		path := below(at, key.Value)
		index := slices.IndexFunc(fields, func(f Field) bool { return f.name == key.Value })
		switch {
		case index < 0:
			r.failf(key, "%s: unknown%s", path, insteadOf(key.Value, fields))
			continue
		case first[key.Value] != nil:
			r.failf(key, "%s: given twice, first in line %d", path, first[key.Value].Line)
			continue
		}
		first[key.Value] = key
		given = append(given, key.Value)
		if value.Tag == nullTag {
			if !nulls {
				continue
			}
			value = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: key.Line}
		}
		r.keys[path] = key
		fields[index].value.read(r, value, path)
	}
	return given
}

// insteadOf says which key was perhaps meant, and which there are.
func insteadOf(key string, fields []Field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	slices.Sort(names)
	there := "there are " + strings.Join(names, ", ")
	best, least := "", 3 // more edits than that make another word
	for _, name := range names {
		if d := distance(key, name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	if best == "" {
		return "; " + there
	}
	return fmt.Sprintf(", perhaps %s is meant; %s", best, there)
}

// distance is the number of letters to insert, delete or replace that turns one
// word into the other (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// List declares a list; item declares one of its items.
func List[T any](to *[]T, item func(*T) Value) Value { return list(to, item, 0) }

// NonEmptyList declares a list of one item at least.
func NonEmptyList[T any](to *[]T, item func(*T) Value) Value { return list(to, item, 1) }

func list[T any](to *[]T, item func(*T) Value, least int) Value {
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

// Map declares a mapping whose keys are free but for a pattern, a regular
// expression; what says what such a key is called: "the name of a variable".
// Entries keep the file's order.
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
			*to = make([]Entry[T], 0, len(n.Content)/2) // whose items stay where they are
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

// Short declares a mapping that may be written as a single value, which stands
// for one of its keys.
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

// Via declares a value that is not kept as it is read: set gets it, once it is
// without mistakes.
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

// Scope is a value that has been read, for checks that no declaration of a key
// can make.
type Scope struct {
	r     *reader
	n     *yaml.Node
	at    string
	clean bool
}

// Check looks at the value once it has been read; it is not called for one of
// the wrong kind.
func (v Value) Check(look func(*Scope)) Value {
	checked := v
	checked.take = func(r *reader, n *yaml.Node, at string) {
		before := len(r.mistakes)
		v.take(r, n, at)
		look(&Scope{r: r, n: n, at: at, clean: len(r.mistakes) == before})
	}
	return checked
}

// Clean reports whether no mistake was found in the value.
func (s *Scope) Clean() bool { return s.clean }

// Given reports whether the file has a key, by its path below the value, and a
// value for it that is not null.
func (s *Scope) Given(path string) bool { return s.r.keys[below(s.at, path)] != nil }

// Failf reports a mistake at a key, by its path below the value. Where the file
// has no such key, the line is that of the nearest one around it.
func (s *Scope) Failf(path, format string, args ...any) {
	s.r.failf(s.node(path), "%s: %s", named(below(s.at, path)), fmt.Sprintf(format, args...))
}

// Fail reports an error that others have found in the value; nil is none. Joined
// errors are mistakes of their own.
func (s *Scope) Fail(err error) { s.r.errors(s.n, "", err) }

// FailAt is Fail for the value of a key, whose path is added.
func (s *Scope) FailAt(path string, err error) {
	s.r.errors(s.node(path), named(below(s.at, path))+": ", err)
}

func (s *Scope) node(path string) *yaml.Node {
	for path != "" {
		if n := s.r.keys[below(s.at, path)]; n != nil {
			return n
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return s.n
}
