package adapter

import (
	"slices"

	"github.com/agl-go/agl"
)

// OncePerCall drops the spans of a tracer in the agent whose calls the proxy has
// recorded, too.
func OncePerCall(spans []agl.Span) []agl.Span {
	recorded := map[string]bool{}
	byProxy := func(s *agl.Span) bool { return s.Name == agl.SpanLiteLLMRequest || s.Name == agl.SpanRawRequest }
	for i := range spans {
		if id, ok := spans[i].Attributes.GetString(agl.AttrGenAIResponseID); ok && byProxy(&spans[i]) {
			recorded[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(spans), func(s agl.Span) bool {
		id, ok := s.Attributes.GetString(agl.AttrGenAIResponseID)
		return ok && recorded[id] && !byProxy(&s)
	})
}
