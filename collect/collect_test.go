package collect_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/store/sqlite"
)

func newCollector(t *testing.T, s collect.Store, window time.Duration) *collect.Collector {
	t.Helper()
	c, err := collect.New(collect.Config{Store: s, RewardWindow: window})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustCollect(t *testing.T, c agl.Collector, p agl.CollectParams) agl.Collection {
	t.Helper()
	got, err := c.Collect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func start(t *testing.T, s agl.Store, metadata string) string {
	t.Helper()
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: jsontext.Value(metadata)}})
	if err != nil {
		t.Fatal(err)
	}
	return r.RolloutID
}

func end(t *testing.T, s agl.Store, id string) {
	t.Helper()
	status := agl.AttemptSucceeded
	if _, err := s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: id, AttemptID: agl.LatestAttempt, Status: &status}); err != nil {
		t.Fatal(err)
	}
}

func reward(t *testing.T, s agl.Store, id string, value float64) {
	t.Helper()
	if _, err := agl.AddReward(t.Context(), s, agl.AddRewardParams{RolloutID: id, Rewards: []agl.Reward{{Name: "primary", Value: value}}}); err != nil {
		t.Fatal(err)
	}
}

// shown is a collection in short.
func shown(c agl.Collection) string {
	text := ""
	for _, r := range c.Rollouts {
		text += fmt.Sprintf("%s=%v/%d ", r.Rollout.Metadata, r.Reward, r.Rewards)
	}
	for _, r := range c.Corrections {
		text += fmt.Sprintf("%s:%v->%v/%d ", r.Rollout.Metadata, r.Previous, r.Reward, r.Rewards)
	}
	return text + fmt.Sprint(c.Pending)
}

// A rollout is handed out when it has ended and its reward is there, or its window is over.
func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memorytest.Open(t)
		c := newCollector(t, s, time.Hour)
		rewarded, late, none, short := start(t, s, `{"k":"a"}`), start(t, s, `{"k":"b"}`), start(t, s, `{"k":"c"}`), start(t, s, `{"k":"d","agl.reward_window":60}`)
		reward(t, s, rewarded, 1)
		got := mustCollect(t, c, agl.CollectParams{})
		if shown(got) != "0" {
			t.Fatalf("nothing has ended: got %s", shown(got))
		}
		for _, id := range []string{rewarded, late, none, short} {
			end(t, s, id)
		}
		got = mustCollect(t, c, agl.CollectParams{Since: got.Next})
		if want := `{"k":"a"}={1 true}/1 3`; shown(got) != want {
			t.Fatalf("got %s, want %s", shown(got), want)
		}
		began := time.Now()
		got = mustCollect(t, c, agl.CollectParams{Since: got.Next, MaxWait: 24 * time.Hour})
		if want := `{"k":"d","agl.reward_window":60}={0 false}/0 2`; shown(got) != want {
			t.Fatalf("got %s, want %s", shown(got), want)
		}
		if waited := time.Since(began).Round(time.Second); waited != time.Minute {
			t.Errorf("waited %s for a window of a minute", waited)
		}
		reward(t, s, late, 0.5)
		got = mustCollect(t, c, agl.CollectParams{Since: got.Next, Min: 2, MaxWait: 24 * time.Hour})
		if want := `{"k":"b"}={0.5 true}/1 {"k":"c"}={0 false}/0 0`; shown(got) != want {
			t.Fatalf("got %s, want %s", shown(got), want)
		}
		if waited := time.Since(began).Round(time.Second); waited != time.Hour {
			t.Errorf("waited %s for a window of an hour", waited)
		}

		// What comes now is a correction, once.
		reward(t, s, none, 0.25)
		reward(t, s, late, 0.75)
		reward(t, s, late, 0.8)
		before := got.Next
		got = mustCollect(t, c, agl.CollectParams{Since: before})
		want := `{"k":"c"}:{0 false}->{0.25 true}/1 {"k":"b"}:{0.5 true}->{0.8 true}/2 0`
		if shown(got) != want {
			t.Fatalf("got %s, want %s", shown(got), want)
		}
		if again := mustCollect(t, c, agl.CollectParams{Since: before}); shown(again) != want || again.Next != got.Next {
			t.Errorf("the same cursor: got %s, want %s", shown(again), want)
		}
		if after := mustCollect(t, c, agl.CollectParams{Since: got.Next, MaxWait: time.Minute}); shown(after) != "0" || after.Next != got.Next {
			t.Errorf("after all: got %s", shown(after))
		}

		// From the beginning everything comes once, as it was when it was ready.
		all := mustCollect(t, c, agl.CollectParams{})
		if len(all.Rollouts) != 4 || len(all.Corrections) != 2 || all.Rollouts[3].Reward.Valid {
			t.Errorf("from the beginning: got %s", shown(all))
		}
	})
}

// Filters, bounds, deletion, and cursors that are none.
func TestSelects(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := newCollector(t, s, 0)
	var ids []string
	for i := range 10 {
		ids = append(ids, start(t, s, fmt.Sprintf(`{"user":"u%d"}`, i%2)))
		end(t, s, ids[i])
	}
	got := mustCollect(t, c, agl.CollectParams{Max: 2, Filter: agl.CollectFilter{Metadata: map[string]string{"user": "u1"}}})
	if len(got.Rollouts) != 2 || got.Rollouts[0].Rollout.RolloutID != ids[1] || got.Rollouts[1].Rollout.RolloutID != ids[3] {
		t.Errorf("got %s", shown(got))
	}
	if err := s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: ids[5]}); err != nil {
		t.Fatal(err)
	}
	got = mustCollect(t, c, agl.CollectParams{Since: got.Next, Filter: agl.CollectFilter{Metadata: map[string]string{"user": "u1"}}})
	if len(got.Rollouts) != 2 || got.Rollouts[0].Rollout.RolloutID != ids[7] || got.Rollouts[1].Rollout.RolloutID != ids[9] {
		t.Errorf("after a deletion: got %s", shown(got))
	}
	if got := mustCollect(t, c, agl.CollectParams{Filter: agl.CollectFilter{StatusIn: []agl.RolloutStatus{agl.RolloutFailed}}}); len(got.Rollouts) != 0 {
		t.Errorf("none has failed: got %s", shown(got))
	}
	for _, since := range []string{"x", "other-3", got.Next + "0", "-"} {
		if _, err := c.Collect(t.Context(), agl.CollectParams{Since: since}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("since %q: got %v, want invalid", since, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Collect(ctx, agl.CollectParams{Since: got.Next, MaxWait: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}

// The log of the collector keeps nothing of deleted rollouts, however many are deleted at once.
func TestDeletedWithCorrections(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	c := newCollector(t, s, 0)
	const rollouts, corrections = 100, 11 // more documents than one write takes
	ids := make([]string, rollouts+1)
	for i := range ids {
		ids[i] = start(t, s, `{}`)
		end(t, s, ids[i])
	}
	for n := range corrections {
		mustCollect(t, c, agl.CollectParams{})
		for _, id := range ids {
			reward(t, s, id, float64(n))
		}
	}
	if got := mustCollect(t, c, agl.CollectParams{}); len(got.Corrections) != len(ids)*corrections {
		t.Fatalf("got %d corrections, want %d", len(got.Corrections), len(ids)*corrections)
	}
	for _, id := range ids[1:] {
		if err := s.DeleteRollout(t.Context(), agl.DeleteRolloutParams{RolloutID: id}); err != nil {
			t.Fatal(err)
		}
	}
	got := mustCollect(t, c, agl.CollectParams{})
	if len(got.Rollouts) != 1 || len(got.Corrections) != corrections || got.Rollouts[0].Rollout.RolloutID != ids[0] {
		t.Errorf("after the deletion: got %s", shown(got))
	}
	left, err := s.QueryDocuments(t.Context(), agl.QueryDocumentsParams{Kind: "collect-entry"})
	if err != nil || left.Total != 1+corrections {
		t.Errorf("got %d documents, %v, want those of one rollout and its %d corrections", left.Total, err, corrections)
	}
}

// Each rollout comes once, and each correction, however often the store is opened again
// and the consumer goes back to the cursor that it has saved, with a log of events that
// forgets, and with several collectors at once.
func TestOnceOverRestarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	rounds, many := 8, 30
	if testing.Short() {
		rounds = 3
	}
	saved := "" // with what was learned
	learned := map[string]int{}
	late, corrected := 0, 0
	var all []string
	for round := range rounds {
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Lifetimes: driver.Lifetimes{MaxEvents: 20}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.New(t.Context(), store.Config{Driver: db})
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range all {
			if i%3 != round%3 {
				reward(t, s, id, float64(round))
				late++
			}
		}
		for range many {
			id := start(t, s, `{}`)
			end(t, s, id)
			all = append(all, id)
		}
		collectors := []*collect.Collector{newCollector(t, s, 0), newCollector(t, s, 0), newCollector(t, s, 0)}
		var group sync.WaitGroup
		for _, c := range collectors {
			group.Go(func() {
				if _, err := c.Collect(t.Context(), agl.CollectParams{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i := 0; ; i++ {
			got := mustCollect(t, collectors[i%3], agl.CollectParams{Since: saved, Max: 7})
			if len(got.Rollouts)+len(got.Corrections) == 0 {
				break
			}
			if i%2 == 1 { // it is killed before it has saved anything
				continue
			}
			for _, r := range got.Rollouts {
				learned[r.Rollout.RolloutID]++
			}
			for _, r := range got.Corrections {
				corrected += r.Rewards
			}
			saved = got.Next
		}
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if len(learned) != rounds*many {
		t.Errorf("learned from %d rollouts, want %d", len(learned), rounds*many)
	}
	for i, id := range all {
		if learned[id] != 1 {
			t.Errorf("learned from rollout %d %d times", i, learned[id])
		}
	}
	if corrected != late {
		t.Errorf("%d late rewards were told, want %d", corrected, late)
	}
}

// A cursor from after the backup that a store was restored from goes on where the backup ends: what is ready since comes once,
// although its numbers in the log are those of rollouts that are lost.
func TestRestoredStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	open := func(path string) *store.Store {
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.New(t.Context(), store.Config{Driver: db})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	finish := func(s agl.Store, names ...string) {
		for _, name := range names {
			end(t, s, start(t, s, fmt.Sprintf(`{"k":%q}`, name)))
		}
	}
	first := open(path)
	finish(first, "a", "b")
	c := newCollector(t, first, 0)
	before := mustCollect(t, c, agl.CollectParams{Max: 1})
	mustCollect(t, c, agl.CollectParams{})
	db, err := sqlite.OpenDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Backup(t.Context(), path+".copy"), db.Close()); err != nil {
		t.Fatal(err)
	}
	finish(first, "lost", "lost", "lost")
	after := mustCollect(t, c, agl.CollectParams{})

	restored := open(path + ".copy")
	c = newCollector(t, restored, 0)
	if got := mustCollect(t, c, agl.CollectParams{Since: after.Next}); shown(got) != "0" {
		t.Errorf("after the restore: got %s", shown(got))
	}
	finish(restored, "c", "d", "e", "f")
	for since, want := range map[string]string{
		before.Next: `{"k":"b"}={0 false}/0 {"k":"c"}={0 false}/0 {"k":"d"}={0 false}/0 {"k":"e"}={0 false}/0 {"k":"f"}={0 false}/0 0`,
		after.Next:  `{"k":"c"}={0 false}/0 {"k":"d"}={0 false}/0 {"k":"e"}={0 false}/0 {"k":"f"}={0 false}/0 0`,
	} {
		got := mustCollect(t, c, agl.CollectParams{Since: since})
		if shown(got) != want {
			t.Errorf("since %s: got %s, want %s", since, shown(got), want)
		}
		if again := mustCollect(t, c, agl.CollectParams{Since: got.Next}); shown(again) != "0" {
			t.Errorf("after all: got %s", shown(again))
		}
	}
}

// lightSpans refuses to return attributes that say nothing of rewards: all spans of a long conversation are larger than memory.
type lightSpans struct{ collect.Store }

func (s lightSpans) QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error) {
	page, err := s.Store.QuerySpans(ctx, p)
	for i := range page.Items {
		if _, found := page.Items[i].Attributes.Get("prompt_token_ids"); found {
			return page, errors.New("a call was read with its tokens")
		}
	}
	return page, err
}

// The reward of a rollout is found without reading what its calls have said.
func TestCollectReadsRewardsOnly(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	id := start(t, s, "{}")
	r, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id})
	if err != nil {
		t.Fatal(err)
	}
	call := agl.Span{
		RolloutID: id, AttemptID: r.Attempt.AttemptID, SequenceID: 1, TraceID: fmt.Sprintf("%032x", 1), SpanID: fmt.Sprintf("%016x", 1),
		Name: agl.SpanLiteLLMRequest, Attributes: agl.Attributes(`{"prompt_token_ids":[1,2,3]}`),
	}
	if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{call}}); err != nil {
		t.Fatal(err)
	}
	reward(t, s, id, 0.5)
	end(t, s, id)
	got := mustCollect(t, newCollector(t, lightSpans{s}, 0), agl.CollectParams{})
	if len(got.Rollouts) != 1 || got.Rollouts[0].Reward.V != 0.5 {
		t.Errorf("got %+v, want one rollout with the reward 0.5", got.Rollouts)
	}
}
