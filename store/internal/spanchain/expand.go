package spanchain

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
)

// reader expands the spans of several attempts.
type reader struct {
	codec     *spandelta.Codec
	stored    map[driver.SpanKey]driver.StoredSpan
	expanders map[driver.AttemptKey]*spandelta.Expander
}

func newReader(codec *spandelta.Codec) *reader {
	return &reader{codec, map[driver.SpanKey]driver.StoredSpan{}, map[driver.AttemptKey]*spandelta.Expander{}}
}

func (r *reader) add(s driver.StoredSpan) { r.stored[s.SpanKey] = s }

func (r *reader) expand(s *driver.StoredSpan) (jsontext.Value, error) {
	if s.Base == "" {
		return s.Payload, nil
	}
	attempt := driver.AttemptKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID}
	e := r.expanders[attempt]
	if e == nil {
		e = spandelta.NewExpander(r.codec, func(id string) (spandelta.Stored, bool) {
			s, found := r.stored[driver.SpanKey{RolloutID: attempt.RolloutID, AttemptID: attempt.AttemptID, SpanID: id}]
			return spandelta.Stored{Base: s.Base, Payload: s.Payload}, found
		})
		r.expanders[attempt] = e
	}
	document, err := e.Expand(s.SpanID)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInternal, "span %s/%s/%s cannot be read: %w", s.RolloutID, s.AttemptID, s.SpanID, err)
	}
	return document, nil
}

// Chains reads the bases of spans; a driver.Driver.
type Chains interface {
	SpanChains(ctx context.Context, attempt driver.AttemptKey, ids []string) ([]driver.StoredSpan, error)
}

// IsMissing reports whether a base was not found. That is so when the spans of the rollout were
// deleted while they were being read, and otherwise the database is damaged.
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
	r := newReader(s.codec)
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
			return nil, err
		}
		for _, s := range chain {
			r.add(s)
		}
	}
	for i := range spans {
		var err error
		if documents[i], err = r.expand(&spans[i]); err != nil {
			return nil, err
		}
	}
	return documents, nil
}

// Stream expands spans that are read one by one, those of a rollout together and each after
// its base.
type Stream struct {
	codec   *spandelta.Codec
	rollout string
	reader  *reader
}

// NewStream returns a Stream.
func NewStream() *Stream { return &Stream{codec: spandelta.NewCodec()} }

// Expand returns the document of the next span.
func (s *Stream) Expand(span *driver.SpanRecord) (jsontext.Value, error) {
	if s.reader == nil || s.rollout != span.RolloutID {
		s.rollout, s.reader = span.RolloutID, newReader(s.codec)
	}
	stored := driver.StoredSpan{SpanKey: span.SpanKey, Base: span.Base, Payload: span.Payload}
	s.reader.add(stored)
	return s.reader.expand(&stored)
}
