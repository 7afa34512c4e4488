package openai

import "github.com/go-json-experiment/json/jsontext"

// responsesRequest is a request of the Responses API. Other members are in Rest.
type responsesRequest struct {
	Model             jsontext.Value      `json:"model,omitzero"`
	Input             jsontext.Value      `json:"input,omitzero"` // a string or items
	Instructions      jsontext.Value      `json:"instructions,omitzero"`
	Tools             []responsesTool     `json:"tools,omitempty"`
	ToolChoice        jsontext.Value      `json:"tool_choice,omitzero"`
	ParallelToolCalls *bool               `json:"parallel_tool_calls,omitzero"`
	MaxOutputTokens   jsontext.Value      `json:"max_output_tokens,omitzero"`
	Stream            jsontext.Value      `json:"stream,omitzero"`
	Temperature       jsontext.Value      `json:"temperature,omitzero"`
	TopP              jsontext.Value      `json:"top_p,omitzero"`
	Text              *responsesText      `json:"text,omitzero"`
	Reasoning         *responsesReasoning `json:"reasoning,omitzero"`
	User              jsontext.Value      `json:"user,omitzero"`
	Metadata          jsontext.Value      `json:"metadata,omitzero"`
	Include           []string            `json:"include,omitempty"`
	Rest              jsontext.Value      `json:",embed"`
}

type responsesText struct {
	Format    *responsesFormat `json:"format,omitzero"`
	Verbosity jsontext.Value   `json:"verbosity,omitzero"`
}

type responsesFormat struct {
	Type        string         `json:"type"`
	Name        jsontext.Value `json:"name,omitzero"`
	Description jsontext.Value `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      jsontext.Value `json:"strict,omitzero"`
}

type responsesReasoning struct {
	Effort  jsontext.Value `json:"effort"`
	Summary jsontext.Value `json:"summary"`
}

// responsesItem is an item of the input or of the output.
type responsesItem struct {
	Type      string         `json:"type,omitzero"` // of the input, empty is message
	ID        jsontext.Value `json:"id,omitzero"`
	Status    string         `json:"status,omitzero"`
	Role      string         `json:"role,omitzero"`
	CallID    jsontext.Value `json:"call_id,omitzero"`
	Name      jsontext.Value `json:"name,omitzero"`
	Namespace jsontext.Value `json:"namespace,omitzero"`
	Arguments jsontext.Value `json:"arguments,omitzero"`
	Input     jsontext.Value `json:"input,omitzero"` // of a custom_tool_call
	Output    jsontext.Value `json:"output,omitzero"`
	Summary   jsontext.Value `json:"summary,omitzero"`
	Content   jsontext.Value `json:"content,omitzero"`
	Encrypted jsontext.Value `json:"encrypted_content,omitzero"` // of reasoning
}

type responsesPart struct {
	Type        string         `json:"type"`
	Text        jsontext.Value `json:"text,omitzero"`
	Refusal     jsontext.Value `json:"refusal,omitzero"`
	ImageURL    jsontext.Value `json:"image_url,omitzero"`
	Detail      jsontext.Value `json:"detail,omitzero"`
	Annotations jsontext.Value `json:"annotations,omitzero"`
	Logprobs    jsontext.Value `json:"logprobs,omitzero"`
}

// ResponsesOptions configures a translation from and to the Responses API.
type ResponsesOptions struct {
	Hosted  bool   // the backend knows max_completion_tokens instead of max_tokens
	ID      string // of the response, such as resp_1
	Created int64  // of the response, in seconds since 1970
}
