package storetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// addReward adds a reward to any attempt, from the agent or from outside, in order or late.
func (s *machine) addReward(t *rapid.T) {
	r, a := s.attempt(t)
	value := rapid.SampledFrom([]float64{-1, 0, 0.5, 1}).Draw(t, "value")
	sequence := rapid.Int64Range(1, r.last+1).Draw(t, "sequence")
	posted := rapid.SampledFrom([]string{
		"", "", `,"` + agl.AttrRewardPriority + `":-1`, `,"` + agl.AttrRewardPriority + `":10`,
		`,"` + agl.AttrRewardPriority + `":10,"` + agl.AttrRewardSpan + `":"of a call"`,
	}).Draw(t, "posted")
	attributes := fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":%v%s}`, value, posted)
	s.h.addSpans(rewardSpan(&agl.Attempt{RolloutID: r.id, AttemptID: a.id}, "reward-"+strconv.Itoa(r.spans), sequence, attributes))
	last := max(r.last, sequence)
	if posted == "" {
		s.m.addSpan(r, a)
	} else {
		r.spans++
	}
	r.last = last
}

// findByReward compares the result of a query by reward with the rewards in the spans.
func (s *machine) findByReward(t *rapid.T) {
	q := agl.QueryRolloutsParams{Paging: agl.Paging{
		Limit:  rapid.IntRange(1, 4).Draw(t, "limit"),
		SortBy: rapid.SampledFrom([]string{"", "start_time", "reward"}).Draw(t, "sort_by"),
		Order:  rapid.SampledFrom([]agl.SortOrder{agl.Ascending, agl.Descending}).Draw(t, "order"),
	}}
	bounds := rapid.SampledFrom([]float64{math.NaN(), -1, 0, 0.25, 0.5, 1}) // NaN is none
	if low := bounds.Draw(t, "from"); low == low {
		q.RewardMin = agl.Some(low)
	}
	if high := bounds.Draw(t, "to"); high == high {
		q.RewardMax = agl.Some(high)
	}
	if run := rapid.SampledFrom([]string{"", "a"}).Draw(t, "run"); run != "" {
		q.Labels = []agl.Label{{Name: "run", Value: run}}
	}
	want := s.byReward(t, q)
	for offset := 0; offset <= len(want); offset += q.Limit {
		q.Offset = offset
		s.wantPage(t, q, want[offset:], len(want))
	}
	q.Offset = 0
	for at := 0; at < len(want) && q.SortBy != "reward"; at += q.Limit {
		s.wantPage(t, q, want[at:], len(want)-at)
		q.After = want[min(at+q.Limit, len(want))-1]
	}
}

func (s *machine) wantPage(t *rapid.T, q agl.QueryRolloutsParams, want []string, total int) {
	page := s.h.rollouts(q)
	want = want[:min(q.Limit, len(want))]
	got := make([]string, len(page.Items))
	for i := range page.Items {
		got[i] = page.Items[i].RolloutID
	}
	if !slices.Equal(got, want) || page.Total != total {
		t.Fatalf("%+v found %v of %d, want %v of %d", q, got, page.Total, want, total)
	}
}

// byReward reads the rewards of all rollouts from their spans and returns the ids of those that match.
func (s *machine) byReward(t *rapid.T, q agl.QueryRolloutsParams) []string {
	type found struct {
		agl.AttemptedRollout

		reward agl.Null[float64]
	}
	var matching []found
	for i, r := range s.h.rollouts(agl.QueryRolloutsParams{}).Items {
		f := found{AttemptedRollout: r}
		if r.Attempt != nil {
			var err error
			spans := s.h.spans(agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Paging: agl.Paging{Limit: -1}})
			if f.reward, err = adapter.FinalReward(spans.Items); err != nil {
				t.Fatal(err)
			}
		}
		if q.RewardMin.Valid && !(f.reward.Valid && f.reward.V >= q.RewardMin.V) ||
			q.RewardMax.Valid && !(f.reward.Valid && f.reward.V <= q.RewardMax.V) ||
			len(q.Labels) > 0 && s.m.rollouts[i].run != q.Labels[0].Value {
			continue
		}
		matching = append(matching, f)
	}
	direction := 1
	if q.Order == agl.Descending {
		direction = -1
	}
	slices.SortStableFunc(matching, func(a, b found) int {
		switch {
		case q.SortBy == "start_time":
			return direction * cmp.Compare(a.StartTime, b.StartTime)
		case q.SortBy == "" || !a.reward.Valid && !b.reward.Valid:
			return 0
		case !a.reward.Valid: // last in both directions
			return 1
		case !b.reward.Valid:
			return -1
		}
		return direction * cmp.Compare(a.reward.V, b.reward.V)
	})
	out := make([]string, len(matching))
	for i := range matching {
		out[i] = matching[i].RolloutID
	}
	return out
}

// testRewardsMeanwhile searches rollouts by reward while their rewards rise. A search must find the rollouts whose reward was
// high enough when it began.
func testRewardsMeanwhile(h *harness) {
	const rollouts, writers, least = 24, 4, 0.5
	var (
		attempts [rollouts]*agl.Attempt
		stored   [rollouts]atomic.Int64 // quarters
		done     atomic.Bool
	)
	for i := range attempts {
		attempts[i] = h.scored(i, 0).Attempt
	}
	go func() {
		defer done.Store(true)
		h.together(writers, func(w int) error {
			for quarters := int64(1); quarters <= 4; quarters++ {
				for i := w; i < rollouts; i += writers {
					attributes := fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":%v}`, float64(quarters)/4)
					s := rewardSpan(attempts[i], fmt.Sprint("rising-", quarters), quarters+1, attributes)
					if _, err := h.Store.AddSpans(h.ctx, agl.AddSpansParams{Spans: []agl.Span{s}}); err != nil {
						return err
					}
					stored[i].Store(quarters)
				}
			}
			return nil
		})
	}()
	for last := false; !last; {
		last = done.Load() // one more search after the end
		for _, p := range []agl.Paging{{Limit: 5}, {Limit: 5, SortBy: "start_time", Order: agl.Descending}, {Limit: -1, SortBy: "reward"}} {
			var enough []string
			for i := range attempts {
				if stored[i].Load() >= 4*least {
					enough = append(enough, attempts[i].RolloutID)
				}
			}
			found := h.withReward(p, least)
			for _, id := range enough {
				if !found[id] {
					h.Fatalf("sorted by %q: %s had a reward of %v before the search that has not found it", p.SortBy, id, least)
				}
			}
			if last {
				equal(h, "at the end", len(found), rollouts)
			}
		}
	}
}

// withReward returns the rollouts of run a with at least this reward, page by page.
func (h *harness) withReward(p agl.Paging, least float64) map[string]bool {
	h.Helper()
	found := map[string]bool{}
	q := agl.QueryRolloutsParams{Labels: []agl.Label{{Name: "run", Value: "a"}}, RewardMin: agl.Some(least), Paging: p}
	for {
		page := h.rollouts(q)
		before := math.Inf(-1)
		for _, r := range page.Items {
			reward := r.Attempt.Reward
			if !reward.Valid || reward.V.Value < least || found[r.RolloutID] || p.SortBy == "reward" && reward.V.Value < before {
				h.Fatalf("sorted by %q: found %s with reward %v behind %v, found before: %v", p.SortBy, r.RolloutID, reward, before, found[r.RolloutID])
			}
			found[r.RolloutID], before = true, reward.V.Value
		}
		if len(page.Items) == page.Total {
			return found
		}
		q.After = page.Items[len(page.Items)-1].RolloutID
	}
}
