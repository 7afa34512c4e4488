package spanchain

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
)

// reader reads the spans of several attempts, each attempt with its own Expander or Outlines.
type reader[R any] struct {
	stored   map[driver.SpanKey]driver.StoredSpan
	attempts map[driver.AttemptKey]R
	open     func(stored func(id string) (spandelta.Stored, bool)) R
}

func newReader[R any](open func(stored func(id string) (spandelta.Stored, bool)) R) *reader[R] {
	return &reader[R]{map[driver.SpanKey]driver.StoredSpan{}, map[driver.AttemptKey]R{}, open}
}

func newExpander(codec *spandelta.Codec) *reader[*spandelta.Expander] {
	return newReader(func(stored func(id string) (spandelta.Stored, bool)) *spandelta.Expander {
		return spandelta.NewExpander(codec, stored)
	})
}

func (r *reader[R]) add(s driver.StoredSpan) { r.stored[s.SpanKey] = s }

// addAll adds spans and, from chains, the bases that are not among them.
func (r *reader[R]) addAll(ctx context.Context, chains Chains, spans []driver.StoredSpan) error {
	for i := range spans {
		r.add(spans[i])
	}
	absent := map[driver.AttemptKey][]string{}
	for i := range spans {
		s := &spans[i]
		if _, found := r.stored[driver.SpanKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID, SpanID: s.Base}]; s.Base != "" && !found {
			attempt := driver.AttemptKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID}
			absent[attempt] = append(absent[attempt], s.Base)
		}
	}
	for attempt, ids := range absent {
		chain, err := chains.SpanChains(ctx, attempt, ids)
		if err != nil {
			return err
		}
		for _, s := range chain {
			r.add(s)
		}
	}
	return nil
}

// of returns the R for the attempt of a span.
func (r *reader[R]) of(s *driver.StoredSpan) R {
	attempt := driver.AttemptKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID}
	opened, known := r.attempts[attempt]
	if !known {
		opened = r.open(func(id string) (spandelta.Stored, bool) {
			s, found := r.stored[driver.SpanKey{RolloutID: attempt.RolloutID, AttemptID: attempt.AttemptID, SpanID: id}]
			return spandelta.Stored{Base: s.Base, Payload: s.Payload}, found
		})
		r.attempts[attempt] = opened
	}
	return opened
}

func expand(r *reader[*spandelta.Expander], s *driver.StoredSpan) (jsontext.Value, error) {
	if s.Base == "" {
		return s.Payload, nil
	}
	document, err := r.of(s).Expand(s.SpanID)
	if err != nil {
		return nil, errUnreadable(s, err)
	}
	return document, nil
}

func errUnreadable(s *driver.StoredSpan, err error) error {
	return agl.Errorf(agl.CodeInternal, "span %s/%s/%s cannot be read: %w", s.RolloutID, s.AttemptID, s.SpanID, err)
}

// Chains reads the bases of spans; a driver.Driver.
type Chains interface {
	SpanChains(ctx context.Context, attempt driver.AttemptKey, ids []string) ([]driver.StoredSpan, error)
}

// IsMissing reports whether a base was not found: either the spans of the rollout were deleted while they were being
// read, or the database is damaged.
func IsMissing(err error) bool {
	_, missing := errors.AsType[*spandelta.MissingError](err)
	return missing
}

// Expand returns the documents of spans that were read from chains.
func (s *Shortener) Expand(ctx context.Context, chains Chains, spans []driver.StoredSpan) ([]jsontext.Value, error) {
	documents := make([]jsontext.Value, len(spans))
	deltas := false
	for i := range spans {
		documents[i] = spans[i].Payload
		deltas = deltas || spans[i].Base != ""
	}
	if !deltas {
		return documents, nil
	}
	r := newExpander(s.codec)
	if err := r.addAll(ctx, chains, spans); err != nil {
		return nil, err
	}
	for i := range spans {
		var err error
		if documents[i], err = expand(r, &spans[i]); err != nil {
			return nil, err
		}
	}
	return documents, nil
}

// Outline returns the outlines of spans that were read from chains; their documents have the selected members of one
// object. It takes time proportional to the stored size.
func (s *Shortener) Outline(
	ctx context.Context, chains Chains, spans []driver.StoredSpan, object string, selected func(name string) bool,
) ([]spandelta.Outline, error) {
	r := newReader(func(stored func(id string) (spandelta.Stored, bool)) *spandelta.Outlines {
		return spandelta.NewOutlines(s.codec, object, selected, stored)
	})
	if err := r.addAll(ctx, chains, spans); err != nil {
		return nil, err
	}
	outlines := make([]spandelta.Outline, len(spans))
	for i := range spans {
		var err error
		if outlines[i], err = r.of(&spans[i]).Outline(spans[i].SpanID); err != nil {
			return nil, errUnreadable(&spans[i], err)
		}
	}
	return outlines, nil
}

// Stream expands spans that are read one by one, those of a rollout together and each after
// its base.
type Stream struct {
	codec   *spandelta.Codec
	rollout string
	reader  *reader[*spandelta.Expander]
}

// NewStream returns a Stream.
func NewStream() *Stream { return &Stream{codec: spandelta.NewCodec()} }

// Expand returns the document of the next span.
func (s *Stream) Expand(span *driver.SpanRecord) (jsontext.Value, error) {
	if s.reader == nil || s.rollout != span.RolloutID {
		s.rollout, s.reader = span.RolloutID, newExpander(s.codec)
	}
	stored := driver.StoredSpan{SpanKey: span.SpanKey, Base: span.Base, Payload: span.Payload}
	s.reader.add(stored)
	return expand(s.reader, &stored)
}
