// Package spanchain decides which spans are stored as deltas from others, and expands them when they are read. The
// engine and package archive share it.
//
// The package must not know how a driver stores anything, nor what the members of a span mean.
package spanchain

import (
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
)

// Shortener turns the payloads of new spans into deltas from spans of the same attempt and
// name that were stored earlier. Only Layout and Expand are safe for concurrent use.
type Shortener struct {
	codec *spandelta.Codec
	heads *spandelta.Heads
	batch *spandelta.Batch // of the last Shorten; nil if it had no layouts
}

// New returns a Shortener that remembers spans in about memory bytes.
func New(memory int) *Shortener {
	codec := spandelta.NewCodec()
	heads := spandelta.NewHeads(codec, memory)
	return &Shortener{codec: codec, heads: heads}
}

// Layout returns the layout of a document for Shorten, nil for one that stays as it is.
func (s *Shortener) Layout(document []byte) *spandelta.Layout { return s.heads.Layout(document) }

// Shorten turns new spans into deltas where possible. They are about to be stored in this order in one commit;
// layouts are theirs. Committed must be called once they are stored.
func (s *Shortener) Shorten(spans []driver.SpanRecord, layouts []*spandelta.Layout) {
	s.batch = nil
	for i := range spans {
		if layouts[i] == nil {
			continue
		}
		if s.batch == nil {
			s.batch = s.heads.Begin()
		}
		span := &spans[i]
		attempt := spandelta.Attempt{RolloutID: span.RolloutID, AttemptID: span.AttemptID}
		if base, delta := s.batch.Add(attempt, span.SpanID, span.Name, span.Payload, layouts[i]); base != nil {
			span.Base, span.Payload = base.ID, delta
		}
	}
}

// Committed says that the spans of the last Shorten are stored: later ones may continue them.
func (s *Shortener) Committed() {
	if s.batch != nil {
		s.batch.Commit()
	}
}
