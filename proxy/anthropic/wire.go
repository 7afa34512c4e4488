package anthropic

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/proxy/openai"
)

// raw is JSON that is copied byte for byte.
type raw = jsontext.Value

// request is a request for a message. Other members are in Rest.
type request struct {
	Model         raw         `json:"model,omitzero"`
	Messages      []message   `json:"messages"`
	System        raw         `json:"system,omitzero"` // a string or blocks
	MaxTokens     raw         `json:"max_tokens,omitzero"`
	StopSequences raw         `json:"stop_sequences,omitzero"`
	Stream        raw         `json:"stream,omitzero"`
	Temperature   raw         `json:"temperature,omitzero"`
	TopP          raw         `json:"top_p,omitzero"`
	Metadata      *metadata   `json:"metadata,omitzero"`
	Tools         []tool      `json:"tools,omitempty"`
	ToolChoice    *toolChoice `json:"tool_choice,omitzero"`
	Thinking      *thinking   `json:"thinking,omitzero"`
	OutputConfig  *output     `json:"output_config,omitzero"`
	Rest          raw         `json:",embed"`
}

type metadata struct {
	UserID raw `json:"user_id,omitzero"`
}

type message struct {
	Role    string `json:"role"`
	Content raw    `json:"content"` // a string or blocks
}

type tool struct {
	Type        string `json:"type,omitzero"` // empty is custom
	Name        raw    `json:"name"`
	Description raw    `json:"description,omitzero"`
	InputSchema raw    `json:"input_schema,omitzero"`
	Strict      raw    `json:"strict,omitzero"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            raw    `json:"name,omitzero"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitzero"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int64  `json:"budget_tokens,omitzero"`
}

type output struct {
	Effort string  `json:"effort,omitzero"`
	Format *format `json:"format,omitzero"`
}

type format struct {
	Type   string `json:"type"`
	Schema raw    `json:"schema,omitzero"`
}

// block is a content block of a request or a reply.
type block struct {
	Index     *int    `json:"index,omitzero"` // of a thinking block within a chat completion
	Type      string  `json:"type"`
	Text      raw     `json:"text,omitzero"`
	Thinking  raw     `json:"thinking,omitzero"`
	Signature raw     `json:"signature,omitzero"`
	ID        raw     `json:"id,omitzero"`
	Name      raw     `json:"name,omitzero"`
	Input     raw     `json:"input,omitzero"`
	ToolUseID raw     `json:"tool_use_id,omitzero"`
	Content   raw     `json:"content,omitzero"` // of a tool result: a string or blocks
	IsError   bool    `json:"is_error,omitzero"`
	Source    *source `json:"source,omitzero"` // of an image
	Data      raw     `json:"data,omitzero"`   // of redacted thinking
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       raw    `json:"url,omitzero"`
}

// reply is a message.
type reply struct {
	ID           raw     `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        raw     `json:"model"`
	Content      []block `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence raw     `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
	Error        raw     `json:"error,omitzero"` // of a backend that failed
}

// usage counts tokens. Tokens of a prompt that a cache read or wrote are not in Input.
type usage struct {
	Input         int64 `json:"input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Output        int64 `json:"output_tokens"`
}

// UnmarshalJSON sets the counts that are given, so that the usage of a later event continues that of an earlier one. If one of
// them is no number of tokens, there is no usage, like for [openai.ParseUsage].
func (u *usage) UnmarshalJSON(value []byte) error {
	wrong := false
	openai.Members(value, func(name, value []byte) {
		var to *int64
		switch string(name) {
		case "input_tokens":
			to = &u.Input
		case "cache_creation_input_tokens":
			to = &u.CacheCreation
		case "cache_read_input_tokens":
			to = &u.CacheRead
		case "output_tokens":
			to = &u.Output
		}
		if to == nil || !openai.Given(value) {
			return
		}
		n, ok := openai.TokenCount(value)
		wrong = wrong || !ok
		*to = n
	})
	if wrong {
		*u = usage{}
	}
	return nil
}

var null = raw("null")
