package yamlfile

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Schema returns the JSON Schema (draft 2020-12) of what a declaration reads.
// What the declaration is bound to is left alone.
//
// A document that the schema refuses is refused by Read, too, but for a null,
// which Read takes for a key that is not there; checks that go beyond single
// values are Read's alone.
func Schema(title, description string, root Value) jsontext.Value {
	d := &defs{named: make(map[string]bool)}
	schema := object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}, {"description", description}}
	schema = append(schema, root.schema(d)...)
	if len(d.list) > 0 {
		schema = append(schema, member{"$defs", d.list})
	}
	out := jsontext.Value(schema.appendJSON(nil))
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		panic(fmt.Sprintf("a schema is no JSON: %v", err)) // it is written by the functions below
	}
	return append(out, '\n')
}

// object is a JSON object in the order of its members.
type object []member

type member struct {
	name  string
	value any // a bool, string, int, float64, []string, object or []object
}

// defs gathers the schemas that others refer to.
type defs struct {
	named map[string]bool
	list  object
}

// ref makes a schema one that is referred to.
func (d *defs) ref(name string, schema object) object {
	if !d.named[name] {
		d.named[name] = true
		d.list = append(d.list, member{name, schema})
	}
	return object{{"$ref", "#/$defs/" + name}}
}

// mapping is the schema of a mapping with these keys.
func (d *defs) mapping(fields []Field) object {
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

func (o object) appendJSON(dst []byte) []byte {
	out := rawjson.NewObject(dst)
	for _, m := range o {
		out.AnyKey(m.name)
		out = appendAny(out, m.value)
	}
	return out.End()
}

func appendAny(dst []byte, value any) []byte {
	switch v := value.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return rawjson.AppendString(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case float64:
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	case object:
		return v.appendJSON(dst)
	case []string:
		return rawjson.AppendArray(dst, v, rawjson.AppendString[string])
	case []object:
		return rawjson.AppendArray(dst, v, func(dst []byte, o object) []byte { return o.appendJSON(dst) })
	default:
		panic(fmt.Sprintf("a schema cannot hold a %T", value))
	}
}
