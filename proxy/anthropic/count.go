package anthropic

import (
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json"
)

// tokenize is a request to vLLM's /tokenize.
type tokenize struct {
	Model               raw                  `json:"model,omitzero"`
	Messages            []openai.ChatMessage `json:"messages"`
	Tools               []openai.ChatTool    `json:"tools,omitempty"`
	ChatTemplateKwargs  raw                  `json:"chat_template_kwargs,omitzero"`
	AddGenerationPrompt bool                 `json:"add_generation_prompt"`
}

// ToTokenize returns the request to vLLM's /tokenize that counts the tokens which
// a request to count those of a message names.
func ToTokenize(body []byte) ([]byte, error) {
	chat, err := ToChat(body, ChatOptions{})
	if err != nil {
		return nil, err
	}
	var in openai.ChatRequest
	if err := json.Unmarshal(chat, &in, openai.Lenient()); err != nil {
		return nil, openai.DecodeError(err)
	}
	return openai.AppendWire(nil, &tokenize{
		Model: in.Model, Messages: in.Messages, Tools: in.Tools, ChatTemplateKwargs: in.ChatTemplateKwargs, AddGenerationPrompt: true,
	})
}

// TokenCount translates what vLLM's /tokenize says into what an agent that
// counts tokens is told. There are no streams of it.
type TokenCount struct{}

// Reply appends the count.
func (*TokenCount) Reply(dst, whole []byte) ([]byte, error) {
	var in struct {
		Count *int64 `json:"count"`
	}
	if err := json.Unmarshal(whole, &in, openai.Lenient()); err != nil {
		return dst, openai.DecodeError(err)
	}
	if in.Count == nil {
		return dst, openai.Unsupported("count", "the backend's /tokenize does not say it")
	}
	return openai.AppendWire(dst, &struct {
		InputTokens int64 `json:"input_tokens"`
	}{*in.Count})
}

// Event fails, as there are no streams of counts.
func (*TokenCount) Event(dst, _ []byte) ([]byte, error) {
	return dst, openai.Unsupported("stream", "a count of tokens is none")
}

// End does nothing.
func (*TokenCount) End(dst []byte) ([]byte, error) { return dst, nil }

// Fail appends nothing, as there are no streams of counts.
func (*TokenCount) Fail(dst []byte, _ openai.Error) []byte { return dst }

// Done is true.
func (*TokenCount) Done() bool { return true }
