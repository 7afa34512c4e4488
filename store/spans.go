package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

type addSpansCommand struct {
	header

	spans   []agl.Span
	records []driver.SpanRecord // of the spans, with the ids that were issued
	chains  *spanchain.Shortener
	layouts []*spandelta.Layout // of their payloads; nil for those that stay whole
	rewards []agl.Null[agl.AttemptReward]
	posted  []bool // of each span: it is not the agent's, but a posted reward or what a learner computed
	issue   bool
	byTime  bool

	cancelled  []string
	duplicates []int // indexes of spans that are stored already
}

func (c *addSpansCommand) load(want *driver.LoadParams) {
	for i := range c.records {
		r := &c.records[i]
		want.Spans = append(want.Spans, r.SpanKey)
		known := i > 0 && r.RolloutID == c.records[i-1].RolloutID
		if !known || r.AttemptID != c.records[i-1].AttemptID {
			want.SpanAttempts = append(want.SpanAttempts, driver.AttemptKey{RolloutID: r.RolloutID, AttemptID: r.AttemptID})
		}
		if !known {
			want.Sequences = append(want.Sequences, r.RolloutID)
		}
	}
}

func (c *addSpansCommand) run(w *unitOfWork) error {
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
		if _, found := w.spans[r.SpanKey]; !found {
			bytesNew += int64(len(r.Payload))
		}
	}
	if w.spanRoom.Valid && bytesNew > w.spanRoom.V {
		return agl.Errorf(agl.CodeExhausted,
			"the memory for spans is full: %d bytes do not fit, and no finished rollout is left to evict", bytesNew)
	}
	if err := c.checkIssued(w); err != nil {
		return err
	}
	for i := range c.records {
		c.add(w, i)
	}
	return nil
}

// checkIssued checks that there are enough sequence ids left for the spans without one.
func (c *addSpansCommand) checkIssued(w *unitOfWork) error {
	if !c.issue || !slices.ContainsFunc(c.spans, func(s agl.Span) bool { return s.SequenceID <= 0 }) {
		return nil
	}
	for i := range c.records {
		id := c.records[i].RolloutID
		if max(c.spans[i].SequenceID, w.sequences[id].lastID()) > maxSequenceID-int64(len(c.records)) {
			return errSequenceEnd(id)
		}
	}
	return nil
}

// add stores one span, unless it is stored already.
func (c *addSpansCommand) add(w *unitOfWork, i int) {
	r := &c.records[i]
	re, ae := w.rollout(r.RolloutID), w.attempt(r.RolloutID, r.AttemptID)
	if re.cur.Status == agl.RolloutCancelled && !slices.Contains(c.cancelled, r.AttemptID) {
		c.cancelled = append(c.cancelled, r.AttemptID)
	}
	if _, found := w.spans[r.SpanKey]; found {
		c.duplicates = append(c.duplicates, i)
		return
	}
	sequence := w.sequence(r.RolloutID)
	if c.issue && c.spans[i].SequenceID <= 0 {
		r.SequenceID = c.issueID(w, i, ae.cur, sequence.Last+1)
		r.Payload = withSequenceID(r.Payload, r.SequenceID)
		if c.layouts[i] != nil {
			c.layouts[i] = c.chains.Layout(r.Payload)
		}
	}
	if r.SequenceID > sequence.Last {
		w.setSequence(sequence, r.SequenceID)
	}
	w.spans[r.SpanKey] = struct{}{}
	w.countLate(re.cur, lateSpans{key: driver.AttemptKey{RolloutID: r.RolloutID, AttemptID: r.AttemptID}, training: c.spans[i].Name == agl.SpanTraining})
	w.changes.Spans = append(w.changes.Spans, *r)
	w.spanLayouts = append(w.spanLayouts, c.layouts[i])
	if w.spanRoom.Valid {
		w.spanRoom.V -= int64(len(r.Payload))
	}
	reward := c.rewards[i]
	reward.V.SequenceID = r.SequenceID
	better := reward.Valid && reward.V.Replaces(ae.cur.Reward)
	if !better && ae.cur.LastHeartbeatTime == agl.Some(w.now) && ae.cur.Status == agl.AttemptRunning && re.cur.Status == agl.RolloutRunning {
		return // an earlier span has made these changes
	}
	rollout, attempt := *re.cur, *ae.cur
	if !c.posted[i] {
		rollout, attempt = spanStored(rollout, attempt, re.latest == ae, w.now)
	} else if !better {
		return
	}
	if rollout.Status != re.cur.Status {
		w.setRollout(re, &rollout)
	}
	if better {
		attempt.Reward = reward
	}
	w.setAttempt(ae, &attempt)
}

// issueID returns the sequence id for a span without one: next or, with byTime, the id that was next when the span
// ended. A span that ended before its attempt was claimed has the time of another clock, so it gets next.
func (c *addSpansCommand) issueID(w *unitOfWork, i int, attempt *agl.Attempt, next int64) int64 {
	span := &c.spans[i]
	ended := cmp.Or(span.EndTime, span.StartTime)
	if !c.byTime || !ended.Valid || ended.V < attempt.StartTime {
		return next
	}
	if id, ok := w.issued.nextAt(span.RolloutID, ended.V); ok {
		return id
	}
	return next
}

// stored returns the new spans, in the memory of c.spans.
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

// withSequenceID replaces the sequence id in a payload, in place if it has room.
func withSequenceID(payload jsontext.Value, id int64) jsontext.Value {
	// Only ids come before the member, and quotes in them are escaped.
	member := []byte(`,"sequence_id":`)
	start := bytes.Index(payload, member) + len(member)
	end := start + bytes.IndexByte(payload[start:], ',')
	var digits [maxDigits]byte
	return slices.Replace(payload, start, end, strconv.AppendInt(digits[:0], id, 10)...)
}

const (
	// maxSequenceID is the largest sequence id. Every JSON reader represents it exactly.
	maxSequenceID = 1<<53 - 1
	maxDigits     = len("9007199254740991")
	// maxReserved bounds one reservation, so that no call can use up a rollout's ids.
	maxReserved = 1_000_000
)

func errSequenceEnd(rolloutID string) error {
	return agl.Errorf(agl.CodeInvalid, "the sequence ids of rollout %q are used up: the last possible one is %d", rolloutID, int64(maxSequenceID))
}

func checkSpan(s *agl.Span) error {
	if s.SequenceID > maxSequenceID {
		return agl.Errorf(agl.CodeInvalid, "sequence_id: got %d, must be at most %d", s.SequenceID, int64(maxSequenceID))
	}
	for _, at := range [...]struct {
		field string
		time  agl.Null[agl.Timestamp]
	}{{"start_time", s.StartTime}, {"end_time", s.EndTime}} {
		if at.time.Valid && at.time.V > maxTimestamp {
			return agl.Errorf(agl.CodeInvalid, "%s: got %g, must be in seconds since 1970, at most %g; divide nanoseconds by 1e9", at.field, float64(at.time.V), float64(maxTimestamp))
		}
	}
	return checkIDs(givenText{"span_id", s.SpanID})
}

// maxTimestamp is the end of the year 9999, the last one that the dates of all clients support. The current time in
// milliseconds exceeds it.
const maxTimestamp = 253402300799

// AddSpans implements agl.Store.
func (s *Store) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return do(ctx, s, "AddSpans", nil, func() (agl.AddSpansResult, error) {
		if len(p.Spans) == 0 {
			return agl.AddSpansResult{}, nil
		}
		for i := range p.Spans {
			if err := checkSpan(&p.Spans[i]); err != nil {
				return agl.AddSpansResult{}, inSpans(p.Spans, i, err)
			}
		}
		n := len(p.Spans)
		c := &addSpansCommand{
			chains: s.chains, spans: slices.Clone(p.Spans), issue: p.IssueSequenceIDs, byTime: p.OrderByTime,
			records: make([]driver.SpanRecord, n), layouts: make([]*spandelta.Layout, n), rewards: make([]agl.Null[agl.AttemptReward], n), posted: make([]bool, n),
		}
		if err := s.encode(c); err != nil {
			return agl.AddSpansResult{}, err
		}
		if err := s.submit(ctx, c); err != nil {
			return agl.AddSpansResult{}, err
		}
		for _, i := range c.duplicates {
			r := &c.records[i]
			s.log.InfoContext(ctx, "Duplicated span added",
				"rollout_id", r.RolloutID, "attempt_id", r.AttemptID, "span_id", r.SpanID)
		}
		stored := c.stored()
		s.observeCalls(stored)
		return agl.AddSpansResult{Stored: stored, Cancelled: c.cancelled}, nil
	})
}

// maxBuffer bounds the memory of a pooled buffer.
const maxBuffer = 1 << 20

// encode makes the records of the spans. A payload has room for a sequence id that is issued later. A span with
// invalid UTF-8 is rejected.
func (s *Store) encode(c *addSpansCommand) (err error) {
	buffer, _ := s.buffers.Get().(*[]byte)
	for i := range c.spans {
		span := &c.spans[i]
		*buffer = span.AppendJSON((*buffer)[:0])
		if err = checkSpanUTF8(span, *buffer); err != nil {
			err = inSpans(c.spans, i, err)
			break
		}
		room := 0
		if c.issue && span.SequenceID <= 0 {
			room = maxDigits
		}
		payload := append(make([]byte, 0, len(*buffer)+room), *buffer...)
		c.records[i] = driver.NewSpanRecord(span, payload)
		c.layouts[i] = s.chains.Layout(payload)
		c.rewards[i], c.posted[i] = adapter.SpanReward(span)
		c.posted[i] = c.posted[i] || span.Name == agl.SpanTraining
	}
	if cap(*buffer) <= maxBuffer {
		s.buffers.Put(buffer)
	}
	return err
}

// inSpans adds the index of the span to an error, if there are several spans.
func inSpans(spans []agl.Span, i int, err error) error {
	if len(spans) > 1 {
		return agl.Errorf(agl.CodeInvalid, "spans[%d]: %w", i, err)
	}
	return err
}

// ReserveSequenceIDs implements agl.Store.
func (s *Store) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	invalid := checkIDs(givenText{"rollout_id", p.RolloutID})
	if p.Count < 0 || p.Count > maxReserved {
		invalid = agl.Errorf(agl.CodeInvalid, "count: got %d, must be between 1 and %d", p.Count, maxReserved)
	}
	wants := func(want *driver.LoadParams) { want.Sequences = append(want.Sequences, p.RolloutID) }
	return doWrite(ctx, s, "ReserveSequenceIDs", invalid, wants, func(w *unitOfWork) (int64, error) {
		count := int64(max(p.Count, 1))
		e := w.sequence(p.RolloutID)
		if e.Last > maxSequenceID-count {
			return 0, errSequenceEnd(p.RolloutID)
		}
		first := e.Last + 1
		w.setSequence(e, e.Last+count)
		w.issued.note(p.RolloutID, first, w.now)
		return first, nil
	})
}
