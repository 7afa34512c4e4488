package adapter

import (
	"bytes"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Conversations returns what an agent and its models said, for people to read: each call once, even if both a tracer
// and the proxy recorded it, and each conversation once, at its longest. Errors have code agl.CodeInvalid.
func Conversations(spans []agl.Span) ([]Conversation, error) {
	return ReadConversations(spans, nil)
}

// ReadConversations returns the [Conversations] of an attempt whose calls, together, are too large for memory: it keeps
// no span of each. These have the attributes of [Messages]; spans are the same ones, and need only the attributes tool* and
// that of the reply's id. An error of each is returned as it is. If each is nil, spans are whole.
func ReadConversations(spans []agl.Span, each iter.Seq2[*agl.Span, error]) ([]Conversation, error) {
	var list []Conversation
	for c, err := range EachConversation(spans, each) {
		if err != nil {
			return nil, err
		}
		if len(c.Messages) > 0 {
			list = append(slices.DeleteFunc(list, func(earlier Conversation) bool { return continues(c, earlier) }), c)
		}
	}
	return list, nil
}

// EachConversation yields the conversation of each call up to its reply, once even if both a tracer and the proxy recorded it.
// Its arguments and errors are those of [ReadConversations].
func EachConversation(spans []agl.Span, each iter.Seq2[*agl.Span, error]) iter.Seq2[Conversation, error] {
	if each == nil {
		each = func(yield func(*agl.Span, error) bool) {
			for i := range spans {
				if !yield(&spans[i], nil) {
					return
				}
			}
		}
	}
	return func(yield func(Conversation, error) bool) {
		recorded, children, seen := recordedByProxy(spans), childrenOf(spans), 0
		for span, err := range each {
			if err != nil {
				yield(Conversation{}, err)
				return
			}
			seen++
			if isRepeated(span, recorded) {
				continue
			}
			tools := slices.DeleteFunc(slices.Clone(children[span.SpanID]), func(child *agl.Span) bool { return isRepeated(child, recorded) })
			c, ok, err := Messages{OwnCalls: true}.of(span, tools)
			if (ok || err != nil) && !yield(c, err) || err != nil {
				return
			}
		}
		if seen < len(spans) {
			yield(Conversation{}, agl.Errorf(agl.CodeUnavailable, "the spans were deleted while they were read: %d of %d were there", seen, len(spans)))
		}
	}
}

// OncePerCall returns the spans without those that a tracer recorded of calls that the proxy recorded, too.
func OncePerCall(spans []agl.Span) []agl.Span {
	recorded := recordedByProxy(spans)
	return slices.DeleteFunc(slices.Clone(spans), func(s agl.Span) bool { return isRepeated(&s, recorded) })
}

func byProxy(s *agl.Span) bool {
	return s.Name == agl.SpanLiteLLMRequest || s.Name == agl.SpanRawRequest
}

// recordedByProxy returns the ids of the replies that the proxy recorded.
func recordedByProxy(spans []agl.Span) map[string]bool {
	recorded := map[string]bool{}
	for i := range spans {
		if id, ok := spans[i].Attributes.GetString(agl.AttrGenAIResponseID); ok && byProxy(&spans[i]) {
			recorded[id] = true
		}
	}
	return recorded
}

// isRepeated reports whether a tracer recorded, in a span, a call that the proxy recorded, too.
func isRepeated(s *agl.Span, recorded map[string]bool) bool {
	id, ok := s.Attributes.GetString(agl.AttrGenAIResponseID)
	return ok && recorded[id] && !byProxy(s)
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
		if !bytes.Equal(a.Content, b.Content) && a.Text() != b.Text() && (len(a.ToolCalls) == 0 || a.Text() != "") { // some clients leave out the text beside calls
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
