package storetest

import (
	"errors"
	"math"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spanjson"
)

func sequenceTests(a *area) {
	a.test("counted for each rollout, known or not", testReserve)
	a.test("a span's own id moves the counter", testSequenceFromSpan)
	a.test("rejected spans move no counter", testSequenceRejected)
	a.test("issued with the spans", testSequenceIssued)
	a.test("never twice", testSequenceUnique)
	a.test("do not overflow", testSequenceOverflow)
}

func (h *harness) reserve(rolloutID string, count int) int64 {
	h.Helper()
	return must(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: rolloutID, AttemptID: "at", Count: count}))(h)
}

func testReserve(h *harness) {
	equal(h, "ghost", h.reserve("ghost", 0), 1)
	equal(h, "ghost", h.reserve("ghost", 3), 2)
	equal(h, "ghost", h.reserve("ghost", 1), 5)
	equal(h, "another", h.reserve("another", 1), 1)
	h.wantError(errorOf(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: "ghost", Count: -1})), agl.ErrInvalid, "")
}

func testSequenceFromSpan(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "a", 7))
	equal(h, "after 7", h.reserve(r.RolloutID, 1), 8)
	h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "b", 3))
	equal(h, "after 3", h.reserve(r.RolloutID, 1), 9)
	again := h.startAttempt(r.RolloutID, "")
	h.addSpans(span(r.RolloutID, again.Attempt.AttemptID, "a", 20))
	equal(h, "after another attempt", h.reserve(r.RolloutID, 1), 21)
}

func testSequenceRejected(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "a", 1))
	equal(h, "stored again", len(h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "a", 50)).Stored), 0)
	h.wantError(errorOf(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{span(r.RolloutID, "at-x", "b", 60)}})), agl.ErrNotFound, "")
	h.wantError(errorOf(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{span("ro-x", "at-x", "b", 60)}})), agl.ErrNotFound, "")
	equal(h, "next", h.reserve(r.RolloutID, 1), 2)
	equal(h, "next of the unknown", h.reserve("ro-x", 1), 1)
}

func testSequenceIssued(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	id := func(name string, n int64) agl.Span { return span(r.RolloutID, r.Attempt.AttemptID, name, n) }
	stored := must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{
		Spans: []agl.Span{id("a", 0), id("b", 10), id("c", 0), id("a", 0), id("d", -1)}, IssueSequenceIDs: true,
	}))(h).Stored
	want := map[string]int64{"a": 1, "b": 10, "c": 11, "d": 12}
	equal(h, "stored", len(stored), len(want))
	for _, s := range stored {
		equal(h, "issued to "+s.SpanID, s.SequenceID, want[s.SpanID])
	}
	for _, s := range h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Items {
		equal(h, "kept of "+s.SpanID, s.SequenceID, want[s.SpanID])
	}
}

func testSequenceOverflow(h *harness) {
	const last = 1<<53 - 1
	for range 2 {
		h.wantError(errorOf(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: "unknown", Count: math.MaxInt})), agl.ErrInvalid, "")
	}
	equal(h, "after too many", h.reserve("unknown", 1), 1)
	r := h.start(config(agl.RolloutConfig{}), "")
	with := func(id string, sequence int64) agl.AddSpansParams {
		return agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{span(r.RolloutID, r.Attempt.AttemptID, id, sequence)}}
	}
	for _, sequence := range []int64{math.MaxInt64, last + 1} {
		h.wantError(errorOf(h.Store.AddSpans(h.ctx, with("too large", sequence))), agl.ErrInvalid, "")
	}
	equal(h, "after a span that is too large", h.reserve(r.RolloutID, 1), 1)
	equal(h, "stored", len(must(h.Store.AddSpans(h.ctx, with("last", last)))(h).Stored), 1)
	h.wantError(errorOf(h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID})), agl.ErrInvalid, "")
	h.wantError(errorOf(h.Store.AddSpans(h.ctx, with("none left", 0))), agl.ErrInvalid, "")
	page := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID})
	equal(h, "spans", page.Total, 1)
	equal(h, "sequence id", page.Items[0].SequenceID, int64(last))
}

func testSequenceUnique(h *harness) {
	const calls = 100
	var mu sync.Mutex
	seen := map[int64]bool{}
	h.together(calls, func(int) error {
		first, err := h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: "r", Count: 2})
		mu.Lock()
		defer mu.Unlock()
		seen[first], seen[first+1] = true, true
		return err
	})
	equal(h, "different ids", len(seen), calls*2)
	equal(h, "next", h.reserve("r", 1), int64(calls*2+1))
}

func spanTests(a *area) {
	a.test("everything comes back as it was sent", testSpanFidelity)
	a.test("their memory is the caller's again", testSpanMemory)
	a.test("times that are not in seconds are refused", testSpanTimes)
	a.test("duplicates are skipped", testSpanDuplicates)
	a.test("an unknown attempt rejects the whole call", testSpanUnknown)
	a.test("ties of the sequence id", testSpanTies)
	a.test("attempts", testSpanAttempts)
	a.test("filters, sorts and pages", testSpanFilters)
	a.test("spans for several rollouts", testSpanGroups)
}

func testSpanFidelity(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	s := fullSpan(r)
	want := string(s.AppendJSON(nil))
	stored := h.addSpans(s).Stored
	equal(h, "stored", len(stored), 1)
	equal(h, "stored", string(stored[0].AppendJSON(nil)), want)
	got := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Items
	equal(h, "read", string(got[0].AppendJSON(nil)), want)
	if diff := cmp.Diff(s, got[0], cmpopts.EquateEmpty()); diff != "" {
		h.Errorf("span changed (-want +got):\n%s", diff)
	}
	if h.Store.Capabilities().QuerySpansJSON {
		equal(h, "document", string(must(h.Store.QuerySpansJSON(h.ctx, agl.QuerySpansParams{RolloutID: r.RolloutID}))(h).Items[0]), want)
	}
}

// testSpanMemory reads spans after the buffers that they were stored from were
// overwritten.
func testSpanMemory(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	var want []string
	var memory []byte
	for i, id := range []string{"a", "b", "c", "d"} {
		s := fullSpan(r)
		s.SpanID, s.SequenceID = id, int64(i+1)
		memory = s.AppendJSON(memory[:0])
		want = append(want, string(memory))
		issue := i%2 == 1
		if issue { // the id that the store will give
			s.SequenceID = 0
			memory = s.AppendJSON(memory[:0])
		}
		var shared agl.Span
		h.ok(spanjson.Parse(memory, &shared))
		equal(h, "stored", len(must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{shared}, IssueSequenceIDs: issue}))(h).Stored), 1)
		for i := range memory {
			memory[i] = '!'
		}
	}
	for i, s := range h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Items {
		equal(h, "read", string(s.AppendJSON(nil)), want[i])
	}
}

// fullSpan returns a span with every member that spans can have.
func fullSpan(r agl.AttemptedRollout) agl.Span {
	return agl.Span{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: 3, TraceID: "any text", SpanID: "b7ad6b7169203331",
		ParentID: agl.Some("p"), Name: "näme \"x\"", Status: agl.SpanStatus{
			Code: agl.StatusError, Description: agl.Some("why"), Extra: []byte(`{"x":[1]}`),
		},
		Attributes: agl.Attributes(`{"reward":1.0,"ids":[1,2],"b":true,"big":12345678901234567890,"e":"\u00e9"}`),
		Events: []agl.SpanEvent{{
			Name: "e", Attributes: agl.Attributes(`{"k":"v"}`), Timestamp: agl.Some(agl.Timestamp(1.5)), Extra: []byte(`{"y":2}`),
		}},
		Links: []agl.SpanLink{{
			Context: agl.SpanContext{TraceID: "t", SpanID: "s", IsRemote: true, TraceState: []byte(`{"a":"b"}`)},
		}},
		StartTime: agl.Some(agl.Timestamp(1760706315.5)),
		Context:   &agl.SpanContext{TraceID: "t", SpanID: "s", TraceState: []byte(`{}`)},
		Resource:  agl.SpanResource{Attributes: agl.Attributes(`{"service.name":"x"}`), SchemaURL: "u"},
		Extra:     []byte(`{"mine":{"a": 1},"other":null}`),
	}
}

func testSpanDuplicates(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	id := func(name string, n int64) agl.Span { return span(r.RolloutID, r.Attempt.AttemptID, name, n) }
	h.addSpans(id("dup", 1))
	got := h.addSpans(id("n1", 2), id("dup", 3), id("n2", 4), id("n1", 5))
	equal(h, "stored", ids(got.Stored, func(s *agl.Span) string { return s.SpanID }), "n1 n2")
	equal(h, "total", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 3)
	if h.Advance == nil {
		return
	}
	before := h.get(r.RolloutID).Attempt.LastHeartbeatTime
	h.Advance(second)
	h.addSpans(id("dup", 9))
	equal(h, "heartbeat", h.get(r.RolloutID).Attempt.LastHeartbeatTime, before)
}

func testSpanUnknown(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	add := func(spans ...agl.Span) error {
		return errorOf(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: spans}))
	}
	h.wantError(add(span("ro-x", "at-x", "a", 1)), agl.ErrNotFound, "Rollout ro-x not found")
	h.wantError(add(span(r.RolloutID, "at-x", "a", 1)), agl.ErrNotFound, "Attempt at-x not found for rollout "+r.RolloutID)
	good := span(r.RolloutID, r.Attempt.AttemptID, "a", 1)
	h.wantError(add(good, span(r.RolloutID, "at-x", "a", 1)), agl.ErrNotFound,
		"spans[1]: Attempt at-x not found for rollout "+r.RolloutID)
	equal(h, "stored", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 0)
	h.wantStatus(r.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
	equal(h, "spans of nothing", h.spans(agl.QuerySpansParams{RolloutID: "ro-x"}).Total, 0)
	equal(h, "none", len(must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{}))(h).Stored), 0)
}

func spanNames(spans []agl.Span) string {
	return ids(spans, func(s *agl.Span) string { return s.SpanID })
}

func testSpanTies(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	attempts := []string{r.Attempt.AttemptID, h.startAttempt(r.RolloutID, "").Attempt.AttemptID}
	timed := func(id string, sequence int64, start, end float64) agl.Span {
		s := span(r.RolloutID, attempts[len(id)%2], id, sequence)
		if start > 0 {
			s.StartTime = agl.Some(agl.Timestamp(start))
		}
		if end > 0 {
			s.EndTime = agl.Some(agl.Timestamp(end))
		}
		return s
	}
	h.addSpans(timed("none", 1, 0, 0), timed("late", 1, 5, 6), timed("long", 1, 2, 9), timed("short", 1, 2, 3))
	h.addSpans(timed("open", 1, 2, 0), timed("again", 1, 2, 3), timed("before", 0, 99, 0), timed("after", 2, 1, 1))
	const order = "before short again long open late none after"
	got := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID})
	equal(h, "order", spanNames(got.Items), order)
	for offset := range 8 {
		page := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID, Paging: agl.Paging{Limit: 1, Offset: offset}})
		equal(h, "page", page.Items[0].SpanID, got.Items[offset].SpanID)
		equal(h, "total", page.Total, 8)
	}
	got = h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID, Paging: agl.Paging{SortBy: "sequence_id", Order: agl.Descending}})
	equal(h, "descending", spanNames(got.Items), "after short again long open late none before")
}

func testSpanAttempts(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	h.addSpans(span(r.RolloutID, r.Attempt.AttemptID, "a", 1))
	equal(h, "latest of one", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt}).Total, 1)
	again := h.startAttempt(r.RolloutID, "")
	h.addSpans(span(r.RolloutID, again.Attempt.AttemptID, "a", 2), span(r.RolloutID, r.Attempt.AttemptID, "b", 3))
	for attempt, want := range map[string]string{
		"": "a" + " a b", r.Attempt.AttemptID: "a b", again.Attempt.AttemptID: "a", agl.LatestAttempt: "a", "at-x": "-",
	} {
		got := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: attempt})
		equal(h, "spans of attempt "+attempt, spanNames(got.Items), want)
	}
	queued := h.enqueueOne()
	equal(h, "latest of none", h.spans(agl.QuerySpansParams{RolloutID: queued.RolloutID, AttemptID: agl.LatestAttempt}).Total, 0)
}

func testSpanFilters(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	for i, s := range []struct{ id, trace, parent, name string }{
		{"s1", "t1", "", "root"}, {"s2", "t1", "s1", "llm call"}, {"s3", "t2", "s1", "tool call"}, {"s4", "t2", "s3", "root"},
	} {
		v := span(r.RolloutID, r.Attempt.AttemptID, s.id, int64(i+1))
		v.TraceID, v.Name = s.trace, s.name
		if s.parent != "" {
			v.ParentID = agl.Some(s.parent)
		}
		h.addSpans(v)
	}
	second, other := h.startAttempt(r.RolloutID, ""), h.start(config(agl.RolloutConfig{}), "")
	h.addSpans(span(r.RolloutID, second.Attempt.AttemptID, "x", 5), span(other.RolloutID, other.Attempt.AttemptID, "s1", 1))
	for _, tc := range []struct {
		p    agl.QuerySpansParams
		want string
	}{
		{agl.QuerySpansParams{}, "s1 s2 s3 s4 x"},
		{agl.QuerySpansParams{Logic: agl.FilterOr}, "s1 s2 s3 s4 x"},
		{agl.QuerySpansParams{TraceID: "t1"}, "s1 s2"},
		{agl.QuerySpansParams{TraceIDContains: "t2"}, "s3 s4"},
		{agl.QuerySpansParams{SpanID: "s3"}, "s3"},
		{agl.QuerySpansParams{SpanIDContains: "s"}, "s1 s2 s3 s4"},
		{agl.QuerySpansParams{ParentID: "s1"}, "s2 s3"},
		{agl.QuerySpansParams{ParentIDContains: "s"}, "s2 s3 s4"},
		{agl.QuerySpansParams{Name: "root"}, "s1 s4"},
		{agl.QuerySpansParams{NameContains: "call"}, "s2 s3"},
		{agl.QuerySpansParams{NameContains: "CALL"}, "-"},
		{agl.QuerySpansParams{Name: "ROOT"}, "-"},
		{agl.QuerySpansParams{TraceID: "t2", NameContains: "call"}, "s3"},
		{agl.QuerySpansParams{TraceID: "t1", Name: "root", Logic: agl.FilterOr}, "s1 s2 s4"},
		{agl.QuerySpansParams{SpanID: "s1", Name: "llm call"}, "-"},
		{agl.QuerySpansParams{AttemptID: "at-x", Name: "root", Logic: agl.FilterOr}, "-"},
		{agl.QuerySpansParams{AttemptID: r.Attempt.AttemptID, SpanID: "x", Name: "root", Logic: agl.FilterOr}, "s1 s4"},
		{agl.QuerySpansParams{AttemptID: r.Attempt.AttemptID, Logic: agl.FilterOr}, "s1 s2 s3 s4"},
		{agl.QuerySpansParams{Name: "nothing"}, "-"},
		{agl.QuerySpansParams{Paging: agl.Paging{SortBy: "span_id", Order: agl.Descending}}, "x s4 s3 s2 s1"},
		{agl.QuerySpansParams{Paging: agl.Paging{SortBy: "name"}}, "s2 s1 s4 x s3"},
		{agl.QuerySpansParams{Paging: agl.Paging{SortBy: "parent_id"}}, "s1 x s2 s3 s4"},
		{agl.QuerySpansParams{Paging: agl.Paging{SortBy: "start_time"}}, "s1 s2 s3 s4 x"},
		{agl.QuerySpansParams{TraceID: "t2", Paging: agl.Paging{SortBy: "end_time", Order: agl.Descending}}, "s3 s4"},
	} {
		tc.p.RolloutID = r.RolloutID
		got := h.spans(tc.p)
		equal(h, "spans", spanNames(got.Items), tc.want)
		equal(h, "total", got.Total, len(got.Items))
		tc.p.Limit, tc.p.Offset = 2, 1
		page := h.spans(tc.p)
		equal(h, "page", spanNames(page.Items), spanNames(got.Items[min(1, got.Total):min(3, got.Total)]))
		equal(h, "total of all pages", page.Total, got.Total)
	}
	_, err := h.Store.QuerySpans(h.ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, Paging: agl.Paging{SortBy: "attributes"}})
	h.wantError(err, agl.ErrInvalid, "Invalid sort_by: attributes, allowed fields are: "+
		"rollout_id, attempt_id, sequence_id, trace_id, span_id, parent_id, name, start_time, end_time")
}

func testSpanGroups(h *harness) {
	a, b := h.start(config(agl.RolloutConfig{}), ""), h.start(config(agl.RolloutConfig{}), "")
	got := h.addSpans(
		span(a.RolloutID, a.Attempt.AttemptID, "1", 1), span(b.RolloutID, b.Attempt.AttemptID, "1", 4),
		span(a.RolloutID, a.Attempt.AttemptID, "2", 2),
	)
	equal(h, "stored", len(got.Stored), 3)
	h.wantStatus(a.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	h.wantStatus(b.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
	equal(h, "next of a", h.reserve(a.RolloutID, 1), 3)
	equal(h, "next of b", h.reserve(b.RolloutID, 1), 5)
}

// testSpanTimes stores spans whose times are milliseconds or nanoseconds instead of seconds.
func testSpanTimes(h *harness) {
	r := h.start(agl.EnqueueRollout{Input: jsontext.Value(`1`)}, "w")
	for _, at := range []agl.Timestamp{1.76e12, 1.76e18} {
		for field, change := range map[string]func(s *agl.Span){
			"start_time": func(s *agl.Span) { s.StartTime = agl.Some(at) },
			"end_time":   func(s *agl.Span) { s.EndTime = agl.Some(at) },
		} {
			s := span(r.RolloutID, r.Attempt.AttemptID, "s", 1)
			change(&s)
			_, err := h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{s}})
			if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), field+": got 1.76e+1") || !strings.Contains(err.Error(), "must be in seconds since 1970") {
				h.Errorf("%s %g: got %v", field, float64(at), err)
			}
		}
	}
	equal(h, "stored", h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID}).Total, 0)
}
