package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Retention bounds what a store keeps. Beyond a bound it removes the oldest records, but nothing that unfinished work
// needs: it removes only finished rollouts, workers that are not busy, and bundles that are neither the latest nor
// named by an unfinished rollout.
//
// By default rollouts, spans and bundles are kept for ever, because they are the results of runs. Every run also
// leaves workers, and sequences of unknown rollouts, behind: of each, at most the last 10,000 of the last 30 days are
// kept.
type Retention struct {
	// Spans are evicted by the end time of their rollouts; the rollouts stay.
	Spans SpanBound
	// Rollouts are deleted by end time, with their attempts and spans.
	Rollouts Bound
	// Workers are deleted by their last contact.
	Workers Bound
	// Resources are deleted by their last update.
	Resources Bound
	// Sequences of rollouts that do not exist are deleted by their last use. The ids of such a rollout then start at
	// 1 again.
	Sequences Bound
}

// Bound limits the age and the number of records. 0 is the default in [Retention]; a negative value means no bound.
type Bound struct {
	Age   time.Duration
	Count int
}

// SpanBound limits the age of spans, and the size of all of them together, in bytes as sent. Spans of unfinished
// rollouts count, but are not removed. 0 or less means no bound.
type SpanBound struct {
	Age   time.Duration
	Bytes int64
}

const (
	defaultRetentionAge   = 30 * 24 * time.Hour
	defaultRetentionCount = 10_000
	// retentionInterval is the least pause between two searches for records to remove. Some databases read all rollouts for a
	// search, so the pause is searchRest times as long as the last search, up to maxRetentionInterval.
	retentionInterval    = 10 * time.Second
	searchRest           = 20
	maxRetentionInterval = 10 * time.Minute
	// retentionPage is the number of records in one list. One transaction removes at most retentionBatch of them, and
	// about retentionBytes of spans, so that other writes do not wait long, and the database ends it before its timeout.
	retentionPage  = 4096
	retentionBatch = 64
	retentionBytes = 16 << 20
)

// rule holds the bounds of one kind of records.
type rule struct {
	kind  driver.Removable
	age   time.Duration // 0 means no bound
	count int           // 0 means no bound
	bytes int64         // 0 means no bound
}

func (r Retention) rules() []rule {
	byDefault := func(b Bound) Bound {
		return Bound{Age: cmp.Or(b.Age, defaultRetentionAge), Count: cmp.Or(b.Count, defaultRetentionCount)}
	}
	bound := func(kind driver.Removable, b Bound) rule {
		return rule{kind: kind, age: max(b.Age, 0), count: max(b.Count, 0)}
	}
	rules := []rule{
		bound(driver.RemovableRollouts, r.Rollouts),
		{kind: driver.RemovableSpans, age: max(r.Spans.Age, 0), bytes: max(r.Spans.Bytes, 0)},
		bound(driver.RemovableWorkers, byDefault(r.Workers)),
		bound(driver.RemovableResources, r.Resources),
		bound(driver.RemovableSequences, byDefault(r.Sequences)),
	}
	return slices.DeleteFunc(rules, func(r rule) bool { return r.age == 0 && r.count == 0 && r.bytes == 0 })
}

// beyond returns the records at the head of the list that exceed the bounds.
func (r rule) beyond(list driver.OldestList, now agl.Timestamp) []driver.Oldest {
	count, bytes := list.Count, list.SpanBytes
	for i, item := range list.Items {
		tooOld := r.age > 0 && now.Sub(item.Time) > r.age
		if !tooOld && (r.count == 0 || count <= r.count) && (r.bytes == 0 || bytes <= r.bytes) {
			return list.Items[:i]
		}
		count--
		bytes -= item.SpanBytes
	}
	return list.Items
}

// batchOf returns how many of the records one transaction removes: at least one.
func batchOf(records []driver.Oldest) int {
	bytes := int64(0)
	for i := range records {
		bytes += records[i].SpanBytes
		if i == retentionBatch || i > 0 && bytes > retentionBytes {
			return i
		}
	}
	return len(records)
}

// retain is the background goroutine that removes records beyond the bounds.
func (s *Store) retain(ctx context.Context, rules []rule) {
	var search time.Duration // the time that the last one took
	failures := make([]retried, len(rules))
	for {
		timer, stop := s.clock.NewTimer(min(max(retentionInterval, searchRest*search), maxRetentionInterval))
		select {
		case <-timer:
		case <-ctx.Done():
			stop()
			return
		}
		search = 0
		for i, rule := range rules {
			took, err := s.enforce(ctx, rule)
			failures[i].noteFailure(ctx, s.log, "retention failed", err, "kind", rule.kind)
			search += took
		}
	}
}

// enforce removes all records of one kind that are beyond the bounds now. search is the time that the last search for them took.
func (s *Store) enforce(ctx context.Context, r rule) (search time.Duration, err error) {
	for {
		began := time.Now()
		list, err := s.driver.Oldest(ctx, r.kind, retentionPage)
		search = time.Since(began)
		if err != nil {
			return search, err
		}
		records := r.beyond(list, agl.TimestampOf(s.clock.Now()))
		var busy map[string][]string
		if r.kind == driver.RemovableRollouts && len(records) > 0 {
			if busy, err = s.busyWorkers(ctx); err != nil {
				return search, err
			}
		}
		removed, bytes := 0, int64(0)
		for len(records) > 0 {
			n := batchOf(records)
			gone, err := s.removeRecords(ctx, r.kind, records[:n], busy)
			if err != nil {
				return search, err
			}
			records = records[n:]
			for i := range gone {
				bytes += gone[i].SpanBytes
			}
			removed += len(gone)
		}
		if removed > 0 {
			s.log.InfoContext(ctx, "retention removed old records", "kind", r.kind, "count", removed, "span_bytes", bytes)
		}
		if removed < retentionPage {
			return search, nil
		}
	}
}

// removeRecords removes records, unless they were used since they were listed, and returns the removed ones. The decision is made at the end
// of the batch, when it is known which records its other commands use. busy is the result of [Store.busyWorkers].
func (s *Store) removeRecords(ctx context.Context, kind driver.Removable, records []driver.Oldest, busy map[string][]string) ([]driver.Oldest, error) {
	return submitLast(ctx, s.committer, func(want *driver.LoadParams) {
		for i := range records {
			id := records[i].ID
			switch kind {
			case driver.RemovableSpans, driver.RemovableRollouts:
				want.Rollouts = append(want.Rollouts, id)
				want.Workers = append(want.Workers, busy[id]...)
			case driver.RemovableWorkers:
				want.Workers = append(want.Workers, id)
			case driver.RemovableResources:
				want.Resources = append(want.Resources, id)
				want.ResourcesInUse = append(want.ResourcesInUse, id)
			case driver.RemovableSequences:
				want.Rollouts = append(want.Rollouts, id)
				want.Sequences = append(want.Sequences, id)
			}
		}
	}, func(w *unitOfWork) (gone []driver.Oldest, err error) {
		for i := range records {
			if w.removeRecord(kind, &records[i], busy[records[i].ID]) {
				gone = append(gone, records[i])
			}
		}
		return gone, nil
	})
}

func (w *unitOfWork) removeRecord(kind driver.Removable, record *driver.Oldest, busy []string) bool {
	switch kind {
	case driver.RemovableSpans, driver.RemovableRollouts:
		e := w.rollout(record.ID)
		if e == nil || !e.cur.Status.Finished() || e.cur.EndTime.V != record.Time {
			return false
		}
		if kind == driver.RemovableRollouts {
			w.deleteRollout(e, busy)
		} else {
			w.changes.EvictedRollouts = append(w.changes.EvictedRollouts, record.ID)
		}
	case driver.RemovableWorkers:
		e := w.workers[record.ID]
		if e == nil || e.changed || e.was == nil || e.was.Status == agl.WorkerBusy || driver.LastContact(e.was) != record.Time || w.liveAttempts(e) > 0 {
			return false
		}
		w.changes.DeletedWorkers = append(w.changes.DeletedWorkers, record.ID)
		w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventWorker, WorkerID: record.ID, Status: eventDeleted})
	case driver.RemovableResources:
		u := w.resources[record.ID]
		if u == nil || u.UpdateTime != record.Time || w.latestResources == agl.Some(record.ID) || w.resourcesInUse(record.ID) {
			return false
		}
		w.changes.DeletedResources = append(w.changes.DeletedResources, record.ID)
		w.deleteVersions(u)
		w.changes.Events = append(w.changes.Events, agl.Event{Kind: agl.EventResources, ResourcesID: record.ID, Status: eventDeleted})
	case driver.RemovableSequences:
		if e := w.sequences[record.ID]; w.rollouts[record.ID] != nil || e == nil || e.changed {
			return false
		}
		w.changes.DeletedSequences = append(w.changes.DeletedSequences, record.ID)
	}
	return true
}

// resourcesInUse reports whether an unfinished rollout names the bundle.
func (w *unitOfWork) resourcesInUse(id string) bool {
	if _, used := w.usedResources[id]; used {
		return true
	}
	return slices.ContainsFunc(w.changedRollouts, func(e *rolloutEntry) bool {
		return e.cur != nil && !e.cur.Status.Finished() && e.cur.ResourcesID == agl.Some(id)
	})
}
