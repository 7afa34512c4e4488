package wire

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
)

// The files *.pb were written by the official SDK's own generated code (tinker 0.38.0, proto/tinker_public_pb2)
// with deterministic serialization, from the values that this file's functions make.
func TestProtobufGolden(t *testing.T) {
	t.Parallel()
	golden(t, "forward_backward.pb", request().Protobuf())
	out, err := output().Protobuf()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "forward_backward_output.pb", out)
	golden(t, "sample_response.pb", sampled().Protobuf())
}

func TestProtobufRoundTrip(t *testing.T) {
	t.Parallel()
	out, err := output().Protobuf()
	if err != nil {
		t.Fatal(err)
	}
	gotOut, err := DecodeForwardOutput(ProtobufType, out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(output(), gotOut); diff != "" {
		t.Error(diff)
	}
	if !math.Signbit(float64(gotOut.Outputs[1][logprobs].Floats[2])) {
		t.Error("-0 became 0")
	}
	want := sampled()
	want.Type = "" // is not in the message
	gotSample, err := DecodeSample(ProtobufType, sampled().Protobuf())
	if diff := cmp.Diff(want, gotSample); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestProtobufTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dtype uint64
		data  []byte
		want  Tensor
	}{
		{dtypeFloat32, []byte{0, 0, 0x80, 0x3f}, Tensor{Floats: []float32{1}}},
		{dtypeBfloat16, []byte{0x80, 0x3f, 0, 0xc0}, Tensor{Floats: []float32{1, -2}}},
		{dtypeInt32, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, Tensor{Ints: []int64{1, -1}}},
		{dtypeInt64, []byte{1, 0, 0, 0, 1, 0, 0, 0}, Tensor{Ints: []int64{1<<32 + 1}}},
	} {
		b := appendPacked(appendNumber(appendMessage(nil, 1, c.data), 3, c.dtype), 4, []int64{int64(c.want.Len())})
		got, err := decodeTensor(b)
		c.want.Shape = []int64{int64(c.want.Len())}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("dtype %d: %v %s", c.dtype, err, diff)
		}
	}
}

func TestProtobufRejects(t *testing.T) {
	t.Parallel()
	tensor := func(name string, b []byte) []byte {
		return appendMessage(nil, 3, appendMessage(nil, 2, appendMessage(appendText(nil, 1, name), 2, b)))
	}
	record := func(b []byte) []byte { return appendMessage(nil, 2, b) }
	batched := func(data []byte, offsets ...int64) []byte {
		b := appendMessage(appendMessage(nil, 1, data), 2, pack(offsets))
		return record(appendMessage(nil, 2, appendMessage(appendText(nil, 1, "x"), 2, appendNumber(b, 3, dtypeFloat32))))
	}
	request := func(b []byte) error { _, err := DecodeForward(ProtobufType, b); return err }
	output := func(b []byte) error { _, err := DecodeForwardOutput(ProtobufType, b); return err }
	sample := func(b []byte) error { _, err := DecodeSample(ProtobufType, b); return err }
	for _, c := range []struct {
		decode func([]byte) error
		body   []byte
		want   string
	}{
		{request, []byte{0xff}, "ForwardBackwardRequest: "},
		{request, []byte{0x0a, 5, 'm'}, "field 1"},
		{request, appendNumber(nil, 1, 5), "field 1 has wire type 0; 2 is needed"},
		{request, tensor("weights", appendNumber(appendMessage(nil, 1, []byte{1}), 3, dtypeFloat32)), "data[0]: Datum: weights: 1 bytes"},
		{request, tensor("weights", appendMessage(nil, 2, nil)), "sparse tensors"},
		{request, tensor("weights", appendNumber(nil, 3, 9)), "dtype 9 is unknown"},
		{request, tensor("weights", appendPacked(appendNumber(nil, 3, 1), 4, []int64{2})), "shape: [2]"},
		{request, appendMessage(nil, 7, appendMessage(appendText(nil, 1, "k"), 2, appendText(nil, 2, "t"))), `"k" has the text "t"`},
		{output, batched(make([]byte, 8), 0, 12), "offsets 0 to 12"},
		{output, batched(make([]byte, 8), 4, 0), "offsets 4 to 0"},
		{output, batched(make([]byte, 8), -4, 0), "offsets -4 to 0"},
		{output, batched(make([]byte, 8), 0, 3), "3 bytes are not an array"},
		{output, record(appendNumber(nil, 3, 1<<40)), "outputs without tensors"},
		{sample, appendMessage(nil, 1, appendNumber(nil, 1, 2)), "stop_reason 2 is unknown"},
		{sample, appendMessage(nil, 1, appendMessage(nil, 2, []byte{1})), "1 bytes are not an array"},
	} {
		if err := c.decode(c.body); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: %v, want invalid with %q", c.body, err, c.want)
		}
	}
}

// Unknown fields are ignored; unpacked shapes, and records without a count, are read.
func TestProtobufTolerates(t *testing.T) {
	t.Parallel()
	b := protowire.AppendFixed32(protowire.AppendTag(request().Protobuf(), 99, protowire.Fixed32Type), 1)
	if _, err := DecodeForward(ProtobufType, b); err != nil {
		t.Error(err)
	}
	unpacked := appendNumber(appendNumber(appendMessage(nil, 1, make([]byte, 8)), 3, dtypeFloat32), 4, 2)
	if got, err := decodeTensor(unpacked); err != nil || got.Len() != 2 {
		t.Errorf("%v, %v", got, err)
	}
	column := appendNumber(appendMessage(appendMessage(nil, 1, make([]byte, 8)), 2, pack([]int64{0, 4, 8})), 3, dtypeFloat32)
	record := appendMessage(nil, 2, appendMessage(appendText(nil, 1, "x"), 2, column))
	out, err := DecodeForwardOutput(ProtobufType, appendMessage(nil, 2, record))
	if err != nil || len(out.Outputs) != 2 {
		t.Errorf("%v, %v", out, err)
	}
}

func FuzzProtobuf(f *testing.F) {
	for _, name := range []string{"forward_backward.pb", "forward_backward_output.pb", "sample_response.pb"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeForward(ProtobufType, b); err == nil {
			first := r.Protobuf()
			again, err := DecodeForward(ProtobufType, first)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.Protobuf(), first) {
				t.Errorf("%x became %x", first, again.Protobuf())
			}
			_, _ = r.Input.Params()
		}
		if o, err := DecodeForwardOutput(ProtobufType, b); err == nil {
			_, _ = o.Protobuf()
			_, _ = o.Result(batch())
		}
		if s, err := DecodeSample(ProtobufType, b); err == nil {
			if _, err := DecodeSample(ProtobufType, s.Protobuf()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
