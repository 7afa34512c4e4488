package store

import (
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
)

// shortSpans collects the values of spans.
type shortSpans struct {
	agl.ShortSpans

	names  []string
	places map[*spandelta.Value]int // in Values
}

// add adds the values of a span and returns its document without them.
func (s *shortSpans) add(span int, o *spandelta.Outline) []byte {
	size := len(o.Head) + len(o.Tail)
	for _, m := range o.Members {
		if !slices.Contains(s.names, string(m.Name)) {
			size += len(m.Name) + len(`"":,`) + m.Value.Size()
		}
	}
	document := append(make([]byte, 0, size), o.Head...)
	first := true
	for i, m := range o.Members {
		if name := rawjson.UnquoteName(m.Name); slices.Contains(s.names, name) && isOnly(o.Members, i) {
			s.addValue(span, name, m.Value)
			continue
		}
		if !first {
			document = append(document, ',')
		}
		first = false
		document = append(append(append(document, '"'), m.Name...), `":`...)
		document = m.Value.AppendFrom(document, 0)
	}
	return append(document, o.Tail...)
}

// isOnly reports whether no other member has the name of a member.
func isOnly(members []spandelta.Member, at int) bool {
	name := rawjson.UnquoteName(members[at].Name)
	for i, m := range members {
		if i != at && rawjson.NameIs(m.Name, name) {
			return false
		}
	}
	return true
}

func (s *shortSpans) addValue(span int, name string, v *spandelta.Value) {
	next := agl.SpanValue{Span: span, Name: name, Base: -1, Shared: v.Size()}
	for at := v; at != nil; at = at.Base { // the nearest value that the reader has
		if place, known := s.places[at]; known {
			next.Base = place
			break
		}
		next.Shared = min(next.Shared, at.Shared)
	}
	next.Rest = v.AppendFrom(nil, next.Shared)
	s.places[v] = len(s.Values)
	s.Values = append(s.Values, next)
}
