package wire

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Protobuf encodes the request as tinker_public.ForwardBackwardRequest.
func (r ForwardRequest) Protobuf() []byte {
	b := appendText(nil, 1, r.ModelID)
	if r.SeqID != nil {
		b = appendNumber(b, 2, uint64(*r.SeqID))
	}
	for _, d := range r.Input.Data {
		b = appendMessage(b, 3, d.protobuf())
	}
	b = appendText(b, 4, r.Input.LossFn)
	// Old servers read the first map, new ones the second, whose values are LossConfigValue.
	b = appendDoubles(b, 5, r.Input.LossFnConfig)
	if r.ForwardOnly {
		b = appendNumber(b, 6, 1)
	}
	return appendMap(b, 7, r.Input.LossFnConfig, func(entry []byte, v float64) []byte {
		return appendMessage(entry, 2, appendDouble(nil, 1, v))
	})
}

func (d Datum) protobuf() []byte {
	var b []byte
	for _, c := range d.ModelInput.Chunks {
		text := appendMessage(nil, 1, pack(c.Tokens)) // EncodedTextChunk
		b = appendMessage(b, 1, appendMessage(nil, 1, text))
	}
	return appendMap(b, 2, d.Inputs, func(entry []byte, t Tensor) []byte {
		dtype, data := t.pack()
		return appendMessage(entry, 2, appendPacked(appendNumber(appendMessage(nil, 1, data), 3, dtype), 4, t.shape()))
	})
}

// decodeForwardProtobuf reads a tinker_public.ForwardBackwardRequest. A seq_id of 0, which clients send that have none, is
// nil.
func decodeForwardProtobuf(body []byte) (ForwardRequest, error) {
	var r ForwardRequest
	config := map[string]float64{}
	err := fields("ForwardBackwardRequest", body, func(f field) error {
		switch f.num {
		case 1:
			return f.text(&r.ModelID)
		case 2:
			if f.number != 0 {
				r.SeqID = new(int64(int32(f.number)))
			}
			return f.need(protowire.VarintType)
		case 3:
			d, err := decodeDatum(f.bytes)
			if err != nil {
				return invalid("data[%d]: %w", len(r.Input.Data), err)
			}
			r.Input.Data = append(r.Input.Data, d)
			return f.need(protowire.BytesType)
		case 4:
			return f.text(&r.Input.LossFn)
		case 5:
			return f.doubleEntry(config)
		case 6:
			r.ForwardOnly = f.number != 0
			return f.need(protowire.VarintType)
		case 7:
			return decodeConfigValue(f, config)
		}
		return nil
	})
	if len(config) > 0 {
		r.Input.LossFnConfig = config
	}
	return r, err
}

func decodeConfigValue(f field, config map[string]float64) error {
	key, value, err := f.entry(protowire.BytesType)
	if err != nil {
		return err
	}
	return fields("LossConfigValue", value.bytes, func(f field) error {
		switch f.num {
		case 1:
			var v float64
			err := f.double(&v)
			config[key] = v
			return err
		case 2:
			return invalid("loss_fn_config: %q has the text %.40q; a number is needed", key, f.bytes)
		}
		return nil
	})
}

func decodeDatum(b []byte) (Datum, error) {
	d := Datum{Inputs: map[string]Tensor{}}
	err := fields("Datum", b, func(f field) error {
		switch f.num {
		case 1:
			c, err := decodeChunk(f.bytes)
			d.ModelInput.Chunks = append(d.ModelInput.Chunks, c)
			return err
		case 2:
			name, value, err := f.entry(protowire.BytesType)
			if err != nil {
				return err
			}
			if d.Inputs[name], err = decodeTensor(value.bytes); err != nil {
				return invalid("%s: %w", name, err)
			}
		}
		return nil
	})
	return d, err
}

func decodeChunk(b []byte) (Chunk, error) {
	c := Chunk{Type: EncodedText, Tokens: []int32{}}
	err := fields("Chunk", b, func(f field) error {
		switch f.num {
		case 1:
			return fields("EncodedTextChunk", f.bytes, func(f field) (err error) {
				if f.num == 1 {
					c.Tokens, err = unpack[int32](f.bytes)
				}
				return err
			})
		case 2:
			c.Type = "image"
		case 3:
			c.Type = "dmel"
		}
		return nil
	})
	return c, err
}

func decodeTensor(b []byte) (Tensor, error) {
	var data []byte
	var dtype uint64
	var shape []int64
	err := fields("Tensor", b, func(f field) error {
		switch f.num {
		case 1:
			return f.raw(&data)
		case 2:
			return invalid("sparse tensors are not supported")
		case 3:
			return f.uint(&dtype)
		case 4:
			return f.ints(&shape)
		}
		return nil
	})
	if err != nil {
		return Tensor{}, err
	}
	t, err := unpackTensor(dtype, data)
	if err != nil {
		return Tensor{}, err
	}
	t.Shape = shape
	return t, t.checkShape()
}

// Protobuf encodes the result as tinker_public.ForwardBackwardOutput, with one record of all outputs, which must have the
// same tensors.
func (o ForwardOutput) Protobuf() ([]byte, error) {
	b := appendText(nil, 1, o.Type)
	if len(o.Outputs) > 0 {
		record, err := arrayRecord(o.Outputs)
		if err != nil {
			return nil, err
		}
		b = appendMessage(b, 2, record)
	}
	return appendDoubles(b, 3, o.Metrics), nil
}

// arrayRecord joins the tensors of each name, end to end.
func arrayRecord(outputs []map[string]Tensor) ([]byte, error) {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(outputs[0])) {
		var data []byte
		var dtype uint64
		offsets := []int64{0}
		for i, out := range outputs {
			t, ok := out[name]
			if !ok || len(out) != len(outputs[0]) {
				return nil, invalid("output %d has other tensors than output 0", i)
			}
			d, elements := t.pack()
			if i > 0 && d != dtype {
				return nil, invalid("output %d: %s has another type than in output 0", i, name)
			}
			dtype, data = d, append(data, elements...)
			offsets = append(offsets, int64(len(data)))
		}
		batched := appendNumber(appendMessage(appendMessage(nil, 1, data), 2, pack(offsets)), 3, dtype)
		b = appendMessage(b, 2, appendMessage(appendText(nil, 1, name), 2, batched))
	}
	return appendNumber(b, 3, uint64(len(outputs))), nil
}

// decodeForwardOutputProtobuf reads a tinker_public.ForwardBackwardOutput. Tensors come out as vectors.
func decodeForwardOutputProtobuf(body []byte) (ForwardOutput, error) {
	out := ForwardOutput{Metrics: map[string]float64{}}
	err := fields("ForwardBackwardOutput", body, func(f field) error {
		switch f.num {
		case 1:
			return f.text(&out.Type)
		case 2:
			outputs, err := decodeRecord(f.bytes)
			out.Outputs = append(out.Outputs, outputs...)
			return err
		case 3:
			return f.doubleEntry(out.Metrics)
		}
		return nil
	})
	return out, err
}

// maxEmptyOutputs bounds the outputs of a record without tensors, which take no bytes.
const maxEmptyOutputs = 1 << 16

func decodeRecord(b []byte) ([]map[string]Tensor, error) {
	columns := map[string][]Tensor{}
	var count uint64
	err := fields("ArrayRecord", b, func(f field) error {
		switch f.num {
		case 2:
			name, value, err := f.entry(protowire.BytesType)
			if err != nil {
				return err
			}
			if columns[name], err = decodeBatched(value.bytes); err != nil {
				return invalid("%s: %w", name, err)
			}
		case 3:
			return f.uint(&count)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if count == 0 {
		// Some writers leave out the count.
		for _, column := range columns {
			count = uint64(len(column))
		}
	}
	if len(columns) == 0 && count > maxEmptyOutputs {
		return nil, invalid("ArrayRecord: %d outputs without tensors", count)
	}
	for name, column := range columns {
		if uint64(len(column)) != count {
			return nil, invalid("ArrayRecord: %s has %d of %d outputs", name, len(column), count)
		}
	}
	outputs := make([]map[string]Tensor, count)
	for i := range outputs {
		outputs[i] = make(map[string]Tensor, len(columns))
		for name, column := range columns {
			outputs[i][name] = column[i]
		}
	}
	return outputs, nil
}

// decodeBatched divides a BatchedTensor, whose offsets count bytes, into the tensors of its data.
func decodeBatched(b []byte) ([]Tensor, error) {
	var data, packed []byte
	var dtype uint64
	err := fields("BatchedTensor", b, func(f field) error {
		switch f.num {
		case 1:
			return f.raw(&data)
		case 2:
			return f.raw(&packed)
		case 3:
			return f.uint(&dtype)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	offsets, err := unpack[int64](packed)
	if err != nil {
		return nil, err
	}
	var column []Tensor
	for i := 1; i < len(offsets); i++ {
		begin, end := offsets[i-1], offsets[i]
		if begin < 0 || begin > end || end > int64(len(data)) {
			return nil, invalid("BatchedTensor: offsets %d to %d do not lie in %d bytes", begin, end, len(data))
		}
		t, err := unpackTensor(dtype, data[begin:end])
		if err != nil {
			return nil, err
		}
		column = append(column, t)
	}
	return column, nil
}
