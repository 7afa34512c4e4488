package adapter

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Triplet is one model call for a learner: prompt, response and reward. Its JSON
// form is that of the Python package's Triplet.
type Triplet struct {
	Prompt   Prompt            `json:"prompt"`
	Response Response          `json:"response"`
	Reward   agl.Null[float64] `json:"reward"` // null when no reward was matched to the call
	Metadata Metadata          `json:"metadata"`
	// Call is the call itself, which is not part of the JSON form.
	Call Call `json:"-"`
}

// Prompt is what the model was given.
type Prompt struct {
	// TokenIDs is empty when none were recorded. Prompts that continue one another may share memory: do not change
	// them.
	TokenIDs []int32 `json:"token_ids"`
	// RawContent is the list of messages as in the attributes, null when there are none. Nil in triplets of a proxy.
	RawContent jsontext.Value `json:"raw_content,omitzero"`
	// ImageURLs are the addresses of the images in the messages, in order. Nil in triplets of a proxy.
	ImageURLs []string `json:"image_urls,omitzero"`
}

// Response is what the model answered.
type Response struct {
	// TokenIDs is empty when none were recorded.
	TokenIDs []int32 `json:"token_ids"`
	// RawContent is the list of choices as in the attributes, null when there are none. Nil in triplets of a proxy.
	RawContent jsontext.Value `json:"raw_content,omitzero"`
	// Logprobs is the attribute logprobs.content, a list of objects with a token and a logprob each; nil when it is missing.
	Logprobs jsontext.Value `json:"logprobs,omitzero"`
}

// Metadata describes a call.
type Metadata struct {
	// Request and Response are the other attributes of the request and the
	// response, null when there are none. Nil in triplets of a proxy.
	Request  jsontext.Value `json:"request,omitzero"`
	Response jsontext.Value `json:"response,omitzero"`
	// ResponseID is the reply's id, null when none was recorded.
	ResponseID agl.Null[string] `json:"response_id"`
	// AgentName is the agent that made the call, "*" if no agent has a name. Null in triplets of a proxy.
	AgentName agl.Null[string] `json:"agent_name,omitzero"`
}
