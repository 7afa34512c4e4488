package wire

import (
	"encoding/binary"
	"maps"
	"math"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// A protobuf message is a struct whose i-th field, from 1, is field i of the schema; _ is a field that is ignored. A field
// is a bool, uint64, float64, string or []byte, a message, a slice of messages, [varints], or a slice of numbers, which the
// schema declares as bytes (little-endian). Zero fields are left out, because zero is the default.

// varints is a repeated integer field.
type varints []int64

// entry is an entry of a map field.
type entry[V any] struct {
	Key   string
	Value V
}

// entries returns the entries of a map in the order of their keys.
func entries[V any](m map[string]V) []entry[V] {
	var out []entry[V]
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, entry[V]{key, m[key]})
	}
	return out
}

func fromEntries[V any](list []entry[V]) map[string]V {
	m := map[string]V{}
	for _, e := range list {
		m[e.Key] = e.Value
	}
	return m
}

// marshalProto encodes a message.
func marshalProto(message any) []byte { return appendFields(nil, reflect.ValueOf(message)) }

func appendFields(b []byte, message reflect.Value) []byte {
	for i := range message.NumField() {
		if f := message.Field(i); !f.IsZero() {
			b = appendField(b, protowire.Number(i+1), f)
		}
	}
	return b
}

func appendField(b []byte, num protowire.Number, field reflect.Value) []byte {
	var data []byte
	switch v := field.Interface().(type) {
	case bool:
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), protowire.EncodeBool(v))
	case uint64:
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), math.Float64bits(v))
	case string:
		data = []byte(v)
	case []byte:
		data = v
	case []int32, []int64, []float32:
		data = pack(v)
	case varints:
		for _, n := range v {
			data = protowire.AppendVarint(data, uint64(n))
		}
	default:
		if field.Kind() == reflect.Slice {
			for _, message := range field.Seq2() {
				b = appendField(b, num, message)
			}
			return b
		}
		data = appendFields(nil, field)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), data)
}

// unmarshalProto decodes a message. It ignores unknown fields. The message keeps references to b. Errors begin with name.
func unmarshalProto(name string, b []byte, message any) error {
	left := maxMessages
	if err := readFields(b, reflect.ValueOf(message).Elem(), &left); err != nil {
		return invalid("%s: %w", name, err)
	}
	return nil
}

// readFields decodes a message, which may have as many in it as are left.
func readFields(b []byte, message reflect.Value, left *int) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return invalid("field %d: %w", num, protowire.ParseError(size))
		}
		value := b[:size]
		b = b[size:]
		if int(num) > message.NumField() || !message.Field(int(num)-1).CanSet() {
			continue
		}
		need, err := readField(message.Field(int(num)-1), typ, value, left)
		if typ != need {
			return invalid("field %d has wire type %d; %d is needed", num, typ, need)
		}
		if err != nil {
			return invalid("field %d: %w", num, err)
		}
	}
	return nil
}

// readField decodes the value of a field and returns the wire type that the field needs. If typ is another one, the caller
// drops the result.
func readField(field reflect.Value, typ protowire.Type, value []byte, left *int) (need protowire.Type, err error) {
	var data []byte
	var number uint64
	switch typ {
	case protowire.BytesType:
		data, _ = protowire.ConsumeBytes(value)
	case protowire.VarintType:
		number, _ = protowire.ConsumeVarint(value)
	case protowire.Fixed64Type:
		number, _ = protowire.ConsumeFixed64(value)
	}
	switch to := field.Addr().Interface().(type) {
	case *bool:
		*to = number != 0
		return protowire.VarintType, nil
	case *uint64:
		*to = number
		return protowire.VarintType, nil
	case *float64:
		*to = math.Float64frombits(number)
		return protowire.Fixed64Type, nil
	case *string:
		*to = string(data)
	case *[]byte:
		*to = data
	case *[]int32:
		*to, err = unpack[int32](data)
	case *[]int64:
		*to, err = unpack[int64](data)
	case *[]float32:
		*to, err = unpack[float32](data)
	case *varints:
		if typ == protowire.VarintType { // not packed
			*to = append(*to, int64(number))
			return typ, nil
		}
		for len(data) > 0 && err == nil {
			v, n := protowire.ConsumeVarint(data)
			if err = protowire.ParseError(min(n, 0)); err == nil {
				*to, data = append(*to, int64(v)), data[n:]
			}
		}
	default:
		if field.Kind() == reflect.Slice {
			field.Set(reflect.Append(field, reflect.Zero(field.Type().Elem())))
			field = field.Index(field.Len() - 1)
		}
		if *left--; *left < 0 {
			return protowire.BytesType, errTooMany()
		}
		err = readFields(data, field, left)
	}
	return protowire.BytesType, err
}

// pack encodes a slice of numbers.
func pack(numbers any) []byte {
	b, _ := binary.Append([]byte{}, binary.LittleEndian, numbers) // numbers have a fixed size
	return b
}

func unpack[T uint16 | int32 | int64 | float32](b []byte) ([]T, error) {
	var one T
	size := binary.Size(one)
	v := make([]T, len(b)/size)
	if len(b)%size != 0 {
		return nil, invalid("%d bytes are not an array of %d-byte numbers", len(b), size)
	}
	_, err := binary.Decode(b, binary.LittleEndian, v)
	return v, err
}
