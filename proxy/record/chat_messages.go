package record

import "github.com/agl-go/agl/proxy/openai"

// Readers of records know chat messages only. The functions below translate the other
// forms into chat messages for the record; the span of the raw exchange keeps the reply
// in its own form. What chat cannot express is kept as a content part.

// instructions returns the member of a request that holds what stands before all messages, if the form has one.
func (f Form) instructions() (name string, ok bool) {
	switch f {
	case Messages:
		return "system", true
	case Responses:
		return "instructions", true
	case Chat, Completion:
	}
	return "", false
}

// ChatMessages calls yield with each chat message that a member of a request holds: its messages,
// prompt, input, system text or instructions. It reports false for a member that holds none. The
// value must be valid JSON.
func ChatMessages(f Form, name string, value []byte, yield func(message []byte)) bool {
	say := func(role string, content []byte) {
		if string(content) != "null" {
			yield(object(pair{"role", openai.Quote(role)}, pair{"content", content}))
		}
	}
	if each := listedMessages(f, name, yield); each != nil && value[0] == '[' {
		return openai.Elements(value, each)
	}
	instructions, separate := f.instructions()
	switch {
	case separate && name == instructions:
		say("system", value)
	case name == "input" && f == Responses:
		say("user", value)
	case name == "prompt" && f == Completion:
		for _, one := range prompts(value) {
			say("user", one)
		}
	default:
		return false
	}
	return true
}

// listedMessages returns the function that calls yield with the chat messages of an element of a list: the
// messages or the input of a request. It returns nil for other members.
func listedMessages(f Form, name string, yield func(message []byte)) func(element []byte) {
	switch {
	case name == "messages" && f == Messages:
		return func(m []byte) { messagesMessage(m, yield) }
	case name == "messages":
		return yield
	case name == "input" && f == Responses:
		return func(item []byte) { responsesItem(item, yield) }
	default:
		return nil
	}
}

// prompts splits the prompt of a completion, which is a text, token ids, or a list of
// either.
func prompts(value []byte) [][]byte {
	var each [][]byte
	several := false
	openai.Elements(value, func(one []byte) {
		each = append(each, one)
		several = several || one[0] == '"' || one[0] == '['
	})
	if !several {
		return [][]byte{value}
	}
	return each
}

// joinTexts concatenates JSON strings; without any it returns nil.
func joinTexts(texts [][]byte) []byte {
	if len(texts) == 0 {
		return nil
	}
	dst := []byte{'"'}
	for _, t := range texts {
		if len(t) >= 2 && t[0] == '"' {
			dst = append(dst, t[1:len(t)-1]...)
		}
	}
	return append(dst, '"')
}

// toolCall is a tool call of a chat message. Arguments are a JSON string.
func toolCall(id, name, arguments []byte) []byte {
	return object(pair{"id", id}, pair{"type", []byte(`"function"`)},
		pair{"function", object(pair{"name", name}, pair{"arguments", arguments})})
}

// assistant builds a message. Without any text its content is null.
func assistant(texts, thoughts, calls, refusals [][]byte) []byte {
	content := joinTexts(texts)
	if content == nil {
		content = []byte("null")
	}
	return object(pair{"role", []byte(`"assistant"`)}, pair{"content", content},
		pair{"reasoning_content", joinTexts(thoughts)}, pair{"tool_calls", array(calls)}, pair{"refusal", joinTexts(refusals)})
}

// messagesMessage yields a message of Anthropic's Messages as chat messages: one for each
// tool result in it, and then the message itself.
func messagesMessage(raw []byte, yield func(message []byte)) {
	role, content := member(raw, "role"), member(raw, "content")
	if listOf(content) == nil {
		yield(raw)
		return
	}
	blocks := readBlocks(content, yield)
	switch {
	case string(role) == `"assistant"`:
		yield(assistant(blocks.texts, blocks.thoughts, blocks.calls, nil))
	case len(blocks.parts) > 0:
		yield(object(pair{"role", role}, pair{"content", array(blocks.parts)}))
	}
}

// blocks holds the content blocks of a message by kind.
type blocks struct {
	texts, thoughts [][]byte // JSON strings
	calls           [][]byte // tool calls of a chat message
	parts           [][]byte // everything else, as content parts
}

// readBlocks sorts content blocks and yields tool results as messages.
func readBlocks(content []byte, yield func(message []byte)) blocks {
	var b blocks
	openai.Elements(content, func(block []byte) {
		switch openai.Unquote(member(block, "type")) {
		case "text":
			b.texts = append(b.texts, member(block, "text"))
			b.parts = append(b.parts, block)
		case "thinking":
			b.thoughts = append(b.thoughts, member(block, "thinking"))
		case "tool_use":
			arguments := appendQuoted(nil, orEmpty(member(block, "input")))
			b.calls = append(b.calls, toolCall(member(block, "id"), member(block, "name"), arguments))
		case "tool_result":
			yield(object(pair{"role", []byte(`"tool"`)}, pair{"tool_call_id", member(block, "tool_use_id")}, pair{"content", member(block, "content")}))
		case "image":
			b.parts = append(b.parts, imagePart(block))
		default:
			b.parts = append(b.parts, block)
		}
	})
	return b
}

func orEmpty(raw []byte) []byte {
	if raw == nil {
		return []byte("{}")
	}
	return raw
}

// imagePart returns an image block as a content part of chat.
func imagePart(block []byte) []byte {
	source := member(block, "source")
	url := member(source, "url")
	if url == nil {
		url = openai.Quote("data:" + openai.Unquote(member(source, "media_type")) + ";base64," + openai.Unquote(member(source, "data")))
	}
	return object(pair{"type", []byte(`"image_url"`)}, pair{"image_url", object(pair{"url", url})})
}

// messagesChoices returns the choice of a Messages reply, or none if it has no content.
func messagesChoices(reply []openai.Member) []choice {
	var c choice
	for _, m := range reply {
		switch string(m.Name) {
		case "content":
			b := readBlocks(m.Value, func([]byte) {})
			if m.Value[0] == '"' { // some gateways reply with a text
				b.texts = [][]byte{m.Value}
			}
			c.message = assistant(b.texts, b.thoughts, b.calls, nil)
		case "stop_reason":
			c.finish = append(c.finish, openai.Member{Name: []byte("finish_reason"), Value: finishReason(openai.Unquote(m.Value), m.Value)}, m)
		}
	}
	if c.message == nil {
		return nil
	}
	return []choice{c}
}

// finishReason translates a stop reason for chat; it returns raw if chat has no equivalent.
func finishReason(reason string, raw []byte) []byte {
	switch reason {
	case "end_turn", "stop_sequence", "completed":
		return []byte(`"stop"`)
	case "max_tokens", "max_output_tokens", "model_context_window_exceeded":
		return []byte(`"length"`)
	case "tool_use":
		return []byte(`"tool_calls"`)
	case "refusal":
		return []byte(`"content_filter"`)
	}
	return raw
}

// responsesItem yields an item of a Responses input as chat messages.
func responsesItem(item []byte, yield func(message []byte)) {
	switch openai.Unquote(member(item, "type")) {
	case "function_call":
		call := toolCall(member(item, "call_id"), member(item, "name"), member(item, "arguments"))
		yield(assistant(nil, nil, [][]byte{call}, nil))
	case "custom_tool_call":
		call := toolCall(member(item, "call_id"), member(item, "name"), member(item, "input"))
		yield(assistant(nil, nil, [][]byte{call}, nil))
	case "function_call_output", "custom_tool_call_output":
		yield(object(pair{"role", []byte(`"tool"`)}, pair{"tool_call_id", member(item, "call_id")}, pair{"content", member(item, "output")}))
	case "reasoning":
		yield(assistant(nil, reasoning(item), nil, nil))
	default:
		role, content := member(item, "role"), member(item, "content")
		var parts [][]byte
		openai.Elements(content, func(part []byte) { parts = append(parts, responsesPart(part)) })
		if parts != nil {
			content = array(parts)
		}
		if role == nil || content == nil {
			role, content = []byte(`"assistant"`), array([][]byte{item})
		}
		yield(object(pair{"role", role}, pair{"content", content}))
	}
}

// responsesPart returns a content part of Responses as one of chat.
func responsesPart(part []byte) []byte {
	switch openai.Unquote(member(part, "type")) {
	case "input_text", "output_text":
		return object(pair{"type", []byte(`"text"`)}, pair{"text", member(part, "text")})
	case "input_image":
		if url := member(part, "image_url"); url != nil {
			return object(pair{"type", []byte(`"image_url"`)}, pair{"image_url", object(pair{"url", url})})
		}
	}
	return part
}

// reasoning returns the texts of a reasoning item, or its summary if it has none.
func reasoning(item []byte) (texts [][]byte) {
	for _, source := range [...]string{"content", "summary"} {
		openai.Elements(member(item, source), func(part []byte) {
			if text := member(part, "text"); text != nil {
				texts = append(texts, text)
			}
		})
		if texts != nil {
			break
		}
	}
	return texts
}

// responsesChoices returns the choice of a Responses reply, or none if it has no output.
func responsesChoices(reply []openai.Member) []choice {
	var texts, thoughts, calls, refusals, logprobs [][]byte
	var reason, raw []byte
	seen := false
	for _, m := range reply {
		switch string(m.Name) {
		case "output":
			seen = true
			openai.Elements(m.Value, func(item []byte) {
				switch openai.Unquote(member(item, "type")) {
				case "message":
					content := member(item, "content")
					if len(content) > 0 && content[0] == '"' { // some gateways reply with a text
						texts = append(texts, content)
					}
					openai.Elements(content, func(part []byte) {
						if text := member(part, "text"); text != nil {
							texts = append(texts, text)
						}
						if refusal := member(part, "refusal"); refusal != nil {
							refusals = append(refusals, refusal)
						}
						openai.Elements(member(part, "logprobs"), func(one []byte) { logprobs = append(logprobs, one) })
					})
				case "function_call":
					calls = append(calls, toolCall(member(item, "call_id"), member(item, "name"), member(item, "arguments")))
				case "custom_tool_call":
					calls = append(calls, toolCall(member(item, "call_id"), member(item, "name"), member(item, "input")))
				case "reasoning":
					thoughts = append(thoughts, reasoning(item)...)
				}
			})
		case "status":
			raw = m.Value
		case "incomplete_details":
			reason = member(m.Value, "reason")
		}
	}
	if !seen {
		return nil
	}
	c := choice{message: assistant(texts, thoughts, calls, refusals), logprobs: array(logprobs)}
	switch {
	case reason != nil:
		raw = finishReason(openai.Unquote(reason), reason)
	case string(raw) == `"completed"` && len(calls) > 0:
		raw = []byte(`"tool_calls"`)
	default:
		raw = finishReason(openai.Unquote(raw), raw)
	}
	if raw != nil {
		c.finish = []openai.Member{{Name: []byte("finish_reason"), Value: raw}}
	}
	return []choice{c}
}
