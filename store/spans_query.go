package store

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

// QuerySpansJSON implements agl.Store.
func (s *Store) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	if len(p.AttributeNames) > 0 {
		return s.querySelected(ctx, p)
	}
	return readSpans(ctx, s, p, s.chains.Expand)
}

// readSpans returns the result of read for the spans of a query. Spans may be deleted after the page was read and
// before their bases are; a second query then sees that.
func readSpans[T any](
	ctx context.Context, s *Store, p agl.QuerySpansParams,
	read func(ctx context.Context, chains spanchain.Chains, spans []driver.StoredSpan) ([]T, error),
) (agl.Page[T], error) {
	return do(ctx, s, "QuerySpans", checkQuery(&p.Paging, p.Logic, sortableSpans), func() (agl.Page[T], error) {
		for again := false; ; again = true {
			page, err := s.driver.QuerySpans(ctx, p)
			if err != nil {
				return agl.Page[T]{}, err
			}
			items, err := read(ctx, s.driver, page.Items)
			switch {
			case err == nil:
				return agl.Page[T]{Items: items, Limit: page.Limit, Offset: page.Offset, Total: page.Total}, nil
			case again || !spanchain.IsMissing(err):
				return agl.Page[T]{}, err
			}
		}
	})
}

// QuerySpans implements agl.Store.
func (s *Store) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	page, err := s.QuerySpansJSON(ctx, p)
	if err != nil {
		return agl.Page[agl.Span]{}, err
	}
	out := agl.Page[agl.Span]{Items: make([]agl.Span, len(page.Items)), Limit: page.Limit, Offset: page.Offset, Total: page.Total}
	for i, payload := range page.Items {
		if err := parseStored(payload, p.RolloutID, &out.Items[i]); err != nil {
			return agl.Page[agl.Span]{}, err
		}
	}
	return out, nil
}

func parseStored(payload []byte, rolloutID string, s *agl.Span) error {
	if err := spanjson.Parse(payload, s); err != nil {
		return agl.Errorf(agl.CodeInternal, "a stored span of rollout %q does not decode: %w", rolloutID, err)
	}
	return nil
}

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
		page.Items[i] = spandelta.Outline{}
	}
	return out, err
}

// outlines reads the spans of a query with the attributes that it names.
func (s *Store) outlines(ctx context.Context, p agl.QueryShortSpansParams) (agl.Page[spandelta.Outline], error) {
	if n := len(p.AttributeNames) + len(p.Values); n > maxAttributeNames {
		return agl.Page[spandelta.Outline]{}, agl.Errorf(agl.CodeInvalid, "attribute_names: got %d names, must be at most %d", n, maxAttributeNames)
	}
	selected := func(name string) bool {
		return slices.Contains(p.Values, name) || slices.ContainsFunc(p.AttributeNames, func(wanted string) bool {
			prefix, many := strings.CutSuffix(wanted, "*")
			return name == wanted || many && strings.HasPrefix(name, prefix)
		})
	}
	return readSpans(ctx, s, p.QuerySpansParams, func(ctx context.Context, chains spanchain.Chains, spans []driver.StoredSpan) ([]spandelta.Outline, error) {
		return s.chains.Outline(ctx, chains, spans, "attributes", selected)
	})
}
