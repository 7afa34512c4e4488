package yamlfile

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl/internal/rawjson"
)

// Object declares a mapping that is read as a JSON object. Numbers keep their spelling.
func Object(to *jsontext.Value) Value {
	return Value{
		kind: yaml.MappingNode, must: "a mapping",
		schema: func(*defs) object { return object{{"type", "object"}} },
		take:   func(r *reader, n *yaml.Node, at string) { *to = r.appendJSON(nil, n, at) },
	}
}

// appendJSON appends a node as JSON.
func (r *reader) appendJSON(dst []byte, n *yaml.Node, at string) []byte {
	n = r.plain(n)
	switch {
	case n.Kind == yaml.MappingNode:
		o := rawjson.NewObject(dst)
		seen := make(map[string]bool)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if seen[key.Value] {
				r.failf(key, "%s.%s: given twice", at, key.Value)
			}
			seen[key.Value] = true
			o.AnyKey(key.Value)
			o = r.appendJSON(o, n.Content[i+1], at+"."+key.Value)
		}
		return o.End()
	case n.Kind == yaml.SequenceNode:
		dst = append(dst, '[')
		for i, item := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.appendJSON(dst, item, at+"["+strconv.Itoa(i)+"]")
		}
		return append(dst, ']')
	case n.Tag == nullTag:
		return append(dst, "null"...)
	case n.Tag == "!!bool":
		return append(dst, strings.ToLower(n.Value)...)
	case n.Tag == "!!int" || n.Tag == "!!float":
		if number := jsontext.Value(n.Value); number.IsValid() && number.Kind() == '0' {
			return append(dst, n.Value...)
		}
		r.failf(n, "%s: got %s, must be spelled as JSON has numbers, such as 12 or 0.5", at, n.Value)
		return append(dst, '0')
	default:
		return rawjson.AppendString(dst, n.Value)
	}
}
