package store

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

// QueryShortSpans implements agl.Store.
func (s *Store) QueryShortSpans(ctx context.Context, p agl.QueryShortSpansParams) (agl.ShortSpans, error) {
	if len(p.AttributeNames) == 0 {
		return agl.ShortSpans{}, agl.Errorf(agl.CodeInvalid, "attribute_names: got none, must name the attributes that are read besides value_names")
	}
	page, err := s.outlines(ctx, p)
	if err != nil {
		return agl.ShortSpans{}, err
	}
	short := shortSpans{names: p.Values, places: map[*spandelta.Value]int{}}
	short.Spans = make([]agl.Span, len(page.Items))
	for i := range page.Items {
		if err := parseStored(short.add(i, &page.Items[i]), p.RolloutID, &short.Spans[i]); err != nil {
			return agl.ShortSpans{}, err
		}
	}
	return short.ShortSpans, nil
}

// maxAttributeNames bounds how many names an attribute is compared with.
const maxAttributeNames = 100

// querySelected returns spans with the attributes that p names.
func (s *Store) querySelected(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	page, err := s.outlines(ctx, agl.QueryShortSpansParams{QuerySpansParams: p})
	out := agl.Page[jsontext.Value]{Items: make([]jsontext.Value, len(page.Items)), Limit: page.Limit, Offset: page.Offset, Total: page.Total}
	var short shortSpans // without names: each value stays in its span
	for i := range page.Items {
		out.Items[i] = short.add(i, &page.Items[i])
		page.Items[i] = spanchain.Outline{}
	}
	return out, err
}

// outlines reads the spans of a query with the attributes that it names.
func (s *Store) outlines(ctx context.Context, p agl.QueryShortSpansParams) (agl.Page[spanchain.Outline], error) {
	if n := len(p.AttributeNames) + len(p.Values); n > maxAttributeNames {
		return agl.Page[spanchain.Outline]{}, agl.Errorf(agl.CodeInvalid, "attribute_names: got %d names, must be at most %d", n, maxAttributeNames)
	}
	selected := func(name string) bool {
		return slices.Contains(p.Values, name) || slices.ContainsFunc(p.AttributeNames, func(wanted string) bool {
			prefix, many := strings.CutSuffix(wanted, "*")
			return name == wanted || many && strings.HasPrefix(name, prefix)
		})
	}
	return readSpans(ctx, s, p.QuerySpansParams, func(ctx context.Context, chains spanchain.Chains, spans []driver.StoredSpan) ([]spanchain.Outline, error) {
		return s.chains.Outline(ctx, chains, spans, "attributes", selected)
	})
}

// shortSpans collects the values of spans.
type shortSpans struct {
	agl.ShortSpans

	names  []string
	places map[*spandelta.Value]int // in Values
}

// add adds the values of a span and returns its document without them.
func (s *shortSpans) add(span int, o *spanchain.Outline) []byte {
	if o.Document != nil {
		return o.Document
	}
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
