package chaos

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/test/chaos/history"
)

// watch records the store's events of rollouts and attempts until the last event of
// the run, or the end of ctx.
func (l *load) watch(ctx context.Context) {
	for e, err := range l.patient.Events(ctx, agl.EventsParams{}) {
		if err != nil {
			if ctx.Err() == nil {
				l.t.Errorf("events: %v", err)
			}
			return
		}
		args := history.Args{Rollout: e.RolloutID, Attempt: e.AttemptID, Status: e.Status}
		switch e.Kind {
		case agl.EventReset:
			args.Status = string(e.Kind)
			fallthrough
		case agl.EventRollout, agl.EventAttempt:
			l.recorder.Saw("watcher", history.Observe, args, history.Reply{Event: e.ID})
		default:
		}
		l.observed.Add(1)
		if e.WorkerID == lastWorker {
			return
		}
	}
}

// lastWorker is a worker whose appearance is the last event of a run.
const lastWorker = "the last one"

// awaitEvents makes events until the watcher has one. From then on it can resume after its
// last event.
func (l *load) awaitEvents(ctx context.Context) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for i := 0; l.observed.Load() == 0; i++ {
		if _, err := l.patient.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: "watched-" + strconv.Itoa(i)}); err != nil {
			l.t.Fatal(err)
		}
		_ = backoff.Sleep(ctx, 10*time.Millisecond)
	}
}

// awaitLastEvent makes the event at which the watcher stops, and waits until it has. Without it the last events of rollouts may be missing.
func (l *load) awaitLastEvent(ctx context.Context, watched <-chan struct{}) {
	l.t.Helper()
	if _, err := l.patient.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: lastWorker}); err != nil {
		l.t.Error(err)
	}
	select {
	case <-watched:
	case <-time.After(longest):
		l.t.Errorf("the last event has not come after %s", longest)
	}
}

// readers is the number of concurrent final reads.
const readers = 16

// recordFinal records the final state of everything.
func (l *load) recordFinal(ctx context.Context) {
	l.t.Helper()
	rollouts := make(chan agl.AttemptedRollout, readers)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for r := range rollouts {
				_ = l.recorder.Do("final", history.FinalRollout, history.Args{Rollout: r.RolloutID}, func() (history.Reply, error) {
					return l.everythingOf(ctx, &r)
				})
			}
		})
	}
	const limit = 1000
	for offset := 0; ; offset += limit {
		page, err := l.patient.QueryRollouts(ctx, agl.QueryRolloutsParams{Paging: agl.Paging{Limit: limit, Offset: offset}})
		if err != nil {
			l.t.Errorf("final rollouts: %v", err)
		}
		for _, r := range page.Items {
			rollouts <- r
		}
		if offset+limit >= page.Total {
			break
		}
	}
	close(rollouts)
	wg.Wait()
	for _, id := range l.resources {
		u, err := l.patient.GetResources(ctx, agl.GetResourcesParams{ResourcesID: id})
		if errors.Is(err, agl.ErrNotFound) {
			continue // the judge knows whether they were ever made
		}
		if err != nil {
			l.t.Errorf("final resources: %v", err)
			continue
		}
		prompt, err := u.Resources.PromptTemplate()
		if err != nil {
			l.t.Errorf("final resources: %v", err)
		}
		n, err := strconv.ParseInt(prompt.Template, 10, 64)
		if err != nil {
			l.t.Errorf("final resources: %v", err)
		}
		l.recorder.Saw("final", history.FinalResources, history.Args{Resources: id}, history.Reply{Version: u.Version, Mark: n})
	}
}

func (l *load) everythingOf(ctx context.Context, r *agl.AttemptedRollout) (history.Reply, error) {
	reply := history.Reply{Rollouts: []history.Rollout{sawRollout(&r.Rollout, r.Attempt)}}
	attempts, err := l.patient.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: r.RolloutID})
	if err != nil {
		return reply, err
	}
	for i := range attempts.Items {
		reply.Attempts = append(reply.Attempts, *sawAttempt(&attempts.Items[i]))
	}
	spans, err := l.patient.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID})
	if err != nil {
		return reply, err
	}
	for i := range spans.Items {
		reply.Spans = append(reply.Spans, sawSpan(&spans.Items[i]))
	}
	return reply, nil
}
