package adapter

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Conversations returns what an agent and its models said, for people to read: each call once, even if both a tracer
// and the proxy recorded it, and each conversation once, at its longest. Errors have code agl.CodeInvalid.
func Conversations(spans []agl.Span) ([]Conversation, error) {
	found, err := Messages{OwnCalls: true}.Adapt(OncePerCall(spans))
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

// OncePerCall returns the spans without those that a tracer recorded of calls that the proxy recorded, too.
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

// continues reports whether c begins with all messages of earlier, and has more.
func continues(c, earlier Conversation) bool {
	if len(c.Messages) <= len(earlier.Messages) {
		return false
	}
	for i := range earlier.Messages {
		a, b := &c.Messages[i], &earlier.Messages[i]
		if a.Role != b.Role || len(a.ToolCalls) != len(b.ToolCalls) {
			return false
		}
		if a.Text() != b.Text() && (len(a.ToolCalls) == 0 || a.Text() != "") { // some clients leave out the text beside calls
			return false
		}
	}
	return true
}

// Text returns the message's content as text; a list of parts is returned as JSON.
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
