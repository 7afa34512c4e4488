package wire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// The files *.pb were written by the official SDK's own generated code (tinker 0.38.0, proto/tinker_public_pb2)
// with deterministic serialization, from the values that this file's functions make.
func TestProtobufGolden(t *testing.T) {
	t.Parallel()
	golden(t, "forward_backward.pb", encoded(t)(EncodeForward(ProtobufType, request())))
	golden(t, "forward_backward_output.pb", encoded(t)(EncodeForwardResult(ProtobufType, output())))
	golden(t, "sample_response.pb", encoded(t)(EncodeSampleResult(ProtobufType, sampled(), nil)))
}

func appendMessage(b []byte, num protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), message)
}

func text(num protowire.Number, s string) []byte { return appendMessage(nil, num, []byte(s)) }

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// readInput reads an encoded tensor into a datum.
func readInput(d *tinker.Datum, name string, b []byte) error {
	var t tensorProto
	if err := unmarshalProto("Tensor", b, &t); err != nil {
		return err
	}
	return t.read(d, name)
}

func TestProtobufTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dtype uint64
		data  []byte
		want  []float32
	}{
		{dtypeFloat32, []byte{0, 0, 0x80, 0x3f}, []float32{1}},
		{dtypeBfloat16, []byte{0x80, 0x3f, 0, 0xc0}, []float32{1, -2}},
		{dtypeInt32, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, []float32{1, -1}},
		{dtypeInt64, []byte{0, 0, 0, 1, 0, 0, 0, 0}, []float32{1 << 24}},
	} {
		b := appendMessage(appendNumber(appendMessage(nil, 1, c.data), 3, c.dtype), 4, []byte{byte(len(c.want))})
		var d tinker.Datum
		if err := readInput(&d, weights, b); err != nil {
			t.Errorf("dtype %d: %v", c.dtype, err)
		}
		if err := readInput(&d, targetTokens, b); err != nil {
			t.Errorf("dtype %d: %v", c.dtype, err)
		}
		for i, want := range c.want {
			if d.Weights[i] != want || d.Targets[i] != int32(want) {
				t.Errorf("dtype %d: %v and %v, want %v", c.dtype, d.Weights, d.Targets, c.want)
			}
		}
	}
	var d tinker.Datum
	for _, b := range [][]byte{
		appendNumber(appendMessage(nil, 1, pack([]int64{1 << 32})), 3, dtypeInt64), appendNumber(appendMessage(nil, 1, pack([]float32{0.5})), 3, dtypeFloat32),
	} {
		if err := readInput(&d, targetTokens, b); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "is not a token id") {
			t.Errorf("%x: %v", b, err)
		}
	}
}

func TestProtobufRejects(t *testing.T) {
	t.Parallel()
	tensor := func(name string, b []byte) []byte {
		return appendMessage(nil, 3, appendMessage(nil, 2, appendMessage(text(1, name), 2, b)))
	}
	record := func(b []byte) []byte { return appendMessage(nil, 2, b) }
	batched := func(data []byte, offsets ...int64) []byte {
		b := appendMessage(appendMessage(nil, 1, data), 2, pack(offsets))
		return record(appendMessage(nil, 2, appendMessage(text(1, "x"), 2, appendNumber(b, 3, dtypeFloat32))))
	}
	request := func(b []byte) error { _, err := DecodeForward(ProtobufType, b); return err }
	output := func(b []byte) error { _, err := DecodeForwardResult(ProtobufType, b, batch()); return err }
	sample := func(b []byte) error { _, err := DecodeSampleResult(ProtobufType, b, asked()); return err }
	for _, c := range []struct {
		decode func([]byte) error
		body   []byte
		want   string
	}{
		{request, []byte{0xff}, "ForwardBackwardRequest: "},
		{request, []byte{0x0a, 5, 'm'}, "field 1"},
		{request, appendNumber(nil, 1, 5), "field 1 has wire type 0; 2 is needed"},
		{request, tensor("weights", appendNumber(appendMessage(nil, 1, []byte{1}), 3, dtypeFloat32)), "data[0]: weights: 1 bytes"},
		{request, tensor("weights", appendMessage(nil, 2, nil)), "sparse tensors"},
		{request, tensor("labels", appendNumber(nil, 3, dtypeFloat32)), `"labels" is unknown; allowed are "target_tokens"`},
		{request, appendMessage(nil, 3, appendMessage(nil, 1, appendMessage(nil, 2, nil))), `type "image" is not supported`},
		{request, tensor("weights", appendNumber(nil, 3, 9)), "dtype 9 is unknown"},
		{request, tensor("weights", appendMessage(appendNumber(nil, 3, 1), 4, []byte{2})), "shape: [2]"},
		{request, appendMessage(nil, 7, appendMessage(text(1, "k"), 2, text(2, "t"))), `"k" has the text "t"`},
		{request, bytes.Repeat(appendMessage(nil, 3, nil), maxMessages+1), "more than 1048576 messages in one"},
		{output, batched(make([]byte, 8), 0, 12), "offsets 0 to 12"},
		{output, batched(make([]byte, 8), 4, 0), "offsets 4 to 0"},
		{output, batched(make([]byte, 8), -4, 0), "offsets -4 to 0"},
		{output, batched(make([]byte, 8), 0, 3), "3 bytes are not an array"},
		{output, record(appendNumber(nil, 3, 1<<40)), "outputs without tensors"},
		{sample, appendMessage(nil, 1, appendNumber(nil, 1, 2)), "stop_reason 2 is unknown"},
		{sample, appendMessage(nil, 1, appendMessage(nil, 2, []byte{1})), "1 bytes are not an array"},
	} {
		if err := c.decode(c.body); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.1000x: %v, want invalid with %q", c.body, err, c.want)
		}
	}
}

// Unknown fields are ignored; unpacked shapes, and records without a count, are read.
func TestProtobufTolerates(t *testing.T) {
	t.Parallel()
	b := protowire.AppendFixed32(protowire.AppendTag(request().protobuf(), 99, protowire.Fixed32Type), 1)
	if _, err := DecodeForward(ProtobufType, b); err != nil {
		t.Error(err)
	}
	unpacked := appendNumber(appendNumber(appendMessage(nil, 1, make([]byte, 8)), 3, dtypeFloat32), 4, 2)
	var d tinker.Datum
	if err := readInput(&d, weights, unpacked); err != nil || len(d.Weights) != 2 {
		t.Errorf("%v, %v", d, err)
	}
	column := appendNumber(appendMessage(appendMessage(nil, 1, make([]byte, 8)), 2, pack([]int64{0, 4, 8})), 3, dtypeFloat32)
	record := appendMessage(nil, 2, appendMessage(text(1, "x"), 2, column))
	out, err := resultFromProtobuf(appendMessage(nil, 2, record))
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
			first := r.protobuf()
			again, err := DecodeForward(ProtobufType, first)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.protobuf(), first) {
				t.Errorf("%x became %x", first, again.protobuf())
			}
		}
		if o, err := resultFromProtobuf(b); err == nil {
			_ = o.protobuf()
			_, _ = o.result(batch())
		}
		if s, err := sampleFromProtobuf(b); err == nil {
			if _, err := sampleFromProtobuf(s.protobuf()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
