package openai

import "strconv"

// Usage is the backend's count of the tokens of a call.
type Usage struct {
	Prompt     int64 // including those from a cache
	Completion int64
	Total      int64 // 0 when the backend does not say; see [Usage.Sum]
}

// ParseUsage reads the member usage of a reply, or of an event of a stream, of any
// API. ok is false for a value without counts, such as null.
//
// Anthropic reports tokens that a cache read or wrote separately from input_tokens. They
// count as part of the prompt.
func ParseUsage(raw []byte) (u Usage, ok bool) {
	cached := int64(0)
	Members(raw, func(name, value []byte) {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 0 {
			return
		}
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			u.Prompt, ok = n, true
		case "cache_creation_input_tokens", "cache_read_input_tokens":
			cached += n
		case "completion_tokens", "output_tokens":
			u.Completion, ok = n, true
		case "total_tokens":
			u.Total = n
		}
	})
	u.Prompt += cached
	return u, ok
}

// Sum returns the tokens of prompt and reply: Total if it is known.
func (u Usage) Sum() int64 {
	if u.Total > 0 {
		return u.Total
	}
	return u.Prompt + u.Completion
}
