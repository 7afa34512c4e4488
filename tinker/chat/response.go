package chat

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The responses of OpenAI's API, with the additions of vLLM's server: prompt_token_ids of a completion and token_ids of a
// choice are there if the request has return_token_ids.

type completionBody struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"` // chat.completion or chat.completion.chunk
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []choiceBody `json:"choices"`
	Usage             *usageBody   `json:"usage,omitzero"`
	SystemFingerprint string       `json:"system_fingerprint,omitzero"`
	PromptTokenIDs    []int32      `json:"prompt_token_ids,omitzero"`
}

// choiceBody has a message, or a delta if it is a part of a stream.
type choiceBody struct {
	Index        int           `json:"index"`
	Message      *messageBody  `json:"message,omitzero"`
	Delta        *deltaBody    `json:"delta,omitzero"`
	Logprobs     *logprobsBody `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitzero"`
}

type messageBody struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning string     `json:"reasoning_content,omitzero"`
	ToolCalls []ToolCall `json:"tool_calls,omitzero"`
}

type deltaBody struct {
	Role      string          `json:"role,omitzero"`
	Content   *string         `json:"content,omitzero"`
	Reasoning string          `json:"reasoning_content,omitzero"`
	ToolCalls []callDeltaBody `json:"tool_calls,omitzero"`
}

type callDeltaBody struct {
	Index int `json:"index"`
	ToolCall
}

type usageBody struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

type logprobsBody struct {
	Content []logprobBody `json:"content"`
	Refusal *string       `json:"refusal"`
}

type logprobBody struct {
	Token       string     `json:"token"`
	Logprob     float32    `json:"logprob"`
	Bytes       []uint16   `json:"bytes"` // not []byte, which is base64 in JSON
	TopLogprobs []struct{} `json:"top_logprobs"`
}

type modelListBody struct {
	Object string      `json:"object"` // list
	Data   []modelBody `json:"data"`
}

type modelBody struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // model
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitzero"`
}

// result is everything that a completion says.
type result struct {
	req     *request
	tok     Tokenizer
	id      string
	created int64
	version string
	prompt  []int32
	choices []sampledChoice
}

func (r *result) response(object string) completionBody {
	return completionBody{ID: r.id, Object: object, Created: r.created, Model: r.req.Model, Choices: []choiceBody{}, SystemFingerprint: r.version}
}

func (r *result) usage() *usageBody {
	u := usageBody{PromptTokens: len(r.prompt), TotalTokens: len(r.prompt)}
	for _, c := range r.choices {
		u.CompletionTokens += len(c.tokens)
		u.TotalTokens += len(c.tokens)
	}
	return &u
}

// promptIDs are the ids of the prompt, if the request asks for them.
func (r *result) promptIDs() []int32 {
	if !r.req.ReturnTokenIDs {
		return nil
	}
	return r.prompt
}

// completion is the response to a request that does not stream.
func (r *result) completion() completionBody {
	out := r.response("chat.completion")
	for i, sampled := range r.choices {
		from := sampled.message
		m := &messageBody{Role: "assistant", Content: &from.Content, Reasoning: from.Reasoning, ToolCalls: from.ToolCalls}
		if len(m.ToolCalls) > 0 && *m.Content == "" {
			m.Content = nil
		}
		c := r.choice(i, &part{end: len(sampled.tokens)}, sampled.finish)
		c.Message = m
		out.Choices = append(out.Choices, c)
	}
	out.Usage, out.PromptTokenIDs = r.usage(), r.promptIDs()
	return out
}

// choice is a choice with the tokens of p, or none if p is nil, without its message or delta. An empty finish is not the
// end yet.
func (r *result) choice(index int, p *part, finish string) choiceBody {
	c := choiceBody{Index: index}
	if finish != "" {
		c.FinishReason = &finish
	}
	if p == nil {
		return c
	}
	sampled := r.choices[index]
	if r.req.ReturnTokenIDs {
		c.TokenIDs = sampled.tokens[p.begin:p.end]
	}
	if r.req.Logprobs {
		c.Logprobs = r.logprobs(sampled.tokens[p.begin:p.end], sampled.logprobs[p.begin:p.end])
	}
	return c
}

func (r *result) logprobs(tokens []int32, values []float32) *logprobsBody {
	speller, spells := r.tok.(Speller)
	out := &logprobsBody{Content: make([]logprobBody, len(tokens))}
	for i, id := range tokens {
		text := r.tok.Decode(tokens[i : i+1])
		spelt := []byte(text)
		if spells {
			spelt = speller.TokenBytes(id)
		}
		numbers := make([]uint16, len(spelt))
		for j, b := range spelt {
			numbers[j] = uint16(b)
		}
		out.Content[i] = logprobBody{Token: text, Logprob: values[i], Bytes: numbers}
	}
	return out
}

// encodeResponse encodes a response. A byte that is not UTF-8 becomes U+FFFD.
func encodeResponse(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}
