package tracer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// Link refers to the spans whose Key has the value Value. The keys trace_id and span_id stand for the span's ids, any
// other key for a string attribute.
type Link struct {
	Key   string
	Value string
}

// LinkTo returns the links that identify a span by its ids.
func LinkTo(span agl.Span) []Link {
	return []Link{{Key: "trace_id", Value: span.TraceID}, {Key: "span_id", Value: span.SpanID}}
}

// LinkAttributes returns the attributes that carry links.
func LinkAttributes(links ...Link) []agl.Attr {
	var attrs []agl.Attr
	for i, l := range links {
		prefix := fmt.Sprintf("%s.%d.", agl.AttrLink, i)
		attrs = append(attrs, agl.Attr{Key: prefix + "key_match", Value: l.Key}, agl.Attr{Key: prefix + "value_match", Value: l.Value})
	}
	return attrs
}

// Links reads the links of a span.
func Links(span agl.Span) []Link {
	var links []Link
	for i := 0; ; i++ {
		prefix := fmt.Sprintf("%s.%d.", agl.AttrLink, i)
		key, ok := span.Attributes.GetString(prefix + "key_match")
		value, ok2 := span.Attributes.GetString(prefix + "value_match")
		if !ok || !ok2 {
			return links
		}
		links = append(links, Link{Key: key, Value: value})
	}
}

// LinkedSpans returns the spans that match every link, in order; without links, all of them.
func LinkedSpans(spans []agl.Span, links []Link) []agl.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(span agl.Span) bool {
		return slices.ContainsFunc(links, func(l Link) bool { return !l.matches(&span) })
	})
}

func (l Link) matches(span *agl.Span) bool {
	switch l.Key {
	case "trace_id":
		return span.TraceID == l.Value
	case "span_id":
		return span.SpanID == l.Value
	default:
		value, ok := span.Attributes.GetString(l.Key)
		return ok && value == l.Value
	}
}

// TagAttributes returns the attributes that carry tags.
func TagAttributes(tags ...string) []agl.Attr {
	var attrs []agl.Attr
	for i, tag := range tags {
		attrs = append(attrs, agl.Attr{Key: fmt.Sprintf("%s.%d", agl.AttrTag, i), Value: tag})
	}
	return attrs
}

// Tags reads the tags of a span.
func Tags(span agl.Span) []string {
	var tags []string
	for key, raw := range span.Attributes.All() {
		if !strings.HasPrefix(key, agl.AttrTag+".") || raw.Kind() != '"' {
			continue
		}
		if tag, ok := span.Attributes.GetString(key); ok {
			tags = append(tags, tag)
		}
	}
	return tags
}
