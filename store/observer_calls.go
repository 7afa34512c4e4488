package store

import (
	"bytes"
	"strconv"

	"github.com/agl-go/agl"
)

// CallObserver is an [Observer] that also counts model calls.
type CallObserver interface {
	// ObserveCall reports a new span of a model call: the version of the weights that answered, or else the model,
	// and the numbers of tokens. What the span lacks is empty or zero.
	ObserveCall(version string, promptTokens, replyTokens int64)
}

// observeCalls reports the model calls among new spans.
func (s *Store) observeCalls(spans []agl.Span) {
	o, ok := s.observer.(CallObserver)
	if !ok {
		return
	}
	for i := range spans {
		if span := &spans[i]; span.Name == agl.SpanLiteLLMRequest {
			o.ObserveCall(observedCall(span.Attributes))
		}
	}
}

// observedCall finds the members without parsing the messages between them. A quote within a string is escaped, so
// text cannot be mistaken for a name.
func observedCall(attributes agl.Attributes) (version string, promptTokens, replyTokens int64) {
	return firstText(attributes, agl.AttrModelVersion, agl.AttrGenAIResponseModel, agl.AttrGenAIRequestModel),
		firstCount(attributes, agl.AttrGenAIPromptTokens, agl.AttrGenAIInputTokens),
		firstCount(attributes, agl.AttrGenAICompletionTokens, agl.AttrGenAIOutputTokens)
}

// member returns what follows the name of a member, nil if there is none.
func member(attributes agl.Attributes, name string) []byte {
	_, value, _ := bytes.Cut(attributes, []byte(`"`+name+`":`))
	return bytes.TrimLeft(value, " ")
}

func firstText(attributes agl.Attributes, names ...string) string {
	for _, name := range names {
		value, quoted := bytes.CutPrefix(member(attributes, name), []byte{'"'})
		text, _, closed := bytes.Cut(value, []byte{'"'})
		if quoted && closed && len(text) > 0 && !bytes.ContainsRune(text, '\\') {
			return string(text)
		}
	}
	return ""
}

func firstCount(attributes agl.Attributes, names ...string) int64 {
	for _, name := range names {
		value := member(attributes, name)
		end := 0
		for end < len(value) && value[end] >= '0' && value[end] <= '9' {
			end++
		}
		if n, err := strconv.ParseInt(string(value[:end]), 10, 64); err == nil {
			return n
		}
	}
	return 0
}
