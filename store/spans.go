package store

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/go-json-experiment/json/jsontext"
)

type addSpansCommand struct {
	header

	spans   []agl.Span
	records []SpanRecord // of the spans, with the ids that were issued
	issue   bool

	cancelled  []string
	duplicates []int // indexes of spans that were there already
}

func (c *addSpansCommand) load(want *LoadParams) {
	for i := range c.records {
		r := &c.records[i]
		want.Spans = append(want.Spans, r.SpanKey)
		if i > 0 && r.RolloutID == c.records[i-1].RolloutID {
			if r.AttemptID != c.records[i-1].AttemptID {
				want.Attempts = append(want.Attempts, AttemptKey{r.RolloutID, r.AttemptID})
			}
			continue
		}
		want.Attempts = append(want.Attempts, AttemptKey{r.RolloutID, r.AttemptID})
		want.Sequences = append(want.Sequences, r.RolloutID)
		want.Rollouts = append(want.Rollouts, r.RolloutID)
	}
}

func (c *addSpansCommand) run(w *work) error {
	c.cancelled, c.duplicates = nil, nil
	var bytesNew int64
	for i := range c.records {
		r := &c.records[i]
		err := error(nil)
		if w.rollout(r.RolloutID) == nil {
			err = errRollout(r.RolloutID)
		} else if w.attempt(r.RolloutID, r.AttemptID) == nil {
			err = errAttempt(r.RolloutID, r.AttemptID)
		}
		if err != nil {
			if len(c.records) > 1 {
				err = agl.Errorf(agl.CodeNotFound, "spans[%d]: %w", i, err)
			}
			return err
		}
		if _, there := w.spans[r.SpanKey]; !there {
			bytesNew += int64(len(r.Payload))
		}
	}
	if w.spanRoom.Valid && bytesNew > w.spanRoom.V {
		return agl.Errorf(agl.CodeExhausted,
			"the memory for spans is full: %d bytes do not fit, and no finished rollout is left to evict", bytesNew)
	}
	for i := range c.records {
		c.add(w, i)
	}
	return nil
}

// add stores one span whose attempt exists, unless it is there already.
func (c *addSpansCommand) add(w *work, i int) {
	r := &c.records[i]
	re, ae := w.rollout(r.RolloutID), w.attempt(r.RolloutID, r.AttemptID)
	if re.cur.Status == agl.RolloutCancelled && !slices.Contains(c.cancelled, r.AttemptID) {
		c.cancelled = append(c.cancelled, r.AttemptID)
	}
	if _, there := w.spans[r.SpanKey]; there {
		c.duplicates = append(c.duplicates, i)
		return
	}
	sequence := w.sequence(r.RolloutID)
	if c.issue && c.spans[i].SequenceID <= 0 {
		r.SequenceID = sequence.Last + 1
		r.Payload = withSequenceID(r.Payload, r.SequenceID)
	}
	if r.SequenceID > sequence.Last {
		w.setSequence(sequence, r.SequenceID)
	}
	w.spans[r.SpanKey] = struct{}{}
	w.changes.Spans = append(w.changes.Spans, *r)
	if w.spanRoom.Valid {
		w.spanRoom.V -= int64(len(r.Payload))
	}
	if ae.cur.LastHeartbeatTime == agl.Some(w.now) && ae.cur.Status == agl.AttemptRunning && re.cur.Status == agl.RolloutRunning {
		return // a span before this one has changed what there is to change
	}
	rollout, attempt := spanStored(*re.cur, *ae.cur, re.latest == ae, w.now)
	if rollout.Status != re.cur.Status {
		w.setRollout(re, &rollout)
	}
	w.setAttempt(ae, &attempt)
}

// stored returns the spans that were new, in the memory of those that came in.
func (c *addSpansCommand) stored() []agl.Span {
	left := c.duplicates
	stored := c.spans[:0]
	for i := range c.spans {
		if len(left) > 0 && left[0] == i {
			left = left[1:]
			continue
		}
		stored = append(stored, c.spans[i])
		stored[len(stored)-1].SequenceID = c.records[i].SequenceID
	}
	return stored
}

// withSequenceID puts a sequence id in the place of the payload's own, in the
// same memory if there is room.
func withSequenceID(payload jsontext.Value, id int64) jsontext.Value {
	// Quotes inside of strings are escaped, so this can only be the member.
	member := []byte(`,"sequence_id":`)
	start := bytes.Index(payload, member) + len(member)
	end := start + bytes.IndexByte(payload[start:], ',')
	var digits [maxDigits]byte
	return slices.Replace(payload, start, end, strconv.AppendInt(digits[:0], id, 10)...)
}

// maxDigits is what the longest sequence id takes.
const maxDigits = len("9223372036854775807")

// AddSpans implements agl.Store.
func (s *Store) AddSpans(ctx context.Context, p agl.AddSpansParams) (_ agl.AddSpansResult, err error) {
	end, err := s.begin(ctx, "AddSpans")
	defer func() { end(err) }()
	if err != nil || len(p.Spans) == 0 {
		return agl.AddSpansResult{}, err
	}
	for i := range p.Spans {
		if err := checkIDs(givenID{"span_id", p.Spans[i].SpanID}); err != nil {
			if len(p.Spans) > 1 {
				err = agl.Errorf(agl.CodeInvalid, "spans[%d]: %w", i, err)
			}
			return agl.AddSpansResult{}, err
		}
	}
	c := &addSpansCommand{spans: slices.Clone(p.Spans), issue: p.IssueSequenceIDs, records: make([]SpanRecord, len(p.Spans))}
	buffer := s.buffers.get()
	for i := range c.spans {
		span := &c.spans[i]
		*buffer = span.AppendJSON((*buffer)[:0])
		n := len(*buffer)
		if c.issue && span.SequenceID <= 0 {
			*buffer = append(*buffer, make([]byte, maxDigits)...) // room
		}
		payload := make([]byte, len(*buffer))
		copy(payload, *buffer)
		c.records[i] = newSpanRecord(span, payload[:n])
	}
	s.buffers.put(buffer)
	if err := s.submit(ctx, c); err != nil {
		return agl.AddSpansResult{}, err
	}
	for _, i := range c.duplicates {
		r := &c.records[i]
		s.log.InfoContext(ctx, "Duplicated span added",
			"rollout_id", r.RolloutID, "attempt_id", r.AttemptID, "span_id", r.SpanID)
	}
	return agl.AddSpansResult{Stored: c.stored(), Cancelled: c.cancelled}, nil
}

// newSpanRecord copies what it keeps, so that a short id does not hold on to
// the document that it was cut from.
func newSpanRecord(span *agl.Span, payload jsontext.Value) SpanRecord {
	return SpanRecord{
		SpanKey:    SpanKey{span.RolloutID, span.AttemptID, strings.Clone(span.SpanID)},
		SequenceID: span.SequenceID,
		TraceID:    strings.Clone(span.TraceID),
		ParentID:   strings.Clone(span.ParentID.V),
		Name:       strings.Clone(span.Name),
		StartTime:  span.StartTime,
		EndTime:    span.EndTime,
		Payload:    payload,
	}
}

// QuerySpansJSON implements agl.Store.
func (s *Store) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	return s.querySpans(ctx, "QuerySpans", p)
}

func (s *Store) querySpans(ctx context.Context, method string, p agl.QuerySpansParams) (_ agl.Page[jsontext.Value], err error) {
	end, err := s.begin(ctx, method)
	defer func() { end(err) }()
	if err == nil {
		err = checkQuery(&p.Paging, p.Logic, sortSpans)
	}
	if err != nil {
		return agl.Page[jsontext.Value]{}, err
	}
	return s.driver.QuerySpans(ctx, p)
}

// QuerySpans implements agl.Store.
func (s *Store) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	page, err := s.querySpans(ctx, "QuerySpans", p)
	if err != nil {
		return agl.Page[agl.Span]{}, err
	}
	out := agl.Page[agl.Span]{Items: make([]agl.Span, len(page.Items)), Limit: page.Limit, Offset: page.Offset, Total: page.Total}
	for i, payload := range page.Items {
		if err := spanjson.Parse(payload, &out.Items[i]); err != nil {
			return agl.Page[agl.Span]{}, agl.Errorf(agl.CodeInternal, "a stored span of rollout %s does not decode: %w", p.RolloutID, err)
		}
	}
	return out, nil
}

type reserveCommand struct {
	header

	rolloutID string
	count     int
	first     int64
}

func (c *reserveCommand) load(want *LoadParams) { want.Sequences = append(want.Sequences, c.rolloutID) }

func (c *reserveCommand) run(w *work) error {
	e := w.sequence(c.rolloutID)
	c.first = e.Last + 1
	w.setSequence(e, e.Last+int64(c.count))
	return nil
}

// ReserveSequenceIDs implements agl.Store.
func (s *Store) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (_ int64, err error) {
	end, err := s.begin(ctx, "ReserveSequenceIDs")
	defer func() { end(err) }()
	if err != nil {
		return 0, err
	}
	if p.Count < 0 {
		return 0, agl.Errorf(agl.CodeInvalid, "count: got %d, must be at least 1", p.Count)
	}
	if err := checkIDs(givenID{"rollout_id", p.RolloutID}); err != nil {
		return 0, err
	}
	c := &reserveCommand{rolloutID: p.RolloutID, count: max(p.Count, 1)}
	if err := s.submit(ctx, c); err != nil {
		return 0, err
	}
	return c.first, nil
}
