package wire

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/tinker"
)

// Stop is what ends a completion: tokens or texts. A sampler knows only tokens.
type Stop struct {
	Tokens []int32
	Texts  []string
}

// MarshalJSONTo implements json.MarshalerTo.
func (s Stop) MarshalJSONTo(enc *jsontext.Encoder) error {
	if s.Texts != nil {
		return json.MarshalEncode(enc, s.Texts)
	}
	return json.MarshalEncode(enc, s.Tokens)
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom: a text, a list of texts or a list of tokens.
func (s *Stop) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*s = Stop{}
	switch {
	case v.Kind() == jsontext.KindNull:
		return nil
	case v.Kind() == jsontext.KindString:
		s.Texts = make([]string, 1)
		return json.Unmarshal(v, &s.Texts[0])
	case json.Unmarshal(v, &s.Tokens) == nil:
		return nil
	}
	s.Tokens = nil
	if err := json.Unmarshal(v, &s.Texts); err != nil {
		return invalid("stop: a list of token ids, or of texts, is needed: %w", err)
	}
	return nil
}

// SamplingParams says how to sample. Nil means the SDK's default: temperature 1, all tokens.
type SamplingParams struct {
	MaxTokens   *int     `json:"max_tokens,omitzero"`
	Seed        *uint64  `json:"seed,omitzero"`
	Stop        Stop     `json:"stop,omitzero"`
	Temperature *float64 `json:"temperature,omitzero"`
	TopK        *int     `json:"top_k,omitzero"`
	TopP        *float64 `json:"top_p,omitzero"`
}

// SampleRequest asks for completions from one of three sources: a sampling session, whose requests SeqID counts; saved
// weights; or a base model.
type SampleRequest struct {
	NumSamples          int            `json:"num_samples,omitzero"`
	Prompt              ModelInput     `json:"prompt"`
	Params              SamplingParams `json:"sampling_params"`
	SamplingSessionID   string         `json:"sampling_session_id,omitzero"`
	SeqID               *int64         `json:"seq_id,omitzero"`
	ModelPath           string         `json:"model_path,omitzero"`
	BaseModel           string         `json:"base_model,omitzero"`
	PromptLogprobs      bool           `json:"prompt_logprobs"`
	TopKPromptLogprobs  int            `json:"topk_prompt_logprobs"`
	TopKSampledLogprobs int            `json:"topk_sample_logprobs,omitzero"`
	// PromptLogprobsLastN makes all but the last n of the prompt's log-probabilities null.
	PromptLogprobsLastN  *int           `json:"prompt_logprobs_last_n,omitzero"`
	TargetPromptLogprobs jsontext.Value `json:"target_prompt_logprobs,omitzero"`
	PromptAltTokensK     int            `json:"prompt_alt_tokens_k,omitzero"`
	RecordStability      bool           `json:"record_stability_info,omitzero"`
	Type                 string         `json:"type"`
}

// FromSample is the wire form of p, without a source.
func FromSample(p tinker.SampleParams) SampleRequest {
	r := SampleRequest{
		NumSamples: max(p.NumSamples, 1), Prompt: textInput(p.Prompt), PromptLogprobs: p.PromptLogprobs, Type: "sample",
		Params: SamplingParams{
			MaxTokens: &p.MaxTokens, Seed: p.Seed, Stop: Stop{Tokens: p.Stop},
			Temperature: &p.Temperature, TopK: &p.TopK, TopP: &p.TopP,
		},
	}
	if p.TopK <= 0 {
		r.Params.TopK = new(-1)
	}
	if p.TopP == 0 {
		r.Params.TopP = new(1.0)
	}
	return r
}

// SampleParams converts the request back. What a sampler of tokens cannot do is agl.ErrInvalid.
func (r SampleRequest) SampleParams() (tinker.SampleParams, error) {
	p := tinker.SampleParams{
		NumSamples: r.NumSamples, Seed: r.Params.Seed, Stop: r.Params.Stop.Tokens, Temperature: 1, TopP: 1,
		PromptLogprobs: r.PromptLogprobs,
	}
	var err error
	if p.Prompt, err = r.Prompt.Tokens(); err != nil {
		return p, invalid("prompt: %w", err)
	}
	switch {
	case r.Params.MaxTokens == nil:
		return p, invalid("sampling_params.max_tokens: is required")
	case len(r.Params.Stop.Texts) > 0:
		return p, invalid("sampling_params.stop: this engine knows tokens; give the ids of stop tokens")
	case r.PromptLogprobsLastN != nil && (!r.PromptLogprobs || *r.PromptLogprobsLastN < 1 || *r.PromptLogprobsLastN >= len(p.Prompt)):
		return p, invalid("prompt_logprobs_last_n: is %d; it goes with prompt_logprobs, and a prompt of %d tokens allows 1 to %d",
			*r.PromptLogprobsLastN, len(p.Prompt), len(p.Prompt)-1)
	}
	for _, f := range []struct {
		name  string
		asked bool
	}{
		{"topk_prompt_logprobs", r.TopKPromptLogprobs > 0},
		{"topk_sample_logprobs", r.TopKSampledLogprobs > 0},
		{"target_prompt_logprobs", r.TargetPromptLogprobs != nil && r.TargetPromptLogprobs.Kind() != jsontext.KindNull},
		{"prompt_alt_tokens_k", r.PromptAltTokensK > 0},
		{"record_stability_info", r.RecordStability},
	} {
		if f.asked {
			return p, invalid("%s: is not supported; prompt_logprobs and forward give log-probabilities of given tokens", f.name)
		}
	}
	p.MaxTokens = *r.Params.MaxTokens
	if r.Params.Temperature != nil {
		p.Temperature = *r.Params.Temperature
	}
	if r.Params.TopK != nil {
		p.TopK = *r.Params.TopK
	}
	if r.Params.TopP != nil {
		if p.TopP = *r.Params.TopP; p.TopP == 0 {
			// In tinker.SampleParams zero means the default.
			return p, invalid("sampling_params.top_p: is 0; a number in (0, 1] is needed")
		}
	}
	return p, nil
}

type (
	sampleJSON struct {
		Sequences      []sequenceJSON `json:"sequences"`
		PromptLogprobs []*float32     `json:"prompt_logprobs"`
		Type           string         `json:"type,omitzero"`
	}
	sequenceJSON struct {
		StopReason string    `json:"stop_reason"`
		Tokens     []int32   `json:"tokens"`
		Logprobs   []float32 `json:"logprobs"`
	}
)

// newSample is the wire form of a result, with the last log-probabilities of the prompt; nil means all of them.
func newSample(res tinker.SampleResult, last *int) sampleJSON {
	out := sampleJSON{Sequences: make([]sequenceJSON, len(res.Sequences)), Type: "sample"}
	for i, s := range res.Sequences {
		out.Sequences[i] = sequenceJSON{StopReason: string(s.StopReason), Tokens: s.Tokens, Logprobs: s.Logprobs}
	}
	if res.PromptLogprobs != nil {
		out.PromptLogprobs = make([]*float32, 1+len(res.PromptLogprobs)) // the first token has none
		for i := range res.PromptLogprobs {
			out.PromptLogprobs[i+1] = &res.PromptLogprobs[i]
		}
	}
	if last != nil {
		clear(out.PromptLogprobs[:len(out.PromptLogprobs)-*last])
	}
	return out
}

func (r sampleJSON) json() ([]byte, error) {
	return json.Marshal(r, json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, v []*float32) error {
		if v == nil {
			return enc.WriteToken(jsontext.Null)
		}
		return errors.ErrUnsupported
	})))
}

// result converts the result of a request back. Every token must have a log-probability.
func (r sampleJSON) result(p tinker.SampleParams) (tinker.SampleResult, error) {
	if want := max(p.NumSamples, 1); len(r.Sequences) != want {
		return tinker.SampleResult{}, invalid("result: %d sequences; %d were asked for", len(r.Sequences), want)
	}
	out := tinker.SampleResult{Sequences: make([]tinker.Sequence, len(r.Sequences))}
	for i, s := range r.Sequences {
		if len(s.Logprobs) == 0 && len(s.Tokens) > 0 {
			return tinker.SampleResult{}, invalid("result: sequence %d has no logprobs: the engine must return the log-probability of each token that it samples", i)
		}
		if len(s.Tokens) != len(s.Logprobs) {
			return tinker.SampleResult{}, invalid("result: sequence %d has %d tokens and %d logprobs", i, len(s.Tokens), len(s.Logprobs))
		}
		reason := tinker.StopReason(s.StopReason)
		if reason != tinker.StopToken && reason != tinker.StopLength {
			return tinker.SampleResult{}, invalid("result: sequence %d has the stop_reason %q", i, s.StopReason)
		}
		out.Sequences[i] = tinker.Sequence{Tokens: s.Tokens, Logprobs: s.Logprobs, StopReason: reason}
	}
	if !p.PromptLogprobs {
		return out, nil
	}
	given := r.PromptLogprobs
	if len(given) == len(p.Prompt) && given[0] == nil {
		given = given[1:] // SkyRL sends no null for the first token
	}
	if len(given) != len(p.Prompt)-1 {
		return tinker.SampleResult{}, invalid("result: %d prompt_logprobs for a prompt of %d tokens", len(r.PromptLogprobs), len(p.Prompt))
	}
	out.PromptLogprobs = make([]float32, len(given))
	for i, v := range given {
		if v == nil {
			return tinker.SampleResult{}, invalid("result: prompt_logprobs has a null after the first token")
		}
		out.PromptLogprobs[i] = *v
	}
	return out, nil
}
