package store

import (
	"cmp"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
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

// observedCall reads what an observer gets of a model call. Of each pair of names, the first counts if it has a value.
func observedCall(attributes agl.Attributes) (version string, promptTokens, replyTokens int64) {
	var versions [3]string
	var prompts, replies [2]int64
	for name, value := range rawjson.Members(attributes) {
		switch string(name) {
		case agl.AttrModelVersion:
			versions[0] = text(value)
		case agl.AttrGenAIResponseModel:
			versions[1] = text(value)
		case agl.AttrGenAIRequestModel:
			versions[2] = text(value)
		case agl.AttrGenAIPromptTokens:
			prompts[0] = count(value)
		case agl.AttrGenAIInputTokens:
			prompts[1] = count(value)
		case agl.AttrGenAICompletionTokens:
			replies[0] = count(value)
		case agl.AttrGenAIOutputTokens:
			replies[1] = count(value)
		}
	}
	return cmp.Or(versions[:]...), cmp.Or(prompts[:]...), cmp.Or(replies[:]...)
}

// text returns the value of a string, empty for other values.
func text(value []byte) string {
	if value[0] != '"' {
		return ""
	}
	return rawjson.Unquote(value)
}

// count returns the value of a number that counts something, 0 for other values.
func count(value []byte) int64 {
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n < 0 || n > 1<<53 {
		return 0
	}
	return int64(n)
}
