package tracer

import (
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// flatten returns a Go value as attributes: the members of its JSON form, the names of nested ones joined by dots. A
// list of strings, of numbers or of booleans stays a list, any other list is expanded by index, and null is left out.
func flatten(prefix string, value any) ([]agl.Attr, error) {
	raw, err := encode(value)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: a %T has no JSON form: %w", prefix, value, err)
	}
	return flattenJSON(nil, prefix, raw), nil
}

// encode returns the JSON form of a value. Floats keep their decimal point, and NaN and infinities become strings, as
// in [agl.NewAttributes]. Text that is not UTF-8, such as of a file that a tool has read, is no error.
func encode(value any) (jsontext.Value, error) {
	anyText := jsontext.AllowInvalidUTF8(true)
	if raw, ok := value.(jsontext.Value); ok {
		if !raw.IsValid(anyText) {
			return nil, errors.New("it is not valid JSON")
		}
		return raw, nil
	}
	return json.Marshal(value, anyText, json.Deterministic(true), json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(encodeFloat),
		json.MarshalToFunc(func(enc *jsontext.Encoder, f float32) error { return encodeFloat(enc, float64(f)) }),
	)))
}

func encodeFloat(enc *jsontext.Encoder, f float64) error {
	return enc.WriteValue(rawjson.AppendFloatText(nil, f))
}

func flattenJSON(dst []agl.Attr, prefix string, raw jsontext.Value) []agl.Attr {
	switch raw.Kind() {
	case 'n':
		return dst
	case '{':
		for name, member := range agl.Attributes(raw).All() {
			dst = flattenJSON(dst, join(prefix, name), member)
		}
		return dst
	case '[':
		if prefix != "" && raw.IsValid() && rawjson.IsScalarList(raw) {
			return append(dst, agl.Attr{Key: prefix, Value: raw})
		}
		for i, element := range jsonElements(raw) {
			dst = flattenJSON(dst, join(prefix, strconv.Itoa(i)), element)
		}
		return dst
	case '"':
		// A request may hold invalid UTF-8, which Text replaces.
		return append(dst, agl.Attr{Key: prefix, Value: rawjson.Text(raw)})
	default:
		return append(dst, agl.Attr{Key: prefix, Value: raw})
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func isObject(raw jsontext.Value) bool { return raw.Kind() == '{' && raw.IsValid(rawjson.Options()) }

// jsonElements returns the elements of a valid array.
func jsonElements(raw jsontext.Value) []jsontext.Value {
	var elements []jsontext.Value
	if rawjson.Unmarshal(raw, &elements) != nil {
		return nil
	}
	return elements
}
