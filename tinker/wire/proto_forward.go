package wire

import "github.com/agl-go/agl/tinker"

// The messages of tinker_public.
type (
	forwardBackwardRequest struct {
		ModelID string
		SeqID   uint64
		Data    []datumProto
		Loss    string
		// Old servers read the first configuration, new ones the second.
		Config      []entry[float64]
		ForwardOnly bool
		ConfigNow   []entry[lossConfigValue]
	}
	lossConfigValue struct {
		Number float64
		Text   string
	}
	datumProto struct {
		Input  []chunkProto
		Inputs []entry[tensorProto]
	}
	chunkProto struct {
		Text        encodedTextChunk
		Image, Dmel []byte // messages
	}
	encodedTextChunk struct{ Tokens []int32 }
	tensorProto      struct {
		Data   []byte
		Sparse []byte // a message
		DType  uint64
		Shape  varints
	}
	forwardBackwardOutput struct {
		Type    string
		Records []arrayRecord
		Metrics []entry[float64]
	}
	// arrayRecord has the results of some data, one tensor of each name for each datum.
	arrayRecord struct {
		_       struct{}
		Columns []entry[batchedTensor]
		Count   uint64
	}
	// batchedTensor is the data of several tensors. Its offsets count bytes: one begins where the one before ends.
	batchedTensor struct {
		Data    []byte
		Offsets []int64
		DType   uint64
	}
)

func (r ForwardRequest) protobuf() []byte {
	m := forwardBackwardRequest{
		ModelID: r.ModelID, Loss: string(r.Params.Loss.Name), Config: entries(lossConfig(r.Params.Loss)), ForwardOnly: r.ForwardOnly,
	}
	if r.SeqID != nil {
		m.SeqID = uint64(*r.SeqID)
	}
	for _, c := range m.Config {
		m.ConfigNow = append(m.ConfigNow, entry[lossConfigValue]{c.Key, lossConfigValue{Number: c.Value}})
	}
	for _, d := range r.Params.Data {
		m.Data = append(m.Data, newDatumProto(d))
	}
	return marshalProto(m)
}

func newDatumProto(d tinker.Datum) datumProto {
	targets := make([]int64, len(d.Targets))
	for i, id := range d.Targets {
		targets[i] = int64(id)
	}
	out := datumProto{Input: []chunkProto{{Text: encodedTextChunk{d.Input}}}}
	add := func(name string, dtype uint64, data []byte, n int) {
		out.Inputs = append(out.Inputs, entry[tensorProto]{name, tensorProto{Data: data, DType: dtype, Shape: varints{int64(n)}}})
	}
	floats := func(name string, values []float32) {
		if values != nil {
			add(name, dtypeFloat32, pack(values), len(values))
		}
	}
	floats(advantages, d.Advantages)
	floats(logprobs, d.Logprobs)
	add(targetTokens, dtypeInt64, pack(targets), len(targets))
	floats(weights, d.Weights)
	return out
}

// forwardFromProtobuf reads a request. A seq_id of 0, which clients send that have none, is nil.
func forwardFromProtobuf(body []byte) (r ForwardRequest, err error) {
	var m forwardBackwardRequest
	if err := unmarshalProto("ForwardBackwardRequest", body, &m); err != nil {
		return r, err
	}
	r = ForwardRequest{ModelID: m.ModelID, ForwardOnly: m.ForwardOnly}
	if m.SeqID != 0 {
		r.SeqID = new(int64(int32(m.SeqID)))
	}
	config := fromEntries(m.Config)
	for _, c := range m.ConfigNow {
		if c.Value.Text != "" {
			return r, invalid("loss_fn_config: %q has the text %.40q; a number is needed", c.Key, c.Value.Text)
		}
		config[c.Key] = c.Value.Number
	}
	if r.Params.Loss, err = readLoss(m.Loss, config); err != nil {
		return r, err
	}
	for i, from := range m.Data {
		d, err := from.datum()
		if err != nil {
			return r, invalid("data[%d]: %w", i, err)
		}
		r.Params.Data = append(r.Params.Data, d)
	}
	return r, nil
}

func (m datumProto) datum() (d tinker.Datum, err error) {
	var in ModelInput
	for _, c := range m.Input {
		kind := encodedText
		switch {
		case c.Image != nil:
			kind = "image"
		case c.Dmel != nil:
			kind = "dmel"
		}
		in.Chunks = append(in.Chunks, Chunk{Type: kind, Tokens: c.Text.Tokens})
	}
	if d.Input, err = in.Tokens(); err != nil {
		return d, invalid("model_input: %w", err)
	}
	for _, t := range m.Inputs {
		if err := t.Value.read(&d, t.Key); err != nil {
			return d, invalid("%s: %w", t.Key, err)
		}
	}
	return d, nil
}

// read reads a tensor into the datum's input of a name.
func (t tensorProto) read(d *tinker.Datum, name string) (err error) {
	to := map[string]*[]float32{weights: &d.Weights, logprobs: &d.Logprobs, advantages: &d.Advantages}[name]
	var n int
	switch {
	case t.Sparse != nil:
		return invalid("sparse tensors are not supported")
	case name == targetTokens:
		var values []float64
		if values, err = unpackAs[float64](t.DType, t.Data); err == nil {
			d.Targets, err = toTokens(values)
		}
		n = len(values)
	case to != nil:
		*to, err = unpackAs[float32](t.DType, t.Data)
		n = len(*to)
	default:
		return unknownInput(name)
	}
	if err != nil {
		return err
	}
	return checkShape(t.Shape, n)
}

// protobuf encodes a result with one record of all outputs.
func (r resultJSON) protobuf() []byte {
	m := forwardBackwardOutput{Type: r.Type, Metrics: entries(r.Metrics)}
	if len(r.Outputs) > 0 {
		column := func(name string, of func(o outputJSON) numbers) entry[batchedTensor] {
			t := batchedTensor{Offsets: []int64{0}, DType: dtypeFloat32}
			for _, o := range r.Outputs {
				t.Data = append(t.Data, pack(of(o))...)
				t.Offsets = append(t.Offsets, int64(len(t.Data)))
			}
			return entry[batchedTensor]{name, t}
		}
		m.Records = []arrayRecord{{Count: uint64(len(r.Outputs)), Columns: []entry[batchedTensor]{
			column(elementwiseLoss, func(o outputJSON) numbers { return o.Losses }),
			column(logprobs, func(o outputJSON) numbers { return o.Logprobs }),
		}}}
	}
	return marshalProto(m)
}

func resultFromProtobuf(body []byte) (resultJSON, error) {
	var m forwardBackwardOutput
	if err := unmarshalProto("ForwardBackwardOutput", body, &m); err != nil {
		return resultJSON{}, err
	}
	out := resultJSON{Type: m.Type, Metrics: fromEntries(m.Metrics)}
	for _, r := range m.Records {
		outputs, err := r.outputs()
		if err != nil {
			return out, invalid("ArrayRecord: %w", err)
		}
		out.Outputs = append(out.Outputs, outputs...)
	}
	return out, nil
}

// maxEmptyOutputs bounds the outputs of a record without tensors, which take no bytes.
const maxEmptyOutputs = 1 << 16

func (r arrayRecord) outputs() ([]outputJSON, error) {
	columns := map[string][]numbers{}
	for _, c := range r.Columns {
		column, err := c.Value.split()
		if err != nil {
			return nil, invalid("%s: %w", c.Key, err)
		}
		columns[c.Key] = column
		if r.Count == 0 {
			r.Count = uint64(len(column)) // some writers leave it out
		}
	}
	if len(columns) == 0 && r.Count > maxEmptyOutputs {
		return nil, invalid("%d outputs without tensors", r.Count)
	}
	for name, column := range columns {
		if uint64(len(column)) != r.Count {
			return nil, invalid("%s has %d of %d outputs", name, len(column), r.Count)
		}
	}
	outputs := make([]outputJSON, r.Count)
	for i := range outputs {
		if column, ok := columns[elementwiseLoss]; ok {
			outputs[i].Losses = column[i]
		}
		if column, ok := columns[logprobs]; ok {
			outputs[i].Logprobs = column[i]
		}
	}
	return outputs, nil
}

// split divides the data into tensors.
func (t batchedTensor) split() ([]numbers, error) {
	var column []numbers
	for i := 1; i < len(t.Offsets); i++ {
		begin, end := t.Offsets[i-1], t.Offsets[i]
		if begin < 0 || begin > end || end > int64(len(t.Data)) {
			return nil, invalid("offsets %d to %d do not lie in %d bytes", begin, end, len(t.Data))
		}
		values, err := unpackAs[float32](t.DType, t.Data[begin:end])
		if err != nil {
			return nil, err
		}
		column = append(column, values)
	}
	return column, nil
}
