package storetest

import (
	"strconv"
	"testing"

	"github.com/agl-go/agl"
)

// bulkTests are skipped in short runs: those are for the race detector, and these tests are long and
// use one goroutine.
func bulkTests(a *area) {
	if testing.Short() {
		return
	}
	a.test("5,000 rollouts in one call", testManyRollouts)
	a.test("2,000 spans in one call", testManySpans)
}

func testManyRollouts(h *harness) {
	const n, limit = 5000, 512
	r := h.enqueue(numbered(n)...)
	for from := 0; from < n; from += limit {
		got := h.dequeue(limit, "w")
		equal(h, "claims", len(got), min(limit, n-from))
		for i := range got {
			if got[i].RolloutID != r[from+i].RolloutID {
				h.Fatalf("claim %d is %s, want %s", from+i, got[i].RolloutID, r[from+i].RolloutID)
			}
		}
	}
	h.wantEmptyQueue()
	page := h.rollouts(agl.QueryRolloutsParams{Paging: agl.Paging{Limit: 1, Offset: n - 1}})
	equal(h, "total", page.Total, n)
	equal(h, "last", page.Items[0].RolloutID, r[n-1].RolloutID)
}

func testManySpans(h *harness) {
	const n = 2000
	r := h.start(config(agl.RolloutConfig{}), "")
	spans := make([]agl.Span, n)
	for i := range spans {
		spans[i] = span(r.RolloutID, r.Attempt.AttemptID, strconv.Itoa(i), 0)
	}
	spans[n-1].SpanID = "0" // one repetition is enough
	got := must(h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: spans, IssueSequenceIDs: true}))(h)
	equal(h, "stored", len(got.Stored), n-1)
	for i := range got.Stored {
		if got.Stored[i].SequenceID != int64(i+1) || got.Stored[i].SpanID != strconv.Itoa(i) {
			h.Fatalf("span %d is %s with sequence id %d", i, got.Stored[i].SpanID, got.Stored[i].SequenceID)
		}
	}
	page := h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID})
	equal(h, "spans", page.Total, n-1)
	equal(h, "last", page.Items[n-2].SpanID, strconv.Itoa(n-2))
}
