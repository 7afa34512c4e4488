package agl

import (
	"errors"
	"iter"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Attributes are the attributes of a span, an event, a link or a resource: a raw JSON object, as it came in. Nil is {}. A
// value is a string, a boolean, a number, or a list of values of one of these types.
type Attributes jsontext.Value

// Attr is one attribute, for [NewAttributes].
type Attr struct {
	Key string
	// Value is a string, bool, int, int64, float64, a slice of one of these, or raw JSON (jsontext.Value).
	Value any
}

// NewAttributes returns attributes in the given order. A float that JSON cannot represent becomes the string NaN,
// Infinity or -Infinity; in a list, all elements then become strings. A value of another type is ErrInvalid.
func NewAttributes(attrs ...Attr) (Attributes, error) {
	out := append(make([]byte, 0, 48*(len(attrs)+1)), '{')
	for i, a := range attrs {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(rawjson.AppendString(out, a.Key), ':')
		var err error
		if out, err = appendAttr(out, a); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func appendAttr(dst []byte, a Attr) ([]byte, error) {
	dst, ok := appendAttrValue(dst, a.Value)
	if !ok {
		return nil, Errorf(CodeInvalid, "attribute %q: a %T cannot be an attribute; allowed are string, bool, int, int64, float64 and lists of one of them", a.Key, a.Value)
	}
	return dst, nil
}

func appendAttrValue(dst []byte, value any) ([]byte, bool) {
	switch v := value.(type) {
	case string:
		return rawjson.AppendString(dst, v), true
	case bool:
		return strconv.AppendBool(dst, v), true
	case int:
		return rawjson.AppendInt(dst, v), true
	case int64:
		return rawjson.AppendInt(dst, v), true
	case float64:
		return rawjson.AppendFloatText(dst, v), true
	case []string:
		return rawjson.AppendArray(dst, v, rawjson.AppendString[string]), true
	case []bool:
		return rawjson.AppendArray(dst, v, strconv.AppendBool), true
	case []int:
		return rawjson.AppendArray(dst, v, rawjson.AppendInt[int]), true
	case []int64:
		return rawjson.AppendArray(dst, v, rawjson.AppendInt[int64]), true
	case []float64:
		return appendAttrFloats(dst, v), true
	case jsontext.Value:
		return append(dst, v...), v.IsValid() && checkAttributeValue(v)
	default:
		return dst, false
	}
}

// appendAttrFloats appends a list. If JSON cannot represent one of its elements, all of them become strings, since a
// list holds values of one type.
func appendAttrFloats(dst []byte, list []float64) []byte {
	for _, f := range list {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return rawjson.AppendArray(dst, list, func(dst []byte, f float64) []byte {
				if math.IsNaN(f) || math.IsInf(f, 0) {
					return rawjson.AppendFloatText(dst, f)
				}
				return append(rawjson.AppendFloat(append(dst, '"'), f), '"')
			})
		}
	}
	return rawjson.AppendArray(dst, list, rawjson.AppendFloat)
}

// All yields the attributes in order, with their raw values.
func (a Attributes) All() iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		for name, value := range rawjson.Members(a) {
			if !yield(rawjson.UnquoteName(name), value) {
				return
			}
		}
	}
}

// Get returns the raw value of key.
func (a Attributes) Get(key string) (jsontext.Value, bool) {
	return rawjson.Get(jsontext.Value(a), key)
}

// GetString returns the value of key if it is a string.
func (a Attributes) GetString(key string) (string, bool) {
	raw, ok := a.Get(key)
	if !ok || raw.Kind() != '"' {
		return "", false
	}
	return rawjson.Unquote(raw), true
}

// GetFloat returns the value of key if it is a finite number.
func (a Attributes) GetFloat(key string) (float64, bool) {
	raw, ok := a.Get(key)
	if !ok || raw.Kind() != '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}

// GetInt returns the value of key if it is an integer that fits an int64.
func (a Attributes) GetInt(key string) (int64, bool) {
	raw, ok := a.Get(key)
	if !ok || raw.Kind() != '0' {
		return 0, false
	}
	i, err := strconv.ParseInt(string(raw), 10, 64)
	return i, err == nil
}

// GetBool returns the value of key if it is a boolean.
func (a Attributes) GetBool(key string) (value, ok bool) {
	raw, ok := a.Get(key)
	return string(raw) == "true", ok && (raw.Kind() == 't' || raw.Kind() == 'f')
}

// GetInts returns the value of key if it is a list of integers.
func (a Attributes) GetInts(key string) ([]int64, bool) {
	raw, ok := a.Get(key)
	if !ok || raw.Kind() != '[' {
		return nil, false
	}
	var list []int64
	if json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	return list, true
}

// With returns the attributes with attrs set: in place where a key exists, at the
// end where it does not. It rejects what [NewAttributes] rejects.
func (a Attributes) With(attrs ...Attr) (Attributes, error) {
	out := jsontext.Value(a)
	for _, attr := range attrs {
		value, err := appendAttr(nil, attr)
		if err != nil {
			return nil, err
		}
		out = rawjson.Set(out, attr.Key, value)
	}
	return Attributes(out), nil
}

// MarshalJSON returns the attributes.
func (a Attributes) MarshalJSON() ([]byte, error) {
	if len(a) == 0 {
		return []byte("{}"), nil
	}
	return a, nil
}

// UnmarshalJSON reads attributes.
func (a *Attributes) UnmarshalJSON(doc []byte) error {
	return readDoc(doc, a)
}

// UnmarshalJSONFrom reads attributes. A value that [Attributes.Validate] rejects is rejected here.
func (a *Attributes) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := reader(dec).RawDict((*jsontext.Value)(a)); err != nil {
		return err
	}
	err := a.Validate()
	if field, ok := errors.AsType[*FieldError](err); ok {
		field.Pointer = dec.StackPointer() + field.Pointer
	}
	return err
}

// Validate returns a [FieldError] for the first value that no attribute may have:
// null, an object, or a list that is not of one type.
func (a Attributes) Validate() error {
	for name, value := range rawjson.Members(a) {
		if !checkAttributeValue(value) {
			return &FieldError{
				Pointer: jsontext.Pointer("").AppendToken(rawjson.UnquoteName(name)), Type: "attribute_type",
				Message: "Input should be a string, boolean, number, or a list of values of one of these types",
				Input:   jsontext.Value(value).Clone(),
			}
		}
	}
	return nil
}

// checkAttributeValue reports whether a raw value may be an attribute.
func checkAttributeValue(value []byte) bool {
	switch value[0] {
	case '{', 'n':
		return false
	case '[':
		return rawjson.IsScalarList(value)
	}
	return true
}

// Reward is one dimension of a reward.
type Reward struct {
	Name  string // "primary" for a scalar reward
	Value float64
}

// MaxReward is the largest magnitude of a reward. Learners sum the squares of rewards, some in single precision, and
// the sum must not overflow.
const MaxReward = 1e15

// RewardAttributes returns the attributes of a reward span. The primary dimension comes first. It returns ErrInvalid
// if there is no dimension, or if a value is not finite or its magnitude exceeds [MaxReward].
func RewardAttributes(rewards ...Reward) ([]Attr, error) {
	if len(rewards) == 0 {
		return nil, Errorf(CodeInvalid, "reward: no dimension given, at least one is needed")
	}
	attrs := make([]Attr, 0, 2*len(rewards))
	for i, r := range rewards {
		if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
			return nil, Errorf(CodeInvalid, "reward %q: got %v, must be a finite number", r.Name, r.Value)
		}
		if math.Abs(r.Value) > MaxReward {
			return nil, Errorf(CodeInvalid, "reward %q: got %v, must be between -1e15 and 1e15", r.Name, r.Value)
		}
		prefix := AttrReward + "." + strconv.Itoa(i) + "."
		attrs = append(attrs, Attr{prefix + "name", r.Name}, Attr{prefix + "value", r.Value})
	}
	return attrs, nil
}
