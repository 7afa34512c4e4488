package execution

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
)

// workerTable is a store with one worker whose state depends on the time since the
// queue was closed.
type workerTable struct {
	agl.UnimplementedStore
	start  time.Time
	idleAt time.Duration // the worker reports; never when negative
	asksAt time.Duration // the worker dequeues again; never when negative
}

func (s *workerTable) QueryWorkers(_ context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	at := func(d time.Duration) agl.Null[agl.Timestamp] { return agl.Some(agl.TimestampOf(s.start.Add(d))) }
	w := agl.Worker{WorkerID: "w", Status: agl.WorkerBusy, LastBusyTime: at(-time.Second), LastDequeueTime: at(-time.Second)}
	if now := time.Since(s.start); s.idleAt >= 0 && now >= s.idleAt {
		w.Status, w.LastIdleTime = agl.WorkerIdle, at(s.idleAt)
		if s.asksAt >= 0 && now >= s.asksAt {
			w.LastDequeueTime = at(s.asksAt)
		}
	}
	var page agl.Page[agl.Worker]
	if len(p.StatusIn) == 0 || p.StatusIn[0] == w.Status {
		page = agl.Page[agl.Worker]{Items: []agl.Worker{w}, Total: 1}
	}
	return page, nil
}

// Events tells of the report.
func (s *workerTable) Events(ctx context.Context, _ agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		if !yield(agl.Event{Kind: agl.EventReset}, nil) {
			return
		}
		if s.idleAt >= 0 {
			select {
			case <-time.After(time.Until(s.start.Add(s.idleAt))):
				if !yield(agl.Event{Kind: agl.EventWorker, WorkerID: "w", Status: string(agl.WorkerIdle)}, nil) {
					return
				}
			case <-ctx.Done():
			}
		}
		<-ctx.Done()
		yield(agl.Event{}, ctx.Err())
	}
}

func TestWorkersAreAwaited(t *testing.T) {
	t.Parallel()
	const never = -1
	tests := map[string]struct {
		idleAt, asksAt time.Duration
		others         bool // the worker has been busy since before the run
		want           time.Duration
	}{
		"it has asked already":        {idleAt: 0, asksAt: time.Microsecond, want: 20 * time.Millisecond},
		"it has reported just now":    {idleAt: 0, asksAt: 100 * time.Millisecond, want: 100 * time.Millisecond},
		"it reports and asks":         {idleAt: 2 * time.Second, asksAt: 2100 * time.Millisecond, want: 2100 * time.Millisecond},
		"it reports and never asks":   {idleAt: 2 * time.Second, asksAt: never, want: 3 * time.Second},
		"it has died with its work":   {idleAt: never, asksAt: never, want: 10 * time.Second},
		"it is longer than we'd wait": {idleAt: time.Minute, asksAt: time.Minute, want: 10 * time.Second},
		"it works for another run":    {idleAt: never, asksAt: never, others: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				table := &workerTable{start: begin, idleAt: test.idleAt, asksAt: test.asksAt}
				served := &servedWorkers{store: table}
				if test.others {
					var err error
					if served, err = newServedWorkers(t.Context(), table); err != nil {
						t.Fatal(err)
					}
				}
				if err := served.await(t.Context(), 10*time.Second); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != test.want {
					t.Errorf("returned after %s, want %s", took, test.want)
				}
			})
		})
	}
}
