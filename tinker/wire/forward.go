package wire

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/tinker"
)

// Chunk is a part of a model's input. Only text is supported.
type Chunk struct {
	Type   string  `json:"type,omitzero"`
	Tokens []int32 `json:"tokens"`
}

// EncodedText is the type of a [Chunk] of tokens.
const EncodedText = "encoded_text"

// ModelInput is a prompt or a training sequence.
type ModelInput struct {
	Chunks []Chunk `json:"chunks"`
}

// TextInput is an input of one chunk of tokens.
func TextInput(tokens []int32) ModelInput {
	return ModelInput{Chunks: []Chunk{{Type: EncodedText, Tokens: tokens}}}
}

// Tokens joins the chunks. A chunk of anything but text is agl.CodeInvalid.
func (m ModelInput) Tokens() ([]int32, error) {
	var ids []int32
	for i, c := range m.Chunks {
		if c.Type != "" && c.Type != EncodedText {
			return nil, invalid("chunks[%d]: type %q is not supported; allowed is %q", i, c.Type, EncodedText)
		}
		ids = append(ids, c.Tokens...)
	}
	return ids, nil
}

// Datum is a training sequence.
type Datum struct {
	ModelInput ModelInput        `json:"model_input"`
	Inputs     map[string]Tensor `json:"loss_fn_inputs"`
}

// The names of the tensors of a datum and of a result.
const (
	targetTokens    = "target_tokens"
	weights         = "weights"
	logprobs        = "logprobs"
	advantages      = "advantages"
	elementwiseLoss = "elementwise_loss"
)

// FromDatum is the wire form of a datum. It shares the slices of d.
func FromDatum(d tinker.Datum) Datum {
	in := map[string]Tensor{targetTokens: TokenTensor(d.Targets)}
	for name, v := range map[string][]float32{weights: d.Weights, logprobs: d.Logprobs, advantages: d.Advantages} {
		if v != nil {
			in[name] = FloatTensor(v)
		}
	}
	return Datum{ModelInput: TextInput(d.Input), Inputs: in}
}

// Datum converts the datum back. An unknown tensor is agl.CodeInvalid: it would change the loss.
func (d Datum) Datum() (tinker.Datum, error) {
	var out tinker.Datum
	var err error
	if out.Input, err = d.ModelInput.Tokens(); err != nil {
		return out, invalid("model_input: %w", err)
	}
	for name, t := range d.Inputs {
		switch name {
		case targetTokens:
			if out.Targets, err = t.Tokens(); err != nil {
				return out, invalid("%s: %w", name, err)
			}
		case weights:
			out.Weights = t.Vector()
		case logprobs:
			out.Logprobs = t.Vector()
		case advantages:
			out.Advantages = t.Vector()
		default:
			return out, invalid("loss_fn_inputs: %q is unknown; allowed are %q, %q, %q, %q", name, targetTokens, weights, logprobs, advantages)
		}
	}
	return out, nil
}

// ForwardInput is a batch and its loss.
type ForwardInput struct {
	Data         []Datum            `json:"data"`
	LossFn       string             `json:"loss_fn"`
	LossFnConfig map[string]float64 `json:"loss_fn_config,omitzero"`
}

const (
	clipLow  = "clip_low_threshold"
	clipHigh = "clip_high_threshold"
	beta     = "beta"
)

// FromForward is the wire form of a batch.
func FromForward(p tinker.ForwardParams) ForwardInput {
	in := ForwardInput{LossFn: string(p.Loss.Name), Data: make([]Datum, len(p.Data))}
	for i, d := range p.Data {
		in.Data[i] = FromDatum(d)
	}
	l := p.Loss.WithDefaults()
	switch {
	case l.Name.Clips():
		in.LossFnConfig = map[string]float64{clipLow: float64(l.ClipLow), clipHigh: float64(l.ClipHigh)}
	case l.Name == tinker.DRO: // servers have different defaults
		in.LossFnConfig = map[string]float64{beta: float64(l.Beta)}
	}
	return in
}

// Params converts the batch back. What cannot be converted is agl.CodeInvalid.
func (in ForwardInput) Params() (tinker.ForwardParams, error) {
	p := tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.LossName(in.LossFn)}, Data: make([]tinker.Datum, len(in.Data))}
	for key, v := range in.LossFnConfig {
		if v == 0 {
			// In tinker.Loss zero means the default.
			return p, invalid("loss_fn_config: %s is 0; a positive number is needed", key)
		}
		switch key {
		case clipLow:
			p.Loss.ClipLow = float32(v)
		case clipHigh:
			p.Loss.ClipHigh = float32(v)
		case beta:
			p.Loss.Beta = float32(v)
		default:
			return p, invalid("loss_fn_config: %q is unknown; allowed are %q, %q, %q", key, clipLow, clipHigh, beta)
		}
	}
	for i, d := range in.Data {
		var err error
		if p.Data[i], err = d.Datum(); err != nil {
			return p, invalid("data[%d]: %w", i, err)
		}
	}
	return p, nil
}

// ForwardRequest is the body of [Forward] and [ForwardBackward].
type ForwardRequest struct {
	ModelID string
	SeqID   *int64
	Input   ForwardInput
	// ForwardOnly asks for no gradient. In JSON it is another call; in protobuf it is a field.
	ForwardOnly bool
}

type forwardJSON struct {
	ModelID string        `json:"model_id"`
	SeqID   *int64        `json:"seq_id,omitzero"`
	Both    *ForwardInput `json:"forward_backward_input,omitzero"`
	Only    *ForwardInput `json:"forward_input,omitzero"`
}

// JSON encodes the request, for [Forward] if ForwardOnly is set and for [ForwardBackward] otherwise.
func (r ForwardRequest) JSON() ([]byte, error) {
	out := forwardJSON{ModelID: r.ModelID, SeqID: r.SeqID}
	if r.ForwardOnly {
		out.Only = &r.Input
	} else {
		out.Both = &r.Input
	}
	return json.Marshal(out, json.Deterministic(true))
}

// ForwardOutput is the result of both calls.
type ForwardOutput struct {
	Type    string              `json:"loss_fn_output_type"`
	Outputs []map[string]Tensor `json:"loss_fn_outputs"`
	Metrics map[string]float64  `json:"metrics"`
}

// FromResult is the wire form of a result.
func FromResult(res tinker.ForwardResult) ForwardOutput {
	out := ForwardOutput{Type: "scalar", Outputs: make([]map[string]Tensor, len(res.Logprobs)), Metrics: res.Metrics}
	if out.Metrics == nil {
		out.Metrics = map[string]float64{}
	}
	for i := range res.Logprobs {
		out.Outputs[i] = map[string]Tensor{
			elementwiseLoss: FloatTensor(res.Losses[i]),
			logprobs:        FloatTensor(res.Logprobs[i]),
		}
	}
	return out
}

// JSON encodes the result. NaN and infinities, which JSON does not have, are errors.
func (o ForwardOutput) JSON() ([]byte, error) { return json.Marshal(o, json.Deterministic(true)) }

// Result converts the result of a batch back. Every datum must have an output of its own length; what does not fit is
// agl.CodeInvalid. For engines that return no elementwise_loss, as the hosted service, [tinker.Loss.Elementwise] computes
// it from the log-probabilities.
func (o ForwardOutput) Result(p tinker.ForwardParams) (tinker.ForwardResult, error) {
	if len(o.Outputs) != len(p.Data) {
		return tinker.ForwardResult{}, invalid("result: %d outputs for %d data", len(o.Outputs), len(p.Data))
	}
	res := tinker.ForwardResult{Metrics: o.Metrics, Logprobs: make([][]float32, len(p.Data)), Losses: make([][]float32, len(p.Data))}
	for i, d := range p.Data {
		n := len(d.Targets)
		lp, ok := o.Outputs[i][logprobs]
		if !ok || lp.Len() != n {
			return tinker.ForwardResult{}, invalid("result: output %d has %d %s for %d targets", i, lp.Len(), logprobs, n)
		}
		res.Logprobs[i] = slices.Clone(lp.Vector())
		loss, ok := o.Outputs[i][elementwiseLoss]
		switch {
		case !ok:
			res.Losses[i] = p.Loss.Elementwise(&d, res.Logprobs[i])
		case loss.Len() != n:
			return tinker.ForwardResult{}, invalid("result: output %d has %d %s for %d targets", i, loss.Len(), elementwiseLoss, n)
		default:
			res.Losses[i] = slices.Clone(loss.Vector())
		}
		for _, v := range res.Losses[i] {
			res.Loss += float64(v)
		}
	}
	return res, nil
}
