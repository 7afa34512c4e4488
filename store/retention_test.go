package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/storetest"
)

func evicted(t *testing.T, s *store.Store, r *agl.AttemptedRollout) bool {
	t.Helper()
	_, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
	if err != nil && !errors.Is(err, agl.ErrEvicted) {
		t.Fatal(err)
	}
	return err != nil
}

func TestRetainFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Retention: store.Retention{Spans: store.SpanBound{Age: time.Hour}}})
		defer closeStore(t, s)
		var all []agl.AttemptedRollout
		for range 150 { // more than two batches
			r := start(t, s, 0, 0)
			addSpan(t, s, &r, "a")
			setRollout(t, s, r.RolloutID, agl.RolloutSucceeded)
			all = append(all, r)
		}
		running := start(t, s, 0, 0)
		addSpan(t, s, &running, "a")
		time.Sleep(30 * time.Minute)
		setRollout(t, s, all[0].RolloutID, agl.RolloutQueuing)
		late := start(t, s, 0, 0)
		addSpan(t, s, &late, "a")
		setRollout(t, s, late.RolloutID, agl.RolloutFailed)
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		for i := range all {
			if got := evicted(t, s, &all[i]); got != (i > 0) {
				t.Errorf("rollout %d: evicted %v, reopened %v", i, got, i == 0)
			}
		}
		if evicted(t, s, &running) || evicted(t, s, &late) {
			t.Error("evicted what is running or has just ended")
		}
		stats, err := s.Statistics(t.Context())
		if err != nil || stats.TotalRollouts != 152 || stats.TotalSpans != 3 {
			t.Errorf("statistics %+v, error %v, want all rollouts and three spans", stats, err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if !evicted(t, s, &late) || evicted(t, s, &running) || evicted(t, s, &all[0]) {
			t.Error("a day later, only what has ended should be evicted")
		}
	})
}

// slowSearch is a driver that searches for seconds, as a database with many rollouts does.
type slowSearch struct {
	driver.Driver

	took *time.Duration // in all
}

func (d slowSearch) Oldest(ctx context.Context, kind driver.Removable, limit int) (driver.OldestList, error) {
	began := time.Now()
	defer func() { *d.took += time.Since(began) }()
	time.Sleep(3 * time.Second)
	return d.Driver.Oldest(ctx, kind, limit)
}

// Retention of a large database does not search all the time.
func TestRetentionRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := slowSearch{newMemory(t, storetest.OpenParams{}), new(time.Duration)}
		s := openWith(t, store.Config{Driver: d, Retention: store.Retention{Spans: store.SpanBound{Age: time.Minute}}})
		r := start(t, s, 0, 0)
		addSpan(t, s, &r, "a")
		setRollout(t, s, r.RolloutID, agl.RolloutSucceeded)
		time.Sleep(time.Hour)
		if !evicted(t, s, &r) {
			t.Error("nothing was removed in an hour")
		}
		closeStore(t, s)
		if most := time.Hour / 20; *d.took > most {
			t.Errorf("searched for %s of an hour, want %s at most", *d.took, most)
		}
	})
}

func TestRetainBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Retention: store.Retention{Spans: store.SpanBound{Bytes: 10_000}}})
		defer closeStore(t, s)
		running := start(t, s, 0, 0)
		for id := range strings.FieldsSeq("a b c d") {
			addSpan(t, s, &running, id)
		}
		var all []agl.AttemptedRollout
		for range 5 {
			r := start(t, s, 0, 0)
			addSpan(t, s, &r, "a")
			addSpan(t, s, &r, "b")
			all = append(all, r)
		}
		for _, i := range []int{3, 1, 4, 0, 2} {
			time.Sleep(time.Millisecond)
			setRollout(t, s, all[i].RolloutID, agl.RolloutSucceeded)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// 14 spans of 1.4 KB are 19 KB: those of 3, 1, 4 and 0 must go.
		for i, want := range []bool{true, true, false, true, true} {
			if got := evicted(t, s, &all[i]); got != want {
				t.Errorf("rollout %d: evicted %v, want %v", i, got, want)
			}
		}
		for id := range strings.FieldsSeq("e f g h i j k l") {
			addSpan(t, s, &running, id)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if evicted(t, s, &running) || !evicted(t, s, &all[2]) {
			t.Error("what runs stays, whatever its size")
		}
	})
}

// reopening is a driver that calls reopen after it has listed what may be removed,
// and before that is removed.
type reopening struct {
	driver.Driver

	reopen func()
}

func (r *reopening) Oldest(ctx context.Context, kind driver.Removable, limit int) (driver.OldestList, error) {
	list, err := r.Driver.Oldest(ctx, kind, limit)
	if len(list.Items) > 0 {
		r.reopen()
	}
	return list, err
}

func TestRetainLeavesTheReopened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &reopening{Driver: newMemory(t, storetest.OpenParams{})}
		peer := reopen(t, d.Driver)
		defer closeStore(t, peer)
		r, again := start(t, peer, 0, 0), start(t, peer, 0, 0)
		for _, r := range []*agl.AttemptedRollout{&r, &again} {
			addSpan(t, peer, r, "a")
			setRollout(t, peer, r.RolloutID, agl.RolloutSucceeded)
		}
		time.Sleep(time.Hour)
		var once sync.Once
		d.reopen = func() {
			once.Do(func() {
				setRollout(t, peer, r.RolloutID, agl.RolloutQueuing)
				setRollout(t, peer, again.RolloutID, agl.RolloutQueuing)
				setRollout(t, peer, again.RolloutID, agl.RolloutSucceeded)
			})
		}
		s := openWith(t, store.Config{Driver: d, Retention: store.Retention{Spans: store.SpanBound{Age: time.Minute}}})
		defer closeStore(t, s)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if evicted(t, s, &r) || evicted(t, s, &again) {
			t.Error("evicted what was reopened meanwhile")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if evicted(t, s, &r) || !evicted(t, s, &again) {
			t.Error("want the one evicted that has ended anew")
		}
	})
}

// fat is a driver whose finished rollouts hold 5 MiB of spans each, and whose transactions remove what removed says.
type fat struct {
	driver.Driver

	removed []int
}

func (f *fat) Oldest(ctx context.Context, kind driver.Removable, limit int) (driver.OldestList, error) {
	list, err := f.Driver.Oldest(ctx, kind, limit)
	if kind == driver.RemovableSpans || kind == driver.RemovableRollouts {
		for i := range list.Items {
			list.Items[i].SpanBytes = 5 << 20
		}
	}
	return list, err
}

func (f *fat) Begin(ctx context.Context) (driver.Tx, error) {
	tx, err := f.Driver.Begin(ctx)
	return fatTx{tx, f}, err
}

type fatTx struct {
	driver.Tx

	driver *fat
}

func (t fatTx) Apply(ctx context.Context, c *driver.Changes) error {
	if n := len(c.EvictedRollouts) + len(c.DeletedRollouts); n > 0 {
		t.driver.removed = append(t.driver.removed, n)
	}
	return t.Tx.Apply(ctx, c)
}

// TestRetainFatRollouts has rollouts with so many spans that a database cannot delete those of many in one transaction before
// its statement timeout.
func TestRetainFatRollouts(t *testing.T) {
	t.Parallel()
	for name, retention := range map[string]store.Retention{
		"spans": {Spans: store.SpanBound{Age: time.Minute}}, "rollouts": {Rollouts: store.Bound{Age: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &fat{Driver: newMemory(t, storetest.OpenParams{})}
				s := openWith(t, store.Config{Driver: d, Retention: retention})
				defer closeStore(t, s)
				for range 8 {
					r := start(t, s, 0, 0)
					addSpan(t, s, &r, "a")
					setRollout(t, s, r.RolloutID, agl.RolloutSucceeded)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if got := fmt.Sprint(d.removed); got != "[3 3 2]" {
					t.Errorf("transactions removed %s rollouts, want [3 3 2]: at most 16 MiB of spans each", got)
				}
			})
		})
	}
}

func TestRetainRollouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Retention: store.Retention{
			Rollouts: store.Bound{Age: time.Hour, Count: 3},
		}})
		defer closeStore(t, s)
		finish := func(n int) {
			for range n {
				r := start(t, s, 0, 0)
				addSpan(t, s, &r, "a")
				setRollout(t, s, r.RolloutID, agl.RolloutSucceeded)
				time.Sleep(time.Second)
			}
		}
		total := func() (rollouts, spans int) {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			stats, err := s.Statistics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stats.TotalRollouts, stats.TotalSpans
		}
		running := start(t, s, 0, 0)
		enqueue(t, s, 1, agl.RolloutConfig{})
		retried, err := s.StartRollout(t.Context(), agl.StartRolloutParams{WorkerID: agl.Some("w")})
		if err == nil {
			_, err = s.StartAttempt(t.Context(), agl.StartAttemptParams{RolloutID: retried.RolloutID})
		}
		if err != nil {
			t.Fatal(err)
		}
		setRollout(t, s, retried.RolloutID, agl.RolloutSucceeded)
		finish(5)
		if rollouts, spans := total(); rollouts != 5 || spans != 3 {
			t.Errorf("%d rollouts and %d spans, want the last 3 finished ones and 2 unfinished", rollouts, spans)
		}
		time.Sleep(time.Hour)
		if rollouts, spans := total(); rollouts != 2 || spans != 0 {
			t.Errorf("%d rollouts and %d spans, want the 2 unfinished ones", rollouts, spans)
		}
		if _, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: running.RolloutID}); err != nil {
			t.Error(err)
		}
		if w, err := s.GetWorker(t.Context(), agl.GetWorkerParams{WorkerID: "w"}); err != nil || w.Status != agl.WorkerIdle || w.CurrentRolloutID.Valid {
			t.Errorf("the worker of the superseded attempt of a deleted rollout: %+v, %v, want it idle", w, err)
		}
	})
}

func TestRetainWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Retention: store.Retention{
			Workers: store.Bound{Age: time.Hour, Count: 4},
		}})
		defer closeStore(t, s)
		heartbeat := func(id string) {
			if _, err := s.UpdateWorker(t.Context(), agl.UpdateWorkerParams{WorkerID: id}); err != nil {
				t.Fatal(err)
			}
		}
		ids := func() string {
			time.Sleep(11 * time.Second)
			synctest.Wait()
			page, err := s.QueryWorkers(t.Context(), agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "worker_id"}})
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for i := range page.Items {
				ids = append(ids, page.Items[i].WorkerID)
			}
			return strings.Join(ids, " ")
		}
		if _, err := s.StartRollout(t.Context(), agl.StartRolloutParams{WorkerID: agl.Some("busy")}); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			heartbeat(fmt.Sprint("w", i))
			time.Sleep(time.Second)
		}
		heartbeat("w1")
		if got := ids(); got != "busy w1 w3 w4 w5" {
			t.Errorf("workers are %s, want the last 4 and the busy one", got)
		}
		time.Sleep(time.Hour - time.Minute)
		heartbeat("w3")
		time.Sleep(time.Minute)
		if got := ids(); got != "busy w3" {
			t.Errorf("workers are %s, want the busy one and w3", got)
		}
	})
}

func TestRetainResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Retention: store.Retention{
			Resources: store.Bound{Age: time.Hour, Count: 2},
		}})
		defer closeStore(t, s)
		publish := func(id string) {
			time.Sleep(time.Second)
			if _, err := s.UpdateResources(t.Context(), agl.UpdateResourcesParams{ResourcesID: id}); err != nil {
				t.Fatal(err)
			}
		}
		ids := func() string {
			time.Sleep(11 * time.Second)
			synctest.Wait()
			page, err := s.QueryResources(t.Context(), agl.QueryResourcesParams{Paging: agl.Paging{SortBy: "resources_id"}})
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for i := range page.Items {
				ids = append(ids, page.Items[i].ResourcesID)
			}
			return strings.Join(ids, " ")
		}
		publish("a")
		queued := enqueue(t, s, 1, agl.RolloutConfig{})[0] // names a
		for _, id := range []string{"b", "c", "d", "e"} {
			publish(id)
		}
		if got := ids(); got != "a c d e" {
			t.Errorf("resources are %s, want the latest, the last 2 before it, and a, which a queued rollout names", got)
		}
		time.Sleep(time.Hour)
		if got := ids(); got != "a e" {
			t.Errorf("resources are %s, want the latest and a", got)
		}
		if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: queued.RolloutID}); err != nil {
			t.Fatal(err)
		}
		if got := ids(); got != "e" {
			t.Errorf("resources are %s, want the latest", got)
		}
	})
}

// TestRetainSequences: sequences of rollouts that do not exist are bounded, by
// default too.
func TestRetainSequences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			retention store.Retention
			n         int
			wait      time.Duration
			newest    int64 // the next id of the sequence that was used last
		}{
			{store.Retention{}, 10_500, 11 * time.Second, 2},
			{store.Retention{Sequences: store.Bound{Age: time.Hour}}, 10, 2 * time.Hour, 1},
			{store.Retention{Sequences: store.Bound{Age: -1, Count: 5}}, 10, 2 * time.Hour, 2},
		} {
			s := openWith(t, store.Config{Driver: newMemory(t, storetest.OpenParams{}), Retention: tc.retention})
			reserve := func(id string) int64 {
				first, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: id})
				if err != nil {
					t.Fatal(err)
				}
				return first
			}
			known := start(t, s, 0, 0)
			reserve(known.RolloutID)
			for i := range tc.n {
				reserve(fmt.Sprint("unknown", i))
				time.Sleep(time.Microsecond)
			}
			time.Sleep(tc.wait)
			synctest.Wait()
			if first := reserve("unknown0"); first != 1 {
				t.Errorf("%+v: the oldest sequence continues with %d, want 1", tc.retention, first)
			}
			if first := reserve(fmt.Sprint("unknown", tc.n-1)); first != tc.newest {
				t.Errorf("%+v: the newest sequence continues with %d, want %d", tc.retention, first, tc.newest)
			}
			if first := reserve(known.RolloutID); first != 2 {
				t.Errorf("%+v: the sequence of a rollout continues with %d, want 2", tc.retention, first)
			}
			closeStore(t, s)
		}
	})
}
