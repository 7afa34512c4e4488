package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

// TestRecentSpans compares what is read of spans that are kept in memory with what another driver, which keeps nothing,
// reads from its file: whatever their order, after retries and evictions, and when the memory is too small for all.
func TestRecentSpans(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for name, memory := range map[string]int64{"default": 0, "little": 256 << 10, "hardly any": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &recentSpans{t, open(t, sqlite.Config{Sync: sqlite.SyncNormal, CacheBytes: memory}), open(t, sqlite.Config{Sync: sqlite.SyncNormal, CacheBytes: 1}), 0}
			defer closeDriver(t, h.kept)
			defer closeDriver(t, h.file)
			rapid.Check(t, h.run)
		})
	}
}

type recentSpans struct {
	*testing.T
	kept, file *sqlite.Driver
	next       int // for ids
}

func (h *recentSpans) id(prefix string) string {
	h.next++
	return fmt.Sprint(prefix, h.next)
}

func (h *recentSpans) apply(c driver.Changes) {
	h.Helper()
	mustApply(h, h.kept, c)
	mustApply(h, h.file, c)
}

func (h *recentSpans) run(t *rapid.T) {
	attempts := map[string][]driver.AttemptChange{}
	var ids []string
	for range 3 {
		id := h.id("r")
		ids = append(ids, id)
		attempts[id] = []driver.AttemptChange{newAttempt(id, 1, agl.AttemptRunning)}
		h.apply(driver.Changes{Rollouts: []driver.RolloutChange{newRollout(id, agl.RolloutRunning)}, Attempts: attempts[id]})
	}
	for range rapid.IntRange(1, 10).Draw(t, "commits") {
		id := rapid.SampledFrom(ids).Draw(t, "rollout")
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case attempts[id] == nil: // evicted
		case what == 0 && len(attempts[id]) < 9:
			a := newAttempt(id, len(attempts[id])+1, agl.AttemptRunning)
			attempts[id] = append(attempts[id], a)
			h.apply(driver.Changes{Attempts: []driver.AttemptChange{a}})
		case what == 1:
			delete(attempts, id)
			h.apply(driver.Changes{EvictedRollouts: []string{id}})
		default:
			var c driver.Changes
			for range rapid.IntRange(1, 6).Draw(t, "spans") {
				a := rapid.SampledFrom(attempts[id]).Draw(t, "attempt")
				s := newSpan(a, h.id("s"), rapid.Int64Range(1, 12).Draw(t, "sequence"))
				if rapid.Bool().Draw(t, "timed") {
					s.StartTime = agl.Some(agl.Timestamp(rapid.IntRange(0, 2).Draw(t, "start")))
				}
				c.Spans = append(c.Spans, s)
			}
			h.apply(c)
		}
		h.compare(t, id)
	}
}

// compare reads the pages of all attempts and of single ones.
func (h *recentSpans) compare(t *rapid.T, id string) {
	for _, attempt := range []string{agl.LatestAttempt, "", "at-1"} {
		p := agl.QuerySpansParams{RolloutID: id, AttemptID: attempt, Paging: agl.Paging{
			Limit: rapid.SampledFrom([]int{-1, 1, 4, 100}).Draw(t, "limit"), SortBy: rapid.SampledFrom([]string{"", "sequence_id"}).Draw(t, "sort"),
		}}
		got, gotErr := h.kept.QuerySpans(h.Context(), p)
		want, wantErr := h.file.QuerySpans(h.Context(), p)
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) && agl.ErrorCode(gotErr) != agl.ErrorCode(wantErr) || !cmp.Equal(got, want) {
			t.Fatalf("attempt %q of %s: %v; %v, want %v", attempt, id, cmp.Diff(want, got), gotErr, wantErr)
		}
	}
}
