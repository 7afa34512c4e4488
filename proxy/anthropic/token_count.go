package anthropic

import (
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// tokenize is a request to vLLM's /tokenize.
type tokenize struct {
	Model               raw                  `json:"model,omitzero"`
	Messages            []openai.ChatMessage `json:"messages"`
	Tools               []openai.ChatTool    `json:"tools,omitempty"`
	ChatTemplateKwargs  raw                  `json:"chat_template_kwargs,omitzero"`
	AddGenerationPrompt bool                 `json:"add_generation_prompt"`
}

// ToTokenize translates a request of /v1/messages/count_tokens into one of vLLM's /tokenize.
func ToTokenize(body []byte) ([]byte, error) {
	chat, err := ToChat(body, ChatOptions{})
	if err != nil {
		return nil, err
	}
	var in openai.ChatRequest
	if err := rawjson.Unmarshal(chat, &in); err != nil {
		return nil, openai.DecodeError(err)
	}
	return openai.AppendWire(nil, &tokenize{
		Model: in.Model, Messages: in.Messages, Tools: in.Tools, ChatTemplateKwargs: in.ChatTemplateKwargs, AddGenerationPrompt: true,
	})
}

// TokenCount translates the reply of vLLM's /tokenize into one of /v1/messages/count_tokens.
// There are no streams of counts.
type TokenCount struct{}

// Reply appends the count.
func (*TokenCount) Reply(dst, whole []byte) ([]byte, error) {
	var in struct {
		Count *int64 `json:"count"`
	}
	if err := rawjson.Unmarshal(whole, &in); err != nil {
		return dst, openai.DecodeError(err)
	}
	if in.Count == nil {
		return dst, openai.Unsupported("count", "is missing in the reply of the backend's /tokenize")
	}
	return openai.AppendWire(dst, &struct {
		InputTokens int64 `json:"input_tokens"`
	}{*in.Count})
}

// Event fails.
func (*TokenCount) Event(dst, _ []byte) ([]byte, error) {
	return dst, openai.Unsupported("stream", "a count of tokens is not a stream")
}

// End appends nothing.
func (*TokenCount) End(dst []byte) ([]byte, error) { return dst, nil }

// Fail appends nothing.
func (*TokenCount) Fail(dst []byte, _ openai.Error) []byte { return dst }

// Done returns true.
func (*TokenCount) Done() bool { return true }
