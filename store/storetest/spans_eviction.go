package storetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
)

func evictionTests(a *area) {
	p := OpenParams{SpanBytes: 100_000, SafeSpanBytes: 50_000}
	a.testWith("oldest finished rollouts first", p, testEvictOldest)
	a.testWith("running rollouts are never evicted", p, testEvictNeverRunning)
	a.testWith("evicted stays evicted", p, func(h *harness) { h.testStaysEvicted(func() {}) })
}

// fill stores n spans of about 10 KB.
func (h *harness) fill(r *agl.AttemptedRollout, n int) error {
	for range n {
		first, err := h.Store.ReserveSequenceIDs(h.ctx, agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID})
		if err != nil {
			return err
		}
		s := span(r.RolloutID, r.Attempt.AttemptID, fmt.Sprintf("s%d", first), first)
		s.Attributes = agl.Attributes(`{"x":"` + strings.Repeat("x", 10_000-600) + `"}`)
		if _, err := h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{s}}); err != nil {
			return err
		}
	}
	return nil
}

func (h *harness) needEviction() {
	h.Helper()
	if !h.Evicts {
		h.Skip("the store does not evict")
	}
}

func (h *harness) evicted(r *agl.AttemptedRollout) bool {
	h.Helper()
	_, err := h.Store.QuerySpans(h.ctx, agl.QuerySpansParams{RolloutID: r.RolloutID})
	if errors.Is(err, agl.ErrEvicted) {
		equal(h, "message", err.Error(), "Spans for rollout "+r.RolloutID+" have been evicted")
		if h.Store.Capabilities().QueryShortSpans {
			_, err := h.Store.QueryShortSpans(h.ctx, agl.QueryShortSpansParams{
				QuerySpansParams: agl.QuerySpansParams{RolloutID: r.RolloutID, AttributeNames: []string{"*"}},
			})
			h.wantError(err, agl.ErrEvicted, "")
		}
		return true
	}
	h.ok(err)
	return false
}

func testEvictOldest(h *harness) {
	h.needEviction()
	var rollouts []agl.AttemptedRollout
	for range 4 {
		r := h.start(config(agl.RolloutConfig{}), "")
		rollouts = append(rollouts, r)
	}
	// They finish in another order than they started.
	for _, i := range []int{2, 0, 1} {
		h.ok(h.fill(&rollouts[i], 3))
		h.report(rollouts[i].RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	}
	for i := range rollouts {
		equal(h, "evicted too early", h.evicted(&rollouts[i]), false)
	}
	h.ok(h.fill(&rollouts[3], 2)) // 11 × ~9.9 KB
	for i, want := range []bool{true, true, false, false} {
		equal(h, fmt.Sprintf("evicted %d", i), h.evicted(&rollouts[i]), want)
	}
	stats := must(h.Store.Statistics(h.ctx))(h)
	equal(h, "spans", stats.TotalSpans, 5)
	if stats.Memory == nil || stats.Memory.TotalSpanBytes > 50_000 {
		h.Errorf("memory is %+v, want at most 50000 bytes of spans", stats.Memory)
	}
	equal(h, "rollouts", stats.TotalRollouts, 4)
	h.wantStatus(rollouts[0].RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
}

func testEvictNeverRunning(h *harness) {
	h.needEviction()
	running, other := h.start(config(agl.RolloutConfig{}), ""), h.start(config(agl.RolloutConfig{}), "")
	err := h.fill(&running, 20)
	h.wantError(err, agl.ErrExhausted, "")
	equal(h, "evicted", h.evicted(&running), false)
	h.wantError(h.fill(&other, 1), agl.ErrExhausted, "")
	before := h.spans(agl.QuerySpansParams{RolloutID: running.RolloutID}).Total
	equal(h, "kept", before > 5, true)
	// Finishing one allows eviction for the other.
	h.report(running.RolloutID, agl.LatestAttempt, agl.AttemptFailed)
	h.ok(h.fill(&other, 5))
	equal(h, "evicted", h.evicted(&running), true)
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: other.RolloutID}).Total, 5)
}

func (h *harness) testStaysEvicted(restart func()) {
	h.needEviction()
	old, other := h.start(config(agl.RolloutConfig{}), ""), h.start(config(agl.RolloutConfig{}), "")
	h.ok(h.fill(&old, 5))
	h.report(old.RolloutID, agl.LatestAttempt, agl.AttemptSucceeded)
	h.ok(h.fill(&other, 7))
	restart()
	equal(h, "evicted", h.evicted(&old), true)
	h.touch(old.Attempt)
	equal(h, "evicted still", h.evicted(&old), true)
	equal(h, "spans", h.spans(agl.QuerySpansParams{RolloutID: other.RolloutID}).Total, 7)
}
