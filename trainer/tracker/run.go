package tracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
)

// Run keeps the metrics in a store.
type Run struct {
	runs    agl.Runs
	started agl.Run
	stop    func()           // ends the heartbeats and waits for them
	unsent  []agl.RunMetrics // what the store has not taken yet, one for each step
	ended   bool             // the store knows that the run has ended
	failed  error            // the argument of the last Close, for CloseAgain
}

// NewRun starts the run, or goes on with it if the store has it.
func NewRun(ctx context.Context, runs agl.Runs, p agl.StartRunParams) (*Run, error) {
	started, err := runs.StartRun(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("start the run in the store: %w", err)
	}
	return &Run{runs: runs, started: started, stop: func() {}}, nil
}

const (
	heartbeatInterval = 20 * time.Second
	// silentAfter is how long a run may send nothing before it counts as ended: its process was killed.
	silentAfter = time.Minute
)

// Exclusive is a member of the metadata of runs that must be [Run.Alone] in their store. Other programs start runs to keep metrics.
const Exclusive = "exclusive"

// Output is a member of the metadata of runs: the absolute path of the output folder.
const Output = "output"

// NotElsewhere returns agl.ErrConflict if a run is under way with another output folder: its folder was copied, and the processes of
// both would cancel each other's rollouts. now is this machine's time; if it is off by a minute, the run counts as ended.
func NotElsewhere(ctx context.Context, runs agl.Runs, runID, output string, now time.Time) error {
	run, err := runs.GetRun(ctx, runID)
	if errors.Is(err, agl.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the run in the store: %w", err)
	}
	ago, other := now.Sub(run.UpdateTime.Time()), member(&run, Output)
	if run.Status != agl.RunRunning || !isExclusive(&run) || other == output || ago.Abs() >= silentAfter {
		return nil
	}
	return agl.Errorf(agl.CodeConflict, "run %s is under way with the output folder %v, and was heard from %s ago; this folder, %s, is a copy of it or was moved: "+
		"wait for the end of that process, or start a new run; if the process was killed, it counts as ended after a minute",
		runID, other, max(ago, 0).Round(time.Second), output)
}

// Alone returns agl.ErrConflict, and ends this run, if another exclusive one is under way in the store: runners of both would take
// rollouts from one queue, and the first run to end would close it. Of two new runs that start at the same time the first one goes on:
// it is the one that the other sees. A new run is deleted from the store; one that it already had ends with outcome of the error that is
// returned.
func (r *Run) Alone(ctx context.Context, outcome func(error) error) error {
	err := r.findOther(ctx)
	if err == nil {
		return nil
	}
	c, cancel := execution.CleanupContext(ctx, lineTime)
	defer cancel()
	if r.started.StartTime == r.started.UpdateTime { // the store did not have it
		return errors.Join(err, r.runs.DeleteRun(c, r.ID()))
	}
	return errors.Join(err, r.Close(c, outcome(err)))
}

// findOther compares times of the store alone: clocks differ.
func (r *Run) findOther(ctx context.Context) error {
	now := r.started.UpdateTime
	others, err := UnderWay(ctx, r.runs, now.Time())
	if err != nil {
		return fmt.Errorf("look for other runs in the store: %w", err)
	}
	for i := range others {
		other := &others[i]
		if other.RunID == r.ID() || other.StartTime > now {
			continue
		}
		return agl.Errorf(agl.CodeConflict, "the store has run %s (%s) under way, which was heard from %s ago, and takes one run at a time: "+
			"wait for its end, or give each run a project (agl project create NAME prints the URL of one); if its process was killed, it counts as ended after a minute",
			other.RunID, cmp.Or(other.Name, other.Algorithm), max(now.Time().Sub(other.UpdateTime.Time()), 0).Round(time.Second))
	}
	return nil
}

// UnderWay returns the runs that must be alone in their store and were heard from within the minute before now, those that started
// last first.
func UnderWay(ctx context.Context, runs agl.Runs, now time.Time) ([]agl.Run, error) {
	page, err := runs.QueryRuns(ctx, agl.QueryRunsParams{})
	if err != nil {
		return nil, err
	}
	var found []agl.Run
	for i := range page.Items {
		if run := &page.Items[i]; run.Status == agl.RunRunning && now.Sub(run.UpdateTime.Time()) < silentAfter && isExclusive(run) {
			found = append(found, *run)
		}
	}
	return found, nil
}

func isExclusive(run *agl.Run) bool { return member(run, Exclusive) == true }

// member returns a member of a run's metadata, nil if there is none.
func member(run *agl.Run, name string) any {
	var metadata map[string]any
	if json.Unmarshal(run.Metadata, &metadata) != nil {
		return nil
	}
	return metadata[name]
}

// Heartbeat tells the store that the run is under way, until Close.
func (r *Run) Heartbeat(ctx context.Context, logger *slog.Logger) {
	r.stop = background.Start(ctx, func(ctx context.Context) {
		heard := r.started.UpdateTime
		for backoff.Sleep(ctx, heartbeatInterval) == nil {
			run, err := r.runs.UpdateRun(ctx, agl.UpdateRunParams{RunID: r.ID()})
			switch silent := run.UpdateTime.Time().Sub(heard.Time()); {
			case err == nil && silent >= silentAfter && isExclusive(&run):
				r.warnOfOthers(ctx, logger, run.UpdateTime.Time(), silent)
			case err != nil && ctx.Err() == nil:
				logger.WarnContext(ctx, "the store does not hear that the run is under way", "run_id", r.ID(), "error", err)
			}
			if err == nil {
				heard = run.UpdateTime
			}
		}
	})
}

// warnOfOthers names the runs that were started while this one counted as ended: its process was suspended, or its store away.
func (r *Run) warnOfOthers(ctx context.Context, logger *slog.Logger, now time.Time, silent time.Duration) {
	others, err := UnderWay(ctx, r.runs, now)
	if err != nil {
		logger.WarnContext(ctx, "the store does not say which runs are under way", "error", err)
	}
	for i := range others {
		if other := &others[i]; other.RunID != r.ID() {
			logger.WarnContext(ctx, "another run was started in the store while it did not hear from this one; runners of both take rollouts from one queue, which the first to end closes: end one of them",
				"other", other.RunID, "name", cmp.Or(other.Name, other.Algorithm), "silent", silent.Round(time.Second))
		}
	}
}

// ID returns the id of the run.
func (r *Run) ID() string { return r.started.RunID }

// maxUnsent bounds the steps that wait while the store is away. Of more, the oldest are given up.
const maxUnsent = agl.MaxRunSteps

// Log implements [Tracker]. What a store that is away has not taken is sent again with the next line, and by Close.
func (r *Run) Log(ctx context.Context, line []agl.RunMetrics) error {
	for _, one := range line {
		i := slices.IndexFunc(r.unsent, func(m agl.RunMetrics) bool { return m.Step == one.Step })
		if i < 0 {
			r.unsent = append(r.unsent, one)
		} else {
			maps.Copy(r.unsent[i].Values, one.Values)
		}
	}
	r.unsent = r.unsent[max(0, len(r.unsent)-maxUnsent):]
	err := r.send(ctx)
	if len(r.unsent) > 0 {
		return fmt.Errorf("store: %w; what it lacks is sent again with the next step", err)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// send sends the steps one by one where the store refuses them together: one that it refuses must not take the others with it. What
// is unsent afterwards may be taken later.
func (r *Run) send(ctx context.Context) error {
	err := r.add(ctx, r.unsent)
	switch {
	case mayPass(err):
		return err
	case err == nil || len(r.unsent) == 1:
		r.unsent = nil
		return err
	}
	var refused error
	for len(r.unsent) > 0 {
		err := r.add(ctx, r.unsent[:1])
		if refused = errors.Join(refused, err); mayPass(err) {
			break
		}
		r.unsent = r.unsent[1:]
	}
	return refused
}

func (r *Run) add(ctx context.Context, steps []agl.RunMetrics) error {
	_, err := r.runs.AddRunMetrics(ctx, agl.AddRunMetricsParams{RunID: r.ID(), Metrics: steps})
	return err
}

// mayPass reports whether the store may take later what it has not taken.
func mayPass(err error) bool { return agl.Transient(err) || agl.IsContextError(err) }

// CloseAgain ends a run that Close could not end because the store was away. It tries until ctx ends, which must have a deadline.
// Without it the run would stay running in the store for ever.
func (r *Run) CloseAgain(ctx context.Context) error {
	for !r.ended {
		if len(r.unsent) > 0 {
			_ = r.send(ctx) // Close has said what the store lacks
		}
		err := r.end(ctx)
		if errors.Is(err, agl.ErrNotFound) {
			return nil // who deleted the run wants no end of it
		}
		if err != nil && (!mayPass(err) || backoff.Sleep(ctx, closeInterval) != nil) {
			return err
		}
	}
	return nil
}

// closeInterval is the interval at which a store that is away is told of the end of a run.
const closeInterval = time.Second

// Close implements [Tracker].
func (r *Run) Close(ctx context.Context, failed error) error {
	r.stop()
	r.failed = failed
	var unlogged error
	if steps := len(r.unsent); steps > 0 {
		if err := r.send(ctx); err != nil {
			unlogged = fmt.Errorf("the store lacks metrics of the last %d steps, which metrics.jsonl has: %w", steps, err)
		}
	}
	return errors.Join(unlogged, r.end(ctx))
}

// end tells the store how the run has ended.
func (r *Run) end(ctx context.Context) error {
	status, message := agl.RunFinished, ""
	if r.failed != nil {
		status, message = agl.RunFailed, r.failed.Error()
		if _, interrupted := errors.AsType[*execution.InterruptError](r.failed); interrupted || agl.IsContextError(r.failed) {
			status = agl.RunInterrupted
		}
	}
	const most = 5000 // bytes; a store takes no longer ones
	message = strings.ToValidUTF8(message[:min(len(message), most)], "")
	if _, err := r.runs.UpdateRun(ctx, agl.UpdateRunParams{RunID: r.ID(), Status: &status, Error: &message}); err != nil {
		return fmt.Errorf("end the run in the store: %w", err)
	}
	r.ended = true
	return nil
}
