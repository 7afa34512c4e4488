package adapter

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Conversations reads what an agent and its models said, for people: each call once, even if a tracer and the proxy have
// recorded it, and each conversation once, at its longest. Errors have code agl.CodeInvalid.
func Conversations(spans []agl.Span) ([]Conversation, error) {
	found, err := Messages{}.Adapt(OncePerCall(spans))
	if err != nil {
		return nil, err
	}
	var list []Conversation
	for i := range found {
		continued := slices.ContainsFunc(found[i+1:], func(c Conversation) bool { return continues(c, found[i]) })
		if !continued && len(found[i].Messages) > 0 {
			list = append(list, found[i])
		}
	}
	return list, nil
}

// OncePerCall returns spans without those of a tracer whose calls the proxy has recorded as well.
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

// continues reports whether a conversation begins with all messages of another one.
func continues(c, earlier Conversation) bool {
	if len(c.Messages) <= len(earlier.Messages) {
		return false
	}
	for i := range earlier.Messages {
		a, b := &c.Messages[i], &earlier.Messages[i]
		if a.Role != b.Role || len(a.ToolCalls) != len(b.ToolCalls) || a.Text() != b.Text() {
			return false
		}
	}
	return true
}

// Text is the text of the message's content; that of parts is JSON.
func (m *Message) Text() string {
	switch m.Content.Kind() {
	case '"':
		if text, err := jsontext.AppendUnquote(nil, m.Content); err == nil {
			return string(text)
		}
	case 'n':
		return ""
	}
	return string(m.Content)
}
