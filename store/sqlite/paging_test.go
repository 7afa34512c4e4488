package sqlite_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

// offsets are offsets into n records: around the edges of buckets, and random ones.
func offsets(source *rand.Rand, n int) []int {
	out := []int{0, 1, 1023, 1024, 1025, 2048, n - 1, n + 5}
	for range 4 {
		out = append(out, source.IntN(n))
	}
	return out
}

// cut returns the expected page.
func cut[T any](all []T, offset, limit int) []T {
	all = all[min(offset, len(all)):]
	if limit >= 0 {
		all = all[:min(limit, len(all))]
	}
	return all
}

// TestSpanPages compares pages of thousands of spans with sorted lists: several
// attempts, and sequence ids that repeat, have gaps or are negative.
func TestSpanPages(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	type span struct {
		sequence, ordinal int
		attempt, id       string
		start             agl.Null[agl.Timestamp]
	}
	for name, sequence := range map[string]func(i int, source *rand.Rand) int{
		"one after the other": func(i int, _ *rand.Rand) int { return i },
		"sparse":              func(i int, _ *rand.Rand) int { return i * 700 },
		"shuffled":            func(_ int, source *rand.Rand) int { return source.IntN(6000) - 1500 },
		"all the same":        func(int, *rand.Rand) int { return 5 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := rand.New(rand.NewPCG(1, 2))
			d := open(t, sqlite.Config{Sync: sqlite.SyncNormal})
			attempts := []driver.AttemptChange{newAttempt("r", 1, agl.AttemptFailed), newAttempt("r", 2, agl.AttemptRunning)}
			mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutRunning)}, Attempts: attempts})
			const n = 2500
			var all []span
			for len(all) < n {
				var c driver.Changes
				for range 500 {
					i := len(all)
					a := attempts[min(i/600, 1)] // the second has most of them
					record := newSpan(a, fmt.Sprintf("s%d", i), int64(sequence(i, source)))
					if source.IntN(4) > 0 {
						record.StartTime = agl.Some(agl.Timestamp(source.IntN(3)))
					}
					record.Payload = jsontext.Value(`"` + record.SpanID + `"`)
					all = append(all, span{int(record.SequenceID), i, record.AttemptID, string(record.Payload), record.StartTime})
					c.Spans = append(c.Spans, record)
				}
				mustApply(t, d, c)
			}
			startKey := func(s span) float64 {
				if !s.start.Valid {
					return 1e9
				}
				return float64(s.start.V)
			}
			for _, attempt := range []string{"", "at-1", "at-2", agl.LatestAttempt} {
				for _, order := range []agl.SortOrder{agl.Ascending, agl.Descending} {
					wanted := slices.Clone(all)
					wanted = slices.DeleteFunc(wanted, func(s span) bool {
						return attempt == "at-1" && s.attempt != "at-1" || attempt != "" && attempt != "at-1" && s.attempt == "at-1"
					})
					slices.SortFunc(wanted, func(a, b span) int {
						bySequence := cmp.Compare(a.sequence, b.sequence)
						if order == agl.Descending {
							bySequence = -bySequence
						}
						return cmp.Or(bySequence, cmp.Compare(startKey(a), startKey(b)), cmp.Compare(a.ordinal, b.ordinal))
					})
					for i, offset := range offsets(source, len(wanted)) {
						limit := []int{7, 1100, 3, 20, -1}[i%5]
						page, err := d.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: "r", AttemptID: attempt, Paging: agl.Paging{
							Limit: limit, Offset: offset, SortBy: "sequence_id", Order: order,
						}})
						if err != nil || page.Total != len(wanted) {
							t.Fatalf("attempt %q, %s: %d spans, error %v, want %d", attempt, order, page.Total, err, len(wanted))
						}
						var got, want []string
						for _, item := range page.Items {
							got = append(got, string(item.Payload))
						}
						for _, s := range cut(wanted, offset, limit) {
							want = append(want, s.id)
						}
						if !slices.Equal(got, want) {
							t.Fatalf("attempt %q, %s, offset %d, limit %d:\ngot  %.200q\nwant %.200q", attempt, order, offset, limit, got, want)
						}
					}
				}
			}
			closeDriver(t, d)
		})
	}
}

// TestRolloutPages compares pages of thousands of rollouts with sorted lists: many
// started at the same time, and some are deleted.
func TestRolloutPages(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for _, ordered := range []bool{true, false} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			t.Parallel()
			source := rand.New(rand.NewPCG(3, 4))
			d := open(t, sqlite.Config{Sync: sqlite.SyncNormal})
			const n = 2600
			var all []*agl.Rollout
			start := 1000
			for len(all) < n {
				if ordered || len(all) < n/2 {
					start += source.IntN(2)
				} else {
					start -= source.IntN(2) // the clock was set back
				}
				var c driver.Changes
				for range 1 + source.IntN(400) {
					r := newRollout(fmt.Sprintf("r%d", len(all)), agl.RolloutSucceeded)
					r.Rollout.StartTime = agl.Timestamp(start)
					all = append(all, r.Rollout)
					c.Rollouts = append(c.Rollouts, r)
				}
				mustApply(t, d, c)
			}
			var gone driver.Changes
			all = slices.DeleteFunc(all, func(r *agl.Rollout) bool {
				remove := source.IntN(5) == 0
				if remove {
					gone.DeletedRollouts = append(gone.DeletedRollouts, r.RolloutID)
				}
				return remove
			})
			mustApply(t, d, gone)
			for _, p := range []agl.Paging{{}, {Order: agl.Descending}, {SortBy: "start_time"}, {SortBy: "start_time", Order: agl.Descending}} {
				wanted := slices.Clone(all)
				if p.SortBy != "" {
					slices.SortStableFunc(wanted, func(a, b *agl.Rollout) int {
						if p.Order == agl.Descending {
							a, b = b, a
						}
						return cmp.Compare(a.StartTime, b.StartTime)
					})
				}
				for i, offset := range offsets(source, len(wanted)) {
					p.Limit, p.Offset = []int{7, 1100, 3, 20, -1}[i%5], offset
					page, err := d.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: p})
					if err != nil || page.Total != len(wanted) {
						t.Fatalf("%+v: %d rollouts, error %v, want %d", p, page.Total, err, len(wanted))
					}
					var got, want []string
					for i := range page.Items {
						got = append(got, page.Items[i].RolloutID)
					}
					for _, r := range cut(wanted, offset, p.Limit) {
						want = append(want, r.RolloutID)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%+v:\ngot  %.200q\nwant %.200q", p, got, want)
					}
				}
			}
			closeDriver(t, d)
		})
	}
}
