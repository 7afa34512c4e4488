package anthropic

// chatRequest is a request for a chat completion. Members that it does not name
// are in Rest.
type chatRequest struct {
	Model               raw           `json:"model,omitzero"`
	Messages            []chatMessage `json:"messages"`
	Tools               []chatTool    `json:"tools,omitempty"`
	ToolChoice          raw           `json:"tool_choice,omitzero"`
	ParallelToolCalls   *bool         `json:"parallel_tool_calls,omitzero"`
	MaxTokens           raw           `json:"max_tokens,omitzero"`
	MaxCompletionTokens raw           `json:"max_completion_tokens,omitzero"`
	Stop                raw           `json:"stop,omitzero"`
	Stream              raw           `json:"stream,omitzero"`
	StreamOptions       raw           `json:"stream_options,omitzero"`
	Temperature         raw           `json:"temperature,omitzero"`
	TopP                raw           `json:"top_p,omitzero"`
	User                raw           `json:"user,omitzero"`
	ReasoningEffort     raw           `json:"reasoning_effort,omitzero"`
	ResponseFormat      *chatFormat   `json:"response_format,omitzero"`
	ChatTemplateKwargs  raw           `json:"chat_template_kwargs,omitzero"`
	Rest                raw           `json:",embed"`
}

type chatMessage struct {
	Role             string     `json:"role,omitzero"`
	Content          raw        `json:"content,omitzero"` // a string, parts, or null
	ReasoningContent raw        `json:"reasoning_content,omitzero"`
	Reasoning        raw        `json:"reasoning,omitzero"` // its newer name
	Refusal          raw        `json:"refusal,omitzero"`
	ThinkingBlocks   []block    `json:"thinking_blocks,omitempty"`
	ToolCalls        []chatCall `json:"tool_calls,omitempty"`
	ToolCallID       raw        `json:"tool_call_id,omitzero"`
}

type chatPart struct {
	Type     string        `json:"type"`
	Text     raw           `json:"text,omitzero"`
	Refusal  raw           `json:"refusal,omitzero"`
	ImageURL *chatImageURL `json:"image_url,omitzero"`
}

type chatImageURL struct {
	URL raw `json:"url"`
}

type chatCall struct {
	Index    *int         `json:"index,omitzero"`
	ID       raw          `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        raw `json:"name,omitzero"`
	Description raw `json:"description,omitzero"`
	Parameters  raw `json:"parameters,omitzero"`
	Strict      raw `json:"strict,omitzero"`
	Arguments   raw `json:"arguments,omitzero"`
}

type chatTool struct {
	Type     string        `json:"type"`
	Function *chatFunction `json:"function"`
}

type chatFormat struct {
	Type       string      `json:"type"`
	JSONSchema *chatSchema `json:"json_schema,omitzero"`
}

type chatSchema struct {
	Name   string `json:"name"`
	Schema raw    `json:"schema,omitzero"`
	Strict *bool  `json:"strict,omitzero"`
}

// chatReply is a chat completion, or a chunk of one.
type chatReply struct {
	ID      raw          `json:"id,omitzero"`
	Object  string       `json:"object,omitzero"`
	Created raw          `json:"created,omitzero"`
	Model   raw          `json:"model,omitzero"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitzero"`
	Error   raw          `json:"error,omitzero"`
}

type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitzero"`
	Delta        *chatMessage `json:"delta,omitzero"`
	Logprobs     raw          `json:"logprobs,omitzero"`
	FinishReason *string      `json:"finish_reason"`
	StopReason   raw          `json:"stop_reason,omitzero"` // vLLM's: the stop string or id that ended it
}

type chatUsage struct {
	Prompt     int64       `json:"prompt_tokens"`
	Completion int64       `json:"completion_tokens"`
	Total      int64       `json:"total_tokens"`
	Details    *chatCached `json:"prompt_tokens_details,omitzero"`
}

type chatCached struct {
	Cached int64 `json:"cached_tokens"`
}

// reasoning is the message's, under the name that it has.
func (m *chatMessage) reasoning() raw {
	if text(m.ReasoningContent) {
		return m.ReasoningContent
	}
	return m.Reasoning
}
