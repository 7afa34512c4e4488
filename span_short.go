package agl

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// QueryShortSpansParams are the arguments of Store.QueryShortSpans.
type QueryShortSpansParams struct {
	QuerySpansParams // AttributeNames is required

	// Values names further attributes, which go into ShortSpans.Values: those that grow from span to span, such as
	// the token ids of prompts.
	Values []string
}

// ShortForm selects what spans in short form contain.
type ShortForm struct {
	Attributes []string // see QuerySpansParams.AttributeNames
	Values     []string // see QueryShortSpansParams.Values
}

// ShortSpans are spans without what they repeat. The calls of a conversation repeat each other, so the size of whole
// spans grows with the square of the number of calls.
type ShortSpans struct {
	// Spans have the attributes that were asked for, and perhaps others.
	Spans []Span
	// Values are the attributes that were moved out of their spans, in the order of the spans.
	Values []SpanValue
}

// SpanValue is the value of an attribute, as what it adds to an earlier value.
type SpanValue struct {
	Span int // the index of its span in Spans
	Name string
	// Base is the index in Values of the value that this one continues. It is smaller than this value's own index; -1
	// means none.
	Base int
	// Shared is how many bytes of the base's value this value begins with; 0 without a base.
	Shared int
	// Rest holds the bytes after those. It is a whole JSON value only if Base is -1.
	Rest jsontext.Value
}

// AppendValue appends the whole of Values[i], which is JSON.
func (s *ShortSpans) AppendValue(dst []byte, i int) []byte {
	return s.appendValue(dst, i, s.Values[i].Shared+len(s.Values[i].Rest))
}

// appendValue appends the first n bytes of a value.
func (s *ShortSpans) appendValue(dst []byte, i, n int) []byte {
	v := &s.Values[i]
	if shared := min(n, v.Shared); shared > 0 {
		dst = s.appendValue(dst, v.Base, shared)
	}
	if n > v.Shared {
		dst = append(dst, v.Rest[:n-v.Shared]...)
	}
	return dst
}

// ShortAdapter is an [Adapter] that also reads spans in short form. Its result is the same for both forms.
type ShortAdapter[T any] interface {
	Adapter[T]
	// ShortForm returns what the adapter reads. ok is false if it needs whole spans.
	ShortForm() (form ShortForm, ok bool)
	AdaptShort(spans ShortSpans) (T, error)
}

// shortForm returns the short form that an adapter reads, if it reads one.
func shortForm[T any](a Adapter[T]) (short ShortAdapter[T], form ShortForm, ok bool) {
	if short, ok = a.(ShortAdapter[T]); ok {
		form, ok = short.ShortForm()
	}
	return short, form, ok
}

// QuerySpansFor queries spans for [AdaptSpans] with the same adapter: in short form if the store and the adapter have it, and
// whole otherwise.
func QuerySpansFor[T any](ctx context.Context, s Store, p QuerySpansParams, a Adapter[T]) (ShortSpans, error) {
	if _, form, ok := shortForm(a); ok && s.Capabilities().QueryShortSpans {
		p.AttributeNames = form.Attributes
		return s.QueryShortSpans(ctx, QueryShortSpansParams{p, form.Values})
	}
	page, err := s.QuerySpans(ctx, p)
	return ShortSpans{Spans: page.Items}, err
}

// AdaptSpans returns what an adapter makes of spans that [QuerySpansFor] returned for it, or of whole spans.
func AdaptSpans[T any](a Adapter[T], spans ShortSpans) (T, error) {
	if short, _, ok := shortForm(a); ok {
		return short.AdaptShort(spans)
	}
	return a.Adapt(spans.Spans)
}
