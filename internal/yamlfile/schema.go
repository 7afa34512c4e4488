package yamlfile

import (
	"fmt"
	"strconv"

	"github.com/agl-go/agl/internal/rawjson"
)

// object is a JSON object in the order of its members.
type object []member

type member struct {
	name  string
	value any // a bool, string, int, float64, []string, object or []object
}

// defs collects the schemas that others refer to.
type defs struct {
	named map[string]bool
	list  object
}

// ref adds a schema and returns a reference to it.
func (d *defs) ref(name string, schema object) object {
	if !d.named[name] {
		d.named[name] = true
		d.list = append(d.list, member{name, schema})
	}
	return object{{"$ref", "#/$defs/" + name}}
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
