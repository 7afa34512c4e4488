package otlp

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// attributes translates attributes, in order. A value that an attribute cannot hold becomes several attributes: one
// for each key of a map, or for each index of a list of mixed types, appended to the name after a dot. Empty values
// are left out. Attributes that are too large are an error.
func (g *growth) attributes(m pcommon.Map) (agl.Attributes, error) {
	out := append(make([]byte, 0, 64*m.Len()+2), '{')
	for key, v := range m.All() {
		var err error
		if out, err = g.appendAttribute(out, key, v); err != nil {
			return nil, err
		}
	}
	out = append(out, '}')
	return out, g.charge(len(out))
}

// growth counts down how much larger translation may make a request.
type growth struct{ left int }

func (g *growth) charge(n int) error {
	if g.left -= n; g.left < 0 {
		return fmt.Errorf("has attributes that make the request more than %d times larger, once the names of nested values are spelled out", MaxGrowth)
	}
	return nil
}

func (g *growth) appendAttribute(dst []byte, key string, v pcommon.Value) (_ []byte, err error) {
	switch {
	case len(key) > maxKey:
		return nil, fmt.Errorf("has an attribute with a name of %d bytes, must be at most %d", len(key), maxKey)
	case len(dst) > g.left:
		return nil, g.charge(len(dst))
	}
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return dst, nil
	case pcommon.ValueTypeMap:
		for name, member := range v.Map().All() {
			if dst, err = g.appendAttribute(dst, key+"."+name, member); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case pcommon.ValueTypeSlice:
		if !uniform(v.Slice()) {
			for i, element := range v.Slice().All() {
				if dst, err = g.appendAttribute(dst, key+"."+strconv.Itoa(i), element); err != nil {
					return nil, err
				}
			}
			return dst, nil
		}
		dst = append(appendKey(dst, key), '[')
		for i, element := range v.Slice().All() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendScalar(dst, element)
		}
		return append(dst, ']'), nil
	default:
		return appendScalar(appendKey(dst, key), v), nil
	}
}

func appendKey(dst []byte, key string) []byte {
	if len(dst) > 1 {
		dst = append(dst, ',')
	}
	return append(rawjson.AppendString(dst, key), ':')
}

// uniform reports whether all elements have the same JSON type, and one that a list may hold.
func uniform(s pcommon.Slice) bool {
	for i := range s.Len() {
		if kind := scalarKind(s.At(i)); kind == 0 || kind != scalarKind(s.At(0)) {
			return false
		}
	}
	return true
}

func scalarKind(v pcommon.Value) byte {
	switch v.Type() {
	case pcommon.ValueTypeStr, pcommon.ValueTypeBytes:
		return '"'
	case pcommon.ValueTypeBool:
		return 't'
	case pcommon.ValueTypeInt:
		return '0'
	case pcommon.ValueTypeDouble:
		if math.IsNaN(v.Double()) || math.IsInf(v.Double(), 0) {
			return '"'
		}
		return '0'
	case pcommon.ValueTypeEmpty, pcommon.ValueTypeMap, pcommon.ValueTypeSlice:
	}
	return 0
}

func appendScalar(dst []byte, v pcommon.Value) []byte {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return strconv.AppendBool(dst, v.Bool())
	case pcommon.ValueTypeInt:
		return strconv.AppendInt(dst, v.Int(), 10)
	case pcommon.ValueTypeDouble:
		return rawjson.AppendFloatText(dst, v.Double())
	case pcommon.ValueTypeBytes:
		return append(hex.AppendEncode(append(dst, '"'), v.Bytes().AsRaw()), '"')
	case pcommon.ValueTypeStr, pcommon.ValueTypeEmpty, pcommon.ValueTypeMap, pcommon.ValueTypeSlice:
	}
	return rawjson.AppendString(dst, v.Str())
}
