package wire

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The values of the protocol's DType.
const (
	dtypeFloat32  = 1
	dtypeInt64    = 2
	dtypeInt32    = 3
	dtypeBfloat16 = 4
)

// field is one field of a message: Bytes or Number is set, according to its type.
type field struct {
	num    protowire.Number
	bytes  []byte
	number uint64
	typ    protowire.Type
}

// fields calls do with each field of a message. Errors are agl.CodeInvalid and name the message.
func fields(message string, b []byte, do func(f field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return invalid("%s: %w", message, protowire.ParseError(n))
		}
		b = b[n:]
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.number, n = protowire.ConsumeFixed64(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return invalid("%s: field %d: %w", message, num, protowire.ParseError(n))
		}
		b = b[n:]
		if err := do(f); err != nil {
			return invalid("%s: %w", message, err)
		}
	}
	return nil
}

// need reports a field of another type than the schema's.
func (f field) need(typ protowire.Type) error {
	if f.typ != typ {
		return invalid("field %d has wire type %d; %d is needed", f.num, f.typ, typ)
	}
	return nil
}

// float is the number of a field of type double.
func (f field) float() (float64, error) {
	return math.Float64frombits(f.number), f.need(protowire.Fixed64Type)
}

// repeatedInts adds the elements of a repeated integer field, packed or not.
func (f field) repeatedInts(to []int64) ([]int64, error) {
	if f.typ == protowire.VarintType {
		return append(to, int64(f.number)), nil
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, invalid("field %d: %w", f.num, protowire.ParseError(n))
		}
		to, b = append(to, int64(v)), b[n:]
	}
	return to, f.need(protowire.BytesType)
}

// entry reads an entry of a map, whose value is of type typ.
func entry(b []byte, typ protowire.Type) (key string, value field, err error) {
	value.typ = typ
	err = fields("map entry", b, func(f field) error {
		switch f.num {
		case 1:
			key = string(f.bytes)
			return f.need(protowire.BytesType)
		case 2:
			value = f
			return f.need(typ)
		}
		return nil
	})
	return key, value, err
}

func appendMessage(b []byte, num protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), message)
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendPacked(b []byte, num protowire.Number, values []int64) []byte {
	if len(values) == 0 {
		return b
	}
	var packed []byte
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	return appendMessage(b, num, packed)
}

func appendDouble(b []byte, num protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), math.Float64bits(v))
}

// appendNumbers adds a map of doubles, in the order of its keys.
func appendNumbers(b []byte, num protowire.Number, m map[string]float64) []byte {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b = appendMessage(b, num, appendDouble(appendText(nil, 1, key), 2, m[key]))
	}
	return b
}

// Arrays of numbers are little-endian bytes.

func packFloats(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func packTokens(ids []int32) []byte {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b
}

func packInts(v []int64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

func unpackFloats(b []byte) ([]float32, error) {
	if len(b)%4 != 0 {
		return nil, invalid("%d bytes are not an array of 4-byte numbers", len(b))
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, nil
}

func unpackTokens(b []byte) ([]int32, error) {
	if len(b)%4 != 0 {
		return nil, invalid("%d bytes are not an array of 4-byte numbers", len(b))
	}
	v := make([]int32, len(b)/4)
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, nil
}

func unpackInts(b []byte) ([]int64, error) {
	if len(b)%8 != 0 {
		return nil, invalid("%d bytes are not an array of 8-byte numbers", len(b))
	}
	v := make([]int64, len(b)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return v, nil
}

// unpack reads elements of a DType.
func unpack(dtype uint64, b []byte) (Tensor, error) {
	switch dtype {
	case dtypeFloat32:
		v, err := unpackFloats(b)
		return Tensor{Floats: v}, err
	case dtypeInt64:
		v, err := unpackInts(b)
		return Tensor{Ints: v}, err
	case dtypeInt32:
		v, err := unpackTokens(b)
		return TokenTensor(v), err
	case dtypeBfloat16:
		if len(b)%2 != 0 {
			return Tensor{}, invalid("%d bytes are not an array of 2-byte numbers", len(b))
		}
		v := make([]float32, len(b)/2)
		for i := range v {
			// A bfloat16 is the upper half of a float32.
			v[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		}
		return Tensor{Floats: v}, nil
	}
	return Tensor{}, invalid("dtype %d is unknown", dtype)
}

func (t Tensor) pack() (dtype uint64, data []byte) {
	if t.Ints != nil {
		return dtypeInt64, packInts(t.Ints)
	}
	return dtypeFloat32, packFloats(t.Floats)
}

func itemSize(dtype uint64) int64 {
	switch dtype {
	case dtypeInt64:
		return 8
	case dtypeBfloat16:
		return 2
	}
	return 4
}
