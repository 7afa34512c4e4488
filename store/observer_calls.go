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
	o, ok := s.observer.(panicObserver)
	if !ok {
		return
	}
	if _, counts := o.observer.(CallObserver); !counts { // then there is no need to read the attributes
		return
	}
	for i := range spans {
		if span := &spans[i]; span.Name == agl.SpanLiteLLMRequest {
			o.ObserveCall(observedCall(span.Attributes))
		}
	}
}

// observedCall reads what an observer gets of a model call. Of several names for one thing, the first that has a value counts.
func observedCall(attributes agl.Attributes) (version string, promptTokens, replyTokens int64) {
	var versions [3]string
	var prompts, replies [2]int64
	for name, value := range rawjson.Members(attributes) {
		switch string(name) {
		case agl.AttrModelVersion:
			versions[0] = observedText(value)
		case agl.AttrGenAIResponseModel:
			versions[1] = observedText(value)
		case agl.AttrGenAIRequestModel:
			versions[2] = observedText(value)
		case agl.AttrGenAIPromptTokens:
			prompts[0] = observedTokens(value)
		case agl.AttrGenAIInputTokens:
			prompts[1] = observedTokens(value)
		case agl.AttrGenAICompletionTokens:
			replies[0] = observedTokens(value)
		case agl.AttrGenAIOutputTokens:
			replies[1] = observedTokens(value)
		}
	}
	return cmp.Or(versions[:]...), cmp.Or(prompts[:]...), cmp.Or(replies[:]...)
}

// observedText returns the value of a string, empty for other values.
func observedText(value []byte) string {
	if value[0] != '"' {
		return ""
	}
	return rawjson.Unquote(value)
}

// observedTokens returns the value of a number of tokens, 0 for other values.
func observedTokens(value []byte) int64 {
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n < 0 || n > 1<<53 {
		return 0
	}
	return int64(n)
}
