package apo

import "context"

// Model is a language model that critiques and rewrites prompts. It is called concurrently. [Endpoint] is one over HTTP.
type Model interface {
	// Complete answers a chat. An error ends the run, which can be resumed, so
	// implementations retry transient failures themselves.
	Complete(ctx context.Context, r Request) (Reply, error)
}

// ModelFunc makes a function a Model.
type ModelFunc func(ctx context.Context, r Request) (Reply, error)

// Complete calls the function.
func (f ModelFunc) Complete(ctx context.Context, r Request) (Reply, error) { return f(ctx, r) }

// Request is a chat to answer.
type Request struct {
	Messages    []Message
	Temperature float64
	// Seed in [0, 2⁵³) is a function of the run's seed and the call's position in the
	// search. A run is repeatable if the model samples with it.
	Seed uint64
}

// Message is a message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Reply is a model's answer. Its text may be empty.
type Reply struct {
	Text  string `json:"text"`
	Usage Usage  `json:"usage"`
	// CutOff says that the text ends at the model's token limit. It is no edit then.
	CutOff bool `json:"cut_off,omitzero"`
}

// Usage is the number of tokens of a call.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}
