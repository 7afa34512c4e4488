package chat

import (
	"math"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// request is a chat completion request. Absent and null members are nil; unknown members are ignored.
type request struct {
	Model               string    `json:"model"`
	Messages            []Message `json:"messages"`
	MaxTokens           *int      `json:"max_tokens"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	Temperature         *float64  `json:"temperature"`
	TopP                *float64  `json:"top_p"`
	TopK                *int      `json:"top_k"`
	N                   *int      `json:"n"`
	Stop                stopList  `json:"stop"`
	Seed                *int64    `json:"seed"`
	Stream              bool      `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Logprobs       looseBool      `json:"logprobs"`
	TopLogprobs    *int           `json:"top_logprobs"`
	ReturnTokenIDs bool           `json:"return_token_ids"`
	Tools          jsontext.Value `json:"tools"`
	Variables      jsontext.Value `json:"chat_template_kwargs"`

	// These would change what is sampled, which is not supported: anything but their defaults is refused.
	FrequencyPenalty *float64       `json:"frequency_penalty"`
	PresencePenalty  *float64       `json:"presence_penalty"`
	LogitBias        map[string]any `json:"logit_bias"`
	ResponseFormat   *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

// stopList reads one string, an array of strings, or null.
type stopList []string

func (s *stopList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*s = nil
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '"':
		var one string
		if err := json.UnmarshalDecode(dec, &one); err != nil {
			return err
		}
		*s = stopList{one}
		return nil
	default:
		return json.UnmarshalDecode(dec, (*[]string)(s))
	}
}

// looseBool reads a boolean, null, or a number, which some gateways send for logprobs; 0 is false.
type looseBool bool

func (f *looseBool) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*f = false
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '0':
		var n float64
		if err := json.UnmarshalDecode(dec, &n); err != nil {
			return err
		}
		*f = n != 0
		return nil
	default:
		return json.UnmarshalDecode(dec, (*bool)(f))
	}
}

// maxChoices bounds the member n.
const maxChoices = 128

// maxParts is how many objects, lists and nulls a body may have. Decoded, one of them takes some hundred bytes.
const maxParts = 100_000

// decodeRequest decodes and validates a request body.
func decodeRequest(body []byte) (*request, *apiError) {
	if rawjson.More(body, maxParts) {
		return nil, badRequest("", "invalid_value", "the request body has more than %d objects, lists and nulls", maxParts)
	}
	r := new(request)
	if err := json.Unmarshal(body, r); err != nil {
		return nil, badRequest("", "", "the request body is not a chat completion request: %v", rawjson.Mistake(err))
	}
	return r, r.validate()
}

func (r *request) validate() *apiError {
	switch {
	case r.Model == "":
		return badRequest("model", "missing_required_parameter", "you must provide a model")
	case len(r.Messages) == 0:
		return badRequest("messages", "missing_required_parameter", "messages must contain at least one message")
	case len(r.Stop) > 4:
		return badRequest("stop", "invalid_value", "stop has %d entries; at most 4 are allowed", len(r.Stop))
	case slices.Contains(r.Stop, ""):
		return badRequest("stop", "invalid_value", "stop contains an empty string")
	}
	if err := r.validateNumbers(); err != nil {
		return err
	}
	return r.refuseUnsupported()
}

func (r *request) validateNumbers() *apiError {
	for _, f := range []struct {
		name      string
		value     *int
		low, high int
	}{
		{"max_tokens", r.MaxTokens, 1, math.MaxInt32},
		{"max_completion_tokens", r.MaxCompletionTokens, 1, math.MaxInt32},
		{"n", r.N, 1, maxChoices},
		{"top_k", r.TopK, -1, math.MaxInt32},
	} {
		if f.value != nil && (*f.value < f.low || *f.value > f.high) {
			return badRequest(f.name, "invalid_value", "%s is %d; allowed is %d to %d", f.name, *f.value, f.low, f.high)
		}
	}
	if v := r.Temperature; v != nil && (*v < 0 || *v > 2) {
		return badRequest("temperature", "invalid_value", "temperature is %v; allowed is 0 to 2", *v)
	}
	if v := r.TopP; v != nil && (*v <= 0 || *v > 1) {
		return badRequest("top_p", "invalid_value", "top_p is %v; allowed is above 0 up to 1", *v)
	}
	return nil
}

func (r *request) refuseUnsupported() *apiError {
	for _, f := range []struct {
		name    string
		refused bool
	}{
		{"frequency_penalty", r.FrequencyPenalty != nil && *r.FrequencyPenalty != 0},
		{"presence_penalty", r.PresencePenalty != nil && *r.PresencePenalty != 0},
		{"logit_bias", len(r.LogitBias) > 0},
		{"response_format", r.ResponseFormat != nil && r.ResponseFormat.Type != "text"},
	} {
		if f.refused {
			return badRequest(f.name, "unsupported_parameter", "%s is not supported by this server", f.name)
		}
	}
	if r.TopLogprobs != nil && *r.TopLogprobs != 0 {
		return badRequest("top_logprobs", "unsupported_parameter",
			"top_logprobs is %d; this server knows only the log-probability of the sampled token, so it must be 0", *r.TopLogprobs)
	}
	return nil
}

// maxTokens is the request's bound on a completion; 0 is none.
func (r *request) maxTokens() int {
	return or(r.MaxCompletionTokens, or(r.MaxTokens, 0))
}

func or[T any](given *T, def T) T {
	if given == nil {
		return def
	}
	return *given
}

// variables is chat_template_kwargs, nil if it is absent or null.
func (r *request) variables() jsontext.Value {
	if string(r.Variables) == "null" {
		return nil
	}
	return r.Variables
}

// tools is the tools array, nil if it is absent, null or empty.
func (r *request) tools() jsontext.Value {
	switch string(r.Tools) {
	case "", "null", "[]":
		return nil
	}
	return r.Tools
}
