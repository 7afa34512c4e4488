package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/tinker"
)

// ForwardRequest is the body of [Forward] and [ForwardBackward].
type ForwardRequest struct {
	ModelID string
	SeqID   *int64
	Params  tinker.ForwardParams
	// ForwardOnly asks for no gradient. In JSON it is another call; in protobuf it is a field.
	ForwardOnly bool
}

// ModelInput is a prompt or a training sequence.
type ModelInput struct {
	Chunks []Chunk `json:"chunks"`
}

// Chunk is a part of a [ModelInput]. Only text is supported.
type Chunk struct {
	Type   string  `json:"type,omitzero"`
	Tokens []int32 `json:"tokens"`
}

const encodedText = "encoded_text" // the type of a chunk of tokens, also if it is missing

func textInput(tokens []int32) ModelInput {
	return ModelInput{Chunks: []Chunk{{Type: encodedText, Tokens: tokens}}}
}

// Tokens joins the chunks. A chunk of anything but text is agl.ErrInvalid.
func (m ModelInput) Tokens() ([]int32, error) {
	var ids []int32
	for i, c := range m.Chunks {
		if c.Type != "" && c.Type != encodedText {
			return nil, invalid("chunks[%d]: type %q is not supported; allowed is %q", i, c.Type, encodedText)
		}
		ids = append(ids, c.Tokens...)
	}
	return ids, nil
}

// lossConfig is the configuration of a loss on the wire. Servers refuse the keys of another loss, and have different
// defaults for beta.
func lossConfig(l tinker.Loss) map[string]float64 {
	l = l.WithDefaults()
	switch {
	case l.Name.Clips():
		return map[string]float64{clipLow: float64(l.ClipLow), clipHigh: float64(l.ClipHigh)}
	case l.Name == tinker.DRO:
		return map[string]float64{beta: float64(l.Beta)}
	}
	return nil
}

const (
	clipLow  = "clip_low_threshold"
	clipHigh = "clip_high_threshold"
	beta     = "beta"
)

func readLoss(name string, config map[string]float64) (tinker.Loss, error) {
	l := tinker.Loss{Name: tinker.LossName(name)}
	for key, v := range config {
		if v == 0 {
			// In tinker.Loss zero means the default.
			return l, invalid("loss_fn_config: %s is 0; a positive number is needed", key)
		}
		switch key {
		case clipLow:
			l.ClipLow = float32(v)
		case clipHigh:
			l.ClipHigh = float32(v)
		case beta:
			l.Beta = float32(v)
		default:
			return l, invalid("loss_fn_config: %q is unknown; allowed are %q, %q, %q", key, clipLow, clipHigh, beta)
		}
	}
	return l, nil
}

// The names of the tensors of a datum and of a result.
const (
	targetTokens    = "target_tokens"
	weights         = "weights"
	logprobs        = "logprobs"
	advantages      = "advantages"
	elementwiseLoss = "elementwise_loss"
)

// unknownInput refuses a tensor of a datum: it would change the loss.
func unknownInput(name string) error {
	return invalid("loss_fn_inputs: %q is unknown; allowed are %q, %q, %q, %q", name, targetTokens, weights, logprobs, advantages)
}

type (
	forwardJSON struct {
		ModelID string     `json:"model_id"`
		SeqID   *int64     `json:"seq_id,omitzero"`
		Both    *batchJSON `json:"forward_backward_input,omitzero"`
		Only    *batchJSON `json:"forward_input,omitzero"`
	}
	batchJSON struct {
		Data         []datumJSON        `json:"data"`
		LossFn       string             `json:"loss_fn"`
		LossFnConfig map[string]float64 `json:"loss_fn_config,omitzero"`
	}
	datumJSON struct {
		ModelInput ModelInput `json:"model_input"`
		Inputs     inputsJSON `json:"loss_fn_inputs"`
	}
	inputsJSON struct {
		Advantages numbers                   `json:"advantages,omitzero"`
		Logprobs   numbers                   `json:"logprobs,omitzero"`
		Targets    tokenIDs                  `json:"target_tokens,omitzero"`
		Weights    numbers                   `json:"weights,omitzero"`
		Unknown    map[string]jsontext.Value `json:",embed"`
	}
)

func (r ForwardRequest) json() ([]byte, error) {
	batch := &batchJSON{Data: make([]datumJSON, len(r.Params.Data)), LossFn: string(r.Params.Loss.Name), LossFnConfig: lossConfig(r.Params.Loss)}
	for i, d := range r.Params.Data {
		batch.Data[i] = datumJSON{textInput(d.Input), inputsJSON{Advantages: d.Advantages, Logprobs: d.Logprobs, Targets: d.Targets, Weights: d.Weights}}
	}
	out := forwardJSON{ModelID: r.ModelID, SeqID: r.SeqID, Both: batch}
	if r.ForwardOnly {
		out.Both, out.Only = nil, batch
	}
	return json.Marshal(out, json.Deterministic(true))
}

func forwardFromJSON(body []byte) (ForwardRequest, error) {
	in, err := decodeJSON[forwardJSON]("body", body)
	if err != nil {
		return ForwardRequest{}, err
	}
	r := ForwardRequest{ModelID: in.ModelID, SeqID: in.SeqID, ForwardOnly: in.Only != nil}
	batch := in.Both
	if r.ForwardOnly {
		batch = in.Only
	}
	if (in.Both == nil) == (in.Only == nil) {
		return r, invalid("body: one of forward_backward_input and forward_input is needed")
	}
	if r.Params.Loss, err = readLoss(batch.LossFn, batch.LossFnConfig); err != nil {
		return r, err
	}
	r.Params.Data = make([]tinker.Datum, len(batch.Data))
	for i, from := range batch.Data {
		in := from.Inputs
		r.Params.Data[i] = tinker.Datum{Targets: in.Targets, Weights: in.Weights, Logprobs: in.Logprobs, Advantages: in.Advantages}
		for name := range in.Unknown {
			return r, invalid("data[%d]: %w", i, unknownInput(name))
		}
		if r.Params.Data[i].Input, err = from.ModelInput.Tokens(); err != nil {
			return r, invalid("data[%d]: model_input: %w", i, err)
		}
	}
	return r, nil
}

// decodeJSON reads a message; what names it in errors.
func decodeJSON[T any](what string, body []byte) (message T, err error) {
	if err := DecodeJSON(body, &message); err != nil {
		return message, invalid("%s: %w", what, err)
	}
	return message, nil
}

type (
	resultJSON struct {
		Type    string             `json:"loss_fn_output_type"`
		Outputs []outputJSON       `json:"loss_fn_outputs"`
		Metrics map[string]float64 `json:"metrics"`
	}
	// outputJSON is the result of a datum. Losses is nil from engines that do not return it.
	outputJSON struct {
		Losses   numbers `json:"elementwise_loss,omitzero"`
		Logprobs numbers `json:"logprobs,omitzero"`
	}
)

// newResult is the wire form of a result.
func newResult(res tinker.ForwardResult) resultJSON {
	out := resultJSON{Type: "scalar", Outputs: make([]outputJSON, len(res.Logprobs)), Metrics: res.Metrics}
	for i := range res.Logprobs {
		out.Outputs[i] = outputJSON{Losses: res.Losses[i], Logprobs: res.Logprobs[i]}
	}
	return out
}

// result converts the result of a batch back. Every datum must have an output of its own length.
func (r resultJSON) result(p tinker.ForwardParams) (tinker.ForwardResult, error) {
	if len(r.Outputs) != len(p.Data) {
		return tinker.ForwardResult{}, invalid("result: %d outputs for %d data", len(r.Outputs), len(p.Data))
	}
	res := tinker.ForwardResult{Metrics: r.Metrics, Logprobs: make([][]float32, len(p.Data)), Losses: make([][]float32, len(p.Data))}
	for i, d := range p.Data {
		out, n := r.Outputs[i], len(d.Targets)
		if len(out.Logprobs) != n {
			return tinker.ForwardResult{}, invalid("result: output %d has %d %s for %d targets", i, len(out.Logprobs), logprobs, n)
		}
		if out.Losses == nil {
			out.Losses = p.Loss.Elementwise(&d, out.Logprobs)
		}
		if len(out.Losses) != n {
			return tinker.ForwardResult{}, invalid("result: output %d has %d %s for %d targets", i, len(out.Losses), elementwiseLoss, n)
		}
		res.Logprobs[i], res.Losses[i] = out.Logprobs, out.Losses
		for _, v := range out.Losses {
			res.Loss += float64(v)
		}
	}
	return res, nil
}
