package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func openTest(t *testing.T, config Config) *Driver {
	t.Helper()
	if config.Path == "" {
		config.Path = filepath.Join(t.TempDir(), "agl.db")
	}
	config.Sync = SyncNormal
	d, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeTest(t *testing.T, d *Driver) {
	t.Helper()
	if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// limitPages makes the file's disk full once it has so many pages more; -1 is
// no limit.
func (d *Driver) limitPages(t *testing.T, more int64) {
	t.Helper()
	d.writing.Lock()
	defer d.writing.Unlock()
	c, err := d.connected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limit := int64(1 << 30)
	if more >= 0 {
		pages, err := c.number(t.Context(), "PRAGMA page_count")
		if err != nil {
			t.Fatal(err)
		}
		limit = pages + more
	}
	if err := c.script(t.Context(), "PRAGMA max_page_count = "+itoa(limit)); err != nil {
		t.Fatal(err)
	}
}

// exported returns everything in the file as text.
func exported(t *testing.T, d *Driver) []string {
	t.Helper()
	var out []string
	for r, err := range d.Export(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Resources != nil:
			out = append(out, string(r.Resources.AppendJSON(nil)))
		case r.Worker != nil:
			out = append(out, string(r.Worker.AppendJSON(nil)))
		case r.Rollout != nil:
			out = append(out, fmt.Sprint(r.Rollout.Place, r.Rollout.Evicted, string(r.Rollout.Rollout.AppendJSON(nil))))
		case r.Attempt != nil:
			out = append(out, string(r.Attempt.AppendJSON(nil)))
		case r.Span != nil:
			out = append(out, string(r.Span.Payload))
		case r.Sequence != nil:
			out = append(out, fmt.Sprint(*r.Sequence))
		case r.Key != nil:
			out = append(out, fmt.Sprint(*r.Key))
		case r.State != nil:
			out = append(out, fmt.Sprint(*r.State))
		}
	}
	return out
}

// loaded returns everything that batches see of the rollouts as text.
func loaded(t *testing.T, d *Driver, ids []string) []string {
	t.Helper()
	b, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	var got driver.Loaded
	if err := b.Load(t.Context(), &driver.LoadParams{Rollouts: ids, Sequences: ids, Workers: []string{"w0", "w1"}}, &got); err != nil {
		t.Fatal(err)
	}
	claimed, err := b.Claim(t.Context(), 1000, &driver.Loaded{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range got.Rollouts {
		out = append(out, r.Latest+string(r.Rollout.AppendJSON(nil)))
	}
	for _, a := range got.Attempts {
		out = append(out, string(a.AppendJSON(nil)))
	}
	for _, w := range got.Workers {
		text := fmt.Sprint(w.WorkerID, w.LiveAttempts)
		if w.Worker != nil {
			text += string(w.Worker.AppendJSON(nil))
		}
		out = append(out, text)
	}
	stats, err := d.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(out, fmt.Sprint(got.Sequences), fmt.Sprint(claimed), fmt.Sprint(stats), fmt.Sprint(got.QueueClosed, got.LatestResources))
}

// randomChanges makes a batch for rollouts in known statuses.
func randomChanges(source *rand.Rand, statuses map[string]agl.RolloutStatus, attempts map[string]int) driver.Changes {
	c := driver.Changes{Now: 1_760_000_000}
	status := func() agl.RolloutStatus {
		return agl.RolloutStatuses()[source.IntN(len(agl.RolloutStatuses()))]
	}
	set := func(id string, isNew bool) {
		statuses[id] = status()
		c.Rollouts = append(c.Rollouts, driver.RolloutChange{New: isNew, Front: source.IntN(4) == 0, Rollout: &agl.Rollout{
			RolloutID: id, Input: jsontext.Value(strings.Repeat("1", 1+source.IntN(3000))), StartTime: 1, Status: statuses[id],
		}})
	}
	for range 1 + source.IntN(3) {
		id := fmt.Sprintf("r%d", len(statuses))
		set(id, true)
	}
	for id := range statuses {
		if source.IntN(3) == 0 && !slices.ContainsFunc(c.Rollouts, func(r driver.RolloutChange) bool { return r.Rollout.RolloutID == id }) {
			set(id, false)
		}
		if source.IntN(3) == 0 {
			attempts[id]++
			worker := agl.Some(fmt.Sprintf("w%d", source.IntN(2)))
			a := &agl.Attempt{RolloutID: id, AttemptID: fmt.Sprintf("a%d", attempts[id]), SequenceID: attempts[id], Status: agl.AttemptRunning, WorkerID: worker}
			c.Attempts = append(c.Attempts, driver.AttemptChange{New: true, Attempt: a})
			c.Workers = append(c.Workers, &agl.Worker{WorkerID: worker.V, Status: agl.WorkerBusy, CurrentRolloutID: agl.Some(id), CurrentAttemptID: agl.Some(a.AttemptID)})
			for n := range source.IntN(4) {
				c.Spans = append(c.Spans, driver.SpanRecord{
					SpanKey:    driver.SpanKey{RolloutID: id, AttemptID: a.AttemptID, SpanID: fmt.Sprint(n)},
					SequenceID: source.Int64N(5000), Payload: jsontext.Value(strings.Repeat("2", 1+source.IntN(9000))),
				})
			}
		}
		if source.IntN(3) == 0 {
			c.Sequences = append(c.Sequences, driver.Sequence{RolloutID: id, Last: source.Int64N(1000)})
		}
	}
	c.Events = []agl.Event{{Kind: agl.EventQueue, Status: "open"}}
	c.Keys = []driver.IdempotencyRecord{{Scope: fmt.Sprint(source.IntN(5)), CreateTime: c.Now}}
	return c
}

// TestFailedApply makes commits fail at random places. Afterwards memory and file
// agree, and both are as before.
func TestFailedApply(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			source := rand.New(rand.NewPCG(seed, 7))
			d := openTest(t, Config{})
			statuses, attempts := map[string]agl.RolloutStatus{}, map[string]int{}
			failures := 0
			for step := range 40 {
				d.limitPages(t, source.Int64N(12))
				ids := slices.Sorted(maps.Keys(statuses))
				before, stored := loaded(t, d, ids), exported(t, d)
				wasStatuses, wasAttempts := maps.Clone(statuses), maps.Clone(attempts)
				c := randomChanges(source, statuses, attempts)
				b, err := d.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				err = b.Apply(t.Context(), &c)
				if err == nil {
					continue
				}
				failures++
				if !errors.Is(err, agl.ErrExhausted) || !strings.Contains(err.Error(), d.path) {
					t.Fatalf("step %d: error %v, want no room, naming the file", step, err)
				}
				statuses, attempts = wasStatuses, wasAttempts
				if after := loaded(t, d, ids); !slices.Equal(after, before) {
					t.Fatalf("step %d: a failed commit has changed what batches see from\n%q to\n%q", step, before, after)
				}
				if after := exported(t, d); !slices.Equal(after, stored) {
					t.Fatalf("step %d: a failed commit has changed the file", step)
				}
				if err := d.Ping(t.Context()); step%2 == 0 && err != nil && !errors.Is(err, agl.ErrExhausted) {
					t.Fatalf("step %d: ping gives %v", step, err)
				}
				d.limitPages(t, -1)
				if err := d.Ping(t.Context()); err != nil {
					t.Fatalf("step %d: there is room again, and ping gives %v", step, err)
				}
			}
			if failures < 5 {
				t.Errorf("only %d commits failed", failures)
			}
			d.limitPages(t, -1)
			ids := slices.Sorted(maps.Keys(statuses))
			cached := loaded(t, d, ids)
			path := d.path
			closeTest(t, d)
			// A driver that keeps nothing in memory reads the same.
			d = openTest(t, Config{Path: path, CacheBytes: 1})
			if read := loaded(t, d, ids); !slices.Equal(read, cached) {
				t.Errorf("memory had\n%q, the file has\n%q", cached, read)
			}
			closeTest(t, d)
			db, err := OpenDatabase(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Check(t.Context(), func(p driver.Problem) { t.Errorf("%s: %s", p.Where, p.What) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLogIsBounded checks that the log is truncated although readers overlap, that a
// long reader does not block writers, and that the log is truncated once that reader
// is gone.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	d := openTest(t, Config{})
	const most = 200_000
	write := func() int64 {
		d.maxLog = min(d.maxLog, most)
		b, err := d.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = b.Apply(t.Context(), &driver.Changes{Rollouts: []driver.RolloutChange{{New: true, Rollout: &agl.Rollout{
			RolloutID: fmt.Sprintf("r%d", d.state.rollouts), Input: jsontext.Value(strings.Repeat("1", 50_000)), Status: agl.RolloutQueuing,
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(d.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for range 20 {
		if size := write(); size > 2*most {
			t.Fatalf("the log has %d bytes, want about %d at most", size, most)
		}
	}
	for _, err := range d.Export(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			write()
		}
		if size := write(); size < 2*most {
			t.Errorf("the log has %d bytes, and somebody reads what is in it", size)
		}
		break
	}
	if size := write(); size > most {
		t.Errorf("the log has %d bytes after its reader has gone, want less", size)
	}
	closeTest(t, d)
}

// TestPingNoticesFullDisk checks that a failed write is remembered until a write would
// succeed, and that reads still work.
func TestPingNoticesFullDisk(t *testing.T) {
	t.Parallel()
	d := openTest(t, Config{})
	change := func() error {
		b, err := d.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("r%d", d.state.rollouts)
		return b.Apply(t.Context(), &driver.Changes{Rollouts: []driver.RolloutChange{{New: true, Rollout: &agl.Rollout{
			RolloutID: id, Input: jsontext.Value(strings.Repeat("1", 100_000)), Status: agl.RolloutQueuing,
		}}}})
	}
	if err := errors.Join(change(), d.Ping(t.Context())); err != nil {
		t.Fatal(err)
	}
	d.limitPages(t, 0)
	if err := change(); !errors.Is(err, agl.ErrExhausted) {
		t.Fatalf("error %v, want no room", err)
	}
	// The connection was replaced, and with it the limit.
	d.limitPages(t, 0)
	if err := d.Ping(t.Context()); !errors.Is(err, agl.ErrExhausted) {
		t.Errorf("ping gives %v, want no room", err)
	}
	if page, err := d.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: agl.Paging{Limit: -1}}); err != nil || page.Total != 1 {
		t.Errorf("%d rollouts, error %v, want the one that was written", page.Total, err)
	}
	d.limitPages(t, -1)
	if err := errors.Join(d.Ping(t.Context()), change(), d.Ping(t.Context())); err != nil {
		t.Error(err)
	}
	closeTest(t, d)
}
