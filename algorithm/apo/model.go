package apo

import "context"

// Model is a language model that criticises and rewrites prompts. It is called
// concurrently. [Endpoint] is one over HTTP.
type Model interface {
	// Complete answers a chat. An error ends the run, which a later one can go on
	// with: an implementation repeats by itself what is worth repeating.
	Complete(ctx context.Context, r Request) (Reply, error)
}

// ModelFunc makes a function a Model.
type ModelFunc func(ctx context.Context, r Request) (Reply, error)

// Complete calls the function.
func (f ModelFunc) Complete(ctx context.Context, r Request) (Reply, error) { return f(ctx, r) }

// Request is a chat to be answered.
type Request struct {
	Messages    []Message
	Temperature float64
	// Seed in [0, 2⁵³) is a function of the run's seed and the call's place in the
	// search: a model that samples with it makes a run repeatable.
	Seed uint64
}

// Message is a message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Reply is a model's answer; its text may be empty.
type Reply struct {
	Text  string `json:"text"`
	Usage Usage  `json:"usage"`
}

// Usage is the tokens of a call.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// Spent is what the model calls of a search cost.
type Spent struct {
	Usage

	Calls   int     `json:"calls"`
	Dollars float64 `json:"dollars"`
}

func (s *Spent) add(u Usage, p Price) {
	const million = 1e6
	s.Calls++
	s.PromptTokens += u.PromptTokens
	s.CompletionTokens += u.CompletionTokens
	s.Dollars += (float64(u.PromptTokens)*p.Prompt + float64(u.CompletionTokens)*p.Completion) / million
}

// within reports whether another call may be made.
func (b Budget) within(s Spent) bool {
	return (b.Tokens == 0 || s.PromptTokens+s.CompletionTokens < b.Tokens) && (b.Dollars == 0 || s.Dollars < b.Dollars)
}
