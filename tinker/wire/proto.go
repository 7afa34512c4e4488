package wire

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message. Its value is in bytes or number, according to its type.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	bytes  []byte
	number uint64
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

func (f field) text(to *string) error {
	*to = string(f.bytes)
	return f.need(protowire.BytesType)
}

func (f field) raw(to *[]byte) error {
	*to = f.bytes
	return f.need(protowire.BytesType)
}

func (f field) uint(to *uint64) error {
	*to = f.number
	return f.need(protowire.VarintType)
}

func (f field) double(to *float64) error {
	*to = math.Float64frombits(f.number)
	return f.need(protowire.Fixed64Type)
}

// ints adds the elements of a repeated integer field, packed or not.
func (f field) ints(to *[]int64) error {
	if f.typ == protowire.VarintType {
		*to = append(*to, int64(f.number))
		return nil
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return invalid("field %d: %w", f.num, protowire.ParseError(n))
		}
		*to, b = append(*to, int64(v)), b[n:]
	}
	return f.need(protowire.BytesType)
}

// entry reads an entry of a map whose values are of type typ.
func (f field) entry(typ protowire.Type) (key string, value field, err error) {
	value.typ = typ
	err = fields("map entry", f.bytes, func(f field) error {
		switch f.num {
		case 1:
			return f.text(&key)
		case 2:
			value = f
			return f.need(typ)
		}
		return nil
	})
	return key, value, err
}

// doubleEntry adds an entry of a map of doubles.
func (f field) doubleEntry(to map[string]float64) error {
	key, value, err := f.entry(protowire.Fixed64Type)
	if err != nil {
		return err
	}
	var v float64
	err = value.double(&v)
	to[key] = v
	return err
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

// appendMap adds a map, in the order of its keys. value appends a value as field 2 of an entry.
func appendMap[V any](b []byte, num protowire.Number, m map[string]V, value func(entry []byte, v V) []byte) []byte {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b = appendMessage(b, num, value(appendText(nil, 1, key), m[key]))
	}
	return b
}

func appendDoubles(b []byte, num protowire.Number, m map[string]float64) []byte {
	return appendMap(b, num, m, func(entry []byte, v float64) []byte { return appendDouble(entry, 2, v) })
}

// Arrays of numbers are little-endian bytes.

type element interface {
	uint16 | int32 | int64 | float32
}

func pack[T element](v []T) []byte {
	b, _ := binary.Append(make([]byte, 0, binary.Size(v)), binary.LittleEndian, v) // elements have a fixed size
	return b
}

func unpack[T element](b []byte) ([]T, error) {
	var one T
	size := binary.Size(one)
	v := make([]T, len(b)/size)
	if len(b)%size != 0 {
		return nil, invalid("%d bytes are not an array of %d-byte numbers", len(b), size)
	}
	_, err := binary.Decode(b, binary.LittleEndian, v)
	return v, err
}

// The values of the protocol's DType.
const (
	dtypeFloat32  = 1
	dtypeInt64    = 2
	dtypeInt32    = 3
	dtypeBfloat16 = 4
)

// unpackTensor reads elements of a DType.
func unpackTensor(dtype uint64, b []byte) (Tensor, error) {
	switch dtype {
	case dtypeFloat32:
		v, err := unpack[float32](b)
		return Tensor{Floats: v}, err
	case dtypeInt64:
		v, err := unpack[int64](b)
		return Tensor{Ints: v}, err
	case dtypeInt32:
		v, err := unpack[int32](b)
		return TokenTensor(v), err
	case dtypeBfloat16:
		upper, err := unpack[uint16](b)
		v := make([]float32, len(upper))
		for i, half := range upper {
			v[i] = math.Float32frombits(uint32(half) << 16)
		}
		return Tensor{Floats: v}, err
	}
	return Tensor{}, invalid("dtype %d is unknown", dtype)
}

func (t Tensor) pack() (dtype uint64, data []byte) {
	if t.Ints != nil {
		return dtypeInt64, pack(t.Ints)
	}
	return dtypeFloat32, pack(t.Floats)
}
