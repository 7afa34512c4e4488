package wire

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// numbers is a vector of float32 as a tensor.
type numbers []float32

// tokenIDs is a vector of token ids as a tensor of int64.
type tokenIDs []int32

// tensorJSON is a tensor in JSON. A missing shape is that of a vector.
type tensorJSON[T int32 | float32 | float64] struct {
	Data   []T            `json:"data"`
	DType  string         `json:"dtype"` // may be missing
	Shape  []int64        `json:"shape"`
	Sparse jsontext.Value `json:"sparse_crow_indices,omitzero"`
}

const (
	jsonFloat32 = "float32"
	jsonInt64   = "int64"
)

// MarshalJSONTo implements json.MarshalerTo. NaN and infinities, which JSON does not have, are errors.
func (n numbers) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, tensorJSON[float32]{Data: n, DType: jsonFloat32, Shape: []int64{int64(len(n))}})
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. Integers are converted.
func (n *numbers) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	*n, err = readTensor[float32](dec)
	return err
}

func (t tokenIDs) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, tensorJSON[int32]{Data: t, DType: jsonInt64, Shape: []int64{int64(len(t))}})
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. What is not an integer of 32 bits is an error.
func (t *tokenIDs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	values, err := readTensor[float64](dec)
	if err != nil {
		return err
	}
	*t, err = toTokens(values)
	return err
}

func readTensor[T int32 | float32 | float64](dec *jsontext.Decoder) ([]T, error) {
	var in tensorJSON[T]
	if err := json.UnmarshalDecode(dec, &in); err != nil {
		return nil, err
	}
	switch {
	case in.Data == nil:
		return nil, invalid("data: an array of numbers is needed")
	case in.DType != "" && in.DType != jsonFloat32 && in.DType != jsonInt64:
		return nil, invalid("dtype: %q is unknown; allowed are %q, %q", in.DType, jsonFloat32, jsonInt64)
	case in.Sparse != nil && in.Sparse.Kind() != jsontext.KindNull:
		return nil, invalid("sparse_crow_indices: sparse tensors are not supported")
	}
	return in.Data, checkShape(in.Shape, len(in.Data))
}

// checkShape reports a shape that does not have n elements; nil is that of a vector.
func checkShape(shape []int64, n int) error {
	if shape == nil {
		return nil
	}
	size := int64(1)
	for _, d := range shape {
		if d < 0 || (d > 0 && size > math.MaxInt64/d) {
			return invalid("shape: %v is not the shape of an array", shape)
		}
		size *= d
	}
	if size != int64(n) {
		return invalid("shape: %v has %d elements; there are %d", shape, size, n)
	}
	return nil
}

func toTokens(values []float64) ([]int32, error) {
	ids := make([]int32, len(values))
	for i, v := range values {
		if v < math.MinInt32 || v > math.MaxInt32 || v != math.Trunc(v) {
			return nil, invalid("data[%d]: %s is not a token id", i, strconv.FormatFloat(v, 'f', -1, 64))
		}
		ids[i] = int32(v)
	}
	return ids, nil
}

// The values of DType in protobuf.
const (
	dtypeFloat32  = 1
	dtypeInt64    = 2
	dtypeInt32    = 3
	dtypeBfloat16 = 4
)

// unpackAs reads elements of a DType and converts them.
func unpackAs[To float32 | float64](dtype uint64, b []byte) ([]To, error) {
	switch dtype {
	case dtypeFloat32:
		return convert(b, func(x float32) To { return To(x) })
	case dtypeInt64:
		return convert(b, func(x int64) To { return To(x) })
	case dtypeInt32:
		return convert(b, func(x int32) To { return To(x) })
	case dtypeBfloat16: // the upper half of a float32
		return convert(b, func(x uint16) To { return To(math.Float32frombits(uint32(x) << 16)) })
	}
	return nil, invalid("dtype %d is unknown", dtype)
}

func convert[From uint16 | int32 | int64 | float32, To float32 | float64](b []byte, to func(From) To) ([]To, error) {
	v, err := unpack[From](b)
	out := make([]To, len(v))
	for i, x := range v {
		out[i] = to(x)
	}
	return out, err
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}
