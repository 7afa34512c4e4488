package yamlfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl/internal/spelling"
)

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

// Name returns the name of the key.
func (f Field) Name() string { return f.name }

// Default documents the value of a file without this key: a bool, a number, or a
// text as the file would spell it. It does not set the variable.
func (f Field) Default(value any) Field {
	f.initial = value
	return f
}

// Required makes the absence of the key a mistake. why is appended to its message.
func (f Field) Required(why ...string) Field {
	f.required, f.why = true, strings.Join(why, "")
	return f
}

// Mapping declares a mapping with these keys. A null value means that the key is absent.
func Mapping(fields ...Field) Value {
	return Value{
		kind: yaml.MappingNode, must: "a mapping",
		schema: func(d *defs) object { return mappingSchema(d, fields) },
		take: func(r *reader, n *yaml.Node, at string) {
			r.mapping(n, at, fields, 0)
			for _, f := range fields {
				if path := below(at, f.name); f.required && r.keys[path] == nil {
					r.failf(n, "%s: missing%s", path, f.why)
				}
			}
		},
	}
}

// OneOf declares a mapping that has exactly one of these keys. Their values are mappings; null is an empty one.
func OneOf(fields ...Field) Value { return OneOfWith("", nil, fields...) }

// OneOfWith is OneOf with further keys, own, which belong to one of the keys, owner, whose value may be anything.
func OneOfWith(owner string, own []Field, fields ...Field) Value {
	allowed, all := strings.Join(namesOf(fields), ", "), slices.Concat(fields, own)
	return Value{
		kind: yaml.MappingNode, must: "a mapping with one of the keys " + allowed,
		schema: func(d *defs) object {
			out := append(mappingSchema(d, slices.Concat(fields, optional(own))), member{"minProperties", 1})
			if own == nil {
				out = append(out, member{"maxProperties", 1})
			}
			return out
		},
		take: func(r *reader, n *yaml.Node, at string) {
			before := len(r.mistakes)
			belongs := func(name string) bool { return slices.ContainsFunc(own, func(f Field) bool { return f.name == name }) }
			given := func(f Field) bool { return r.keys[below(at, f.name)] != nil }
			chosen := slices.DeleteFunc(r.mapping(n, at, all, len(fields)), belongs)
			switch {
			case len(chosen) > 1:
				r.failf(n, "%s: got %s, must be one of them", named(at), strings.Join(chosen, " and "))
				return
			case len(chosen) == 0 && len(r.mistakes) == before && !slices.ContainsFunc(own, given):
				r.failf(n, "%s: empty, must have one of the keys %s", named(at), allowed)
				return
			}
			owns := slices.Contains(chosen, owner)
			for _, f := range own {
				path := below(at, f.name)
				switch key := r.keys[path]; {
				case owns && f.required && key == nil:
					r.failf(n, "%s: missing%s", path, f.why)
				case !owns && key != nil:
					r.failf(key, "%s: given without %s, to which it belongs", path, owner)
				}
			}
		},
	}
}

// mapping reads the keys of a mapping and returns the declared ones in the order of the file. A null value is skipped, but for
// the first of the fields, of this number: for them it is an empty mapping.
func (r *reader) mapping(n *yaml.Node, at string, fields []Field, nulls int) (given []string) {
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
			if index >= nulls {
				continue
			}
			value = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: key.Line}
		}
		r.keys[path] = key
		fields[index].value.read(r, value, path)
	}
	return given
}

// optional returns fields that a schema does not require.
func optional(fields []Field) []Field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].required = false
	}
	return out
}

func namesOf(fields []Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// insteadOf suggests the key that was probably meant and lists all keys.
func insteadOf(key string, fields []Field) string {
	names := namesOf(fields)
	slices.Sort(names)
	there := "there are " + strings.Join(names, ", ")
	if name, value, _ := strings.Cut(key, ":"); name != key && slices.Contains(names, name) {
		return fmt.Sprintf(", perhaps %q is meant, with a space after the colon; %s", name+": "+value, there)
	}
	best := spelling.Meant(key, names)
	if best == "" {
		return "; " + there
	}
	return fmt.Sprintf(", perhaps %s is meant; %s", best, there)
}

// mappingSchema returns the schema of a mapping with these keys.
func mappingSchema(d *defs, fields []Field) object {
	var properties object
	var required []string
	for _, f := range fields {
		property := append(object{{"description", f.doc}}, f.value.schema(d)...)
		if f.initial != nil {
			property = append(property, member{"default", f.initial})
		}
		properties = append(properties, member{f.name, property})
		if f.required {
			required = append(required, f.name)
		}
	}
	out := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if required != nil {
		out = append(out, member{"required", required})
	}
	return out
}
