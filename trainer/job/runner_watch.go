package job

import (
	"context"
	"fmt"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/trainer/display"
)

// runnerWatch says why a run waits for runners.
type runnerWatch struct {
	store agl.Store
	url   string // of the store
	// unresponsive is after what time the store ends an attempt without a heartbeat, if its rollout has no limit; 0 is unknown.
	unresponsive time.Duration
	notice       func(text string)
}

const (
	// runnerWait is how long rollouts wait for runners on other machines, and how long a runner may be silent, before there is a warning.
	// Runners send a heartbeat every 10 s.
	runnerWait    = 30 * time.Second
	watchInterval = 5 * time.Second
)

func (w *runnerWatch) count(ctx context.Context, status ...agl.RolloutStatus) (int, error) {
	page, err := w.store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: status, Paging: agl.Paging{Limit: 1}})
	return page.Total, err
}

// missing says once, each time that rollouts wait and no runner takes one, that runners are missing. It returns when ctx ends.
func (w *runnerWatch) missing(ctx context.Context) {
	before, idle := 0, time.Duration(0)
	for backoff.Sleep(ctx, watchInterval) == nil {
		waiting, err := w.count(ctx, agl.RolloutQueuing, agl.RolloutRequeuing)
		running, runningErr := w.count(ctx, agl.RolloutPreparing, agl.RolloutRunning)
		if err != nil || runningErr != nil || running > 0 || waiting == 0 || waiting < before { // the algorithm reports what is wrong with the store
			before, idle = waiting, 0
			continue
		}
		before = waiting
		if idle += watchInterval; idle == runnerWait+watchInterval { // the first interval may have begun long before the wait
			w.notice(fmt.Sprintf("warning: %d rollouts wait, and no runner has taken one for %s: start runners that use the store %s (agl train FILE --role runner, or agl runner)", waiting, runnerWait, w.url))
		}
	}
}

// silent says once of each rollout that its runner is no longer heard from. It looks only while the number of running rollouts stays the same:
// a runner that was killed holds its rollouts up until the store gives them to others. It returns when ctx ends.
func (w *runnerWatch) silent(ctx context.Context) {
	before, still := 0, time.Duration(0)
	var heard map[string]signs // by attempt
	told := map[string]bool{}  // by attempt
	for backoff.Sleep(ctx, watchInterval) == nil {
		running, err := w.count(ctx, agl.RolloutPreparing, agl.RolloutRunning)
		if still += watchInterval; err != nil || running == 0 || running != before {
			before, still = running, 0
			heard = nil
			continue
		}
		if still%runnerWait != 0 {
			continue
		}
		held, now, err := w.held(ctx, heard)
		if err != nil {
			continue
		}
		heard = now
		n := 0
		var first *agl.AttemptedRollout
		for i := range held {
			if id := held[i].Attempt.AttemptID; !told[id] {
				told[id] = true
				if n++; first == nil {
					first = &held[i]
				}
			}
		}
		if n > 0 {
			w.notice(fmt.Sprintf("warning: runners of %s were not heard from for %s, such as %s of %s; %s",
				display.Plural(n, "rollout"), runnerWait, first.Attempt.WorkerID.V, first.RolloutID, w.fate(&first.Rollout)))
		}
	}
}

// signs are when an attempt and its worker were heard from.
type signs struct {
	attempt agl.Timestamp
	worker  agl.Null[agl.Timestamp]
}

// held returns the rollouts of whose attempts and workers nothing was heard since before. Workers without heartbeats, which runners of
// other programs may be, are never silent.
func (w *runnerWatch) held(ctx context.Context, before map[string]signs) (silent []agl.AttemptedRollout, now map[string]signs, err error) {
	const most = 1000
	workers, err := w.store.QueryWorkers(ctx, agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{agl.WorkerBusy}, Paging: agl.Paging{Limit: most}})
	if err != nil {
		return nil, nil, err
	}
	beats := map[string]agl.Null[agl.Timestamp]{}
	for i := range workers.Items {
		beats[workers.Items[i].WorkerID] = workers.Items[i].LastHeartbeatTime
	}
	page, err := w.store.QueryRollouts(ctx, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}, Paging: agl.Paging{Limit: most},
	})
	if err != nil {
		return nil, nil, err
	}
	now = map[string]signs{}
	for _, r := range page.Items {
		if r.Attempt == nil || !r.Attempt.WorkerID.Valid { // a session of a service has no runner
			continue
		}
		id := r.Attempt.AttemptID
		now[id] = signs{r.Attempt.LastHeartbeatTime.Or(r.Attempt.StartTime), beats[r.Attempt.WorkerID.V]}
		if earlier, known := before[id]; known && earlier == now[id] && earlier.worker.Valid {
			silent = append(silent, r)
		}
	}
	return silent, now, nil
}

// fate says what becomes of a rollout whose runner has died.
func (w *runnerWatch) fate(r *agl.Rollout) string {
	limit, name := w.unresponsive, "store.unresponsive"
	if s := r.Config.UnresponsiveSeconds; s.Valid {
		limit, name = seconds(s.V), "agent.unresponsive"
	}
	if s := r.Config.TimeoutSeconds; s.Valid && (limit == 0 || seconds(s.V) < limit) {
		limit, name = seconds(s.V), "agent.timeout"
	}
	if limit == 0 {
		return fmt.Sprintf("if they have died, only a store with --default-unresponsive ends such attempts; agl cancel %s ends this one", r.RolloutID)
	}
	return fmt.Sprintf("if they have died, the store ends their attempts after %s (%s)", limit, name)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
