package wire

import (
	"bytes"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// The element types of JSON tensors.
const (
	Float32 = "float32"
	Int64   = "int64"
)

// Tensor is an array of numbers; one of Floats and Ints is set. In JSON it is {"data", "dtype", "shape"}. A missing dtype
// means int64 if all numbers are integers and float32 otherwise, a missing shape a vector.
type Tensor struct {
	Floats []float32
	Ints   []int64
	// Shape is nil for a vector.
	Shape []int64
}

// FloatTensor is a vector of float32.
func FloatTensor(v []float32) Tensor {
	if v == nil {
		v = []float32{}
	}
	return Tensor{Floats: v}
}

// TokenTensor is a vector of token ids, as int64.
func TokenTensor(ids []int32) Tensor {
	v := make([]int64, len(ids))
	for i, id := range ids {
		v[i] = int64(id)
	}
	return Tensor{Ints: v}
}

// Len is the number of elements.
func (t Tensor) Len() int { return max(len(t.Floats), len(t.Ints)) }

func (t Tensor) shape() []int64 {
	if t.Shape != nil {
		return t.Shape
	}
	return []int64{int64(t.Len())}
}

// checkShape reports a shape with another number of elements.
func (t Tensor) checkShape() error {
	if t.Shape == nil {
		return nil
	}
	n := int64(1)
	for _, d := range t.Shape {
		if d < 0 || (d > 0 && n > math.MaxInt64/d) {
			return invalid("shape: %v is not the shape of an array", t.Shape)
		}
		n *= d
	}
	if n != int64(t.Len()) {
		return invalid("shape: %v has %d elements; there are %d", t.Shape, n, t.Len())
	}
	return nil
}

// Vector returns the elements as float32.
func (t Tensor) Vector() []float32 {
	if t.Ints == nil {
		return t.Floats
	}
	v := make([]float32, len(t.Ints))
	for i, x := range t.Ints {
		v[i] = float32(x)
	}
	return v
}

// Tokens returns the elements as token ids. What is not an integer of 32 bits is agl.CodeInvalid.
func (t Tensor) Tokens() ([]int32, error) {
	ids := make([]int32, 0, t.Len())
	for i, x := range t.Ints {
		if x < math.MinInt32 || x > math.MaxInt32 {
			return nil, invalid("data[%d]: %d is not a token id", i, x)
		}
		ids = append(ids, int32(x))
	}
	for i, x := range t.Floats {
		// Above 2^24 not every integer is a float32.
		if x != float32(int32(x)) || x < -1<<24 || x > 1<<24 {
			return nil, invalid("data[%d]: %v is not a token id", i, x)
		}
		ids = append(ids, int32(x))
	}
	return ids, nil
}

type tensorJSON[T any] struct {
	Data  []T     `json:"data"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

// MarshalJSONTo implements json.MarshalerTo. NaN and infinities, which JSON does not have, are errors.
func (t Tensor) MarshalJSONTo(enc *jsontext.Encoder) error {
	if t.Ints != nil {
		return json.MarshalEncode(enc, tensorJSON[int64]{t.Ints, Int64, t.shape()})
	}
	return json.MarshalEncode(enc, tensorJSON[float32]{t.Floats, Float32, t.shape()})
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *Tensor) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var in struct {
		Data   jsontext.Value `json:"data"`
		DType  string         `json:"dtype"`
		Shape  []int64        `json:"shape"`
		Sparse jsontext.Value `json:"sparse_crow_indices"`
	}
	if err := json.UnmarshalDecode(dec, &in); err != nil {
		return err
	}
	*t = Tensor{Shape: in.Shape}
	switch {
	case in.Data.Kind() != jsontext.KindBeginArray:
		return invalid("data: an array of numbers is needed, given %.40q", in.Data)
	case in.Sparse != nil && in.Sparse.Kind() != jsontext.KindNull:
		return invalid("sparse_crow_indices: sparse tensors are not supported")
	}
	dtype := in.DType
	if dtype == "" {
		if dtype = Int64; bytes.ContainsAny(in.Data, ".eE") {
			dtype = Float32
		}
	}
	var err error
	switch dtype {
	case Int64:
		err = json.Unmarshal(in.Data, &t.Ints)
	case Float32:
		err = json.Unmarshal(in.Data, &t.Floats)
	default:
		return invalid("dtype: %q is unknown; allowed are %q, %q", dtype, Float32, Int64)
	}
	if err != nil {
		return err
	}
	return t.checkShape()
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}
