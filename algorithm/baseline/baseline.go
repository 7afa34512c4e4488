package baseline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/changes"
	"github.com/agl-go/agl/internal/panics"
)

// ResourcesID is the id under which the initial resources are stored.
const ResourcesID = "default"

// Config configures [New]. Every field may be zero.
type Config struct {
	// RunConfig.OutDir gets metrics.jsonl, one line per finished task; a later run of the same Config skips the tasks that
	// have one. Attempts have no limits unless Rollout sets some. The seed of each rollout is derived from Seed. Progress is not used.
	algorithm.RunConfig

	// Epochs is the number of passes over the datasets; zero means 1.
	Epochs int
	// MaxQueueLength is the number of rollouts that may wait to be claimed before another is enqueued; zero means 4.
	MaxQueueLength int
	// SpanVerbosity is how much of a span is logged; empty means keys.
	SpanVerbosity Verbosity
	// Adapter makes triplets of a rollout's spans; nil means adapter.TracerTriplets{}.
	Adapter agl.Adapter[[]adapter.Triplet]
	// OnTask is called as tasks finish, one call at a time, and once at the start of a run that resumes; nil does nothing.
	OnTask func(Finished)
}

func (c Config) withDefaults() Config {
	rollout := c.Rollout.WithDefaults()
	c.RunConfig = c.WithDefaults()
	c.Rollout = rollout
	c.Epochs = cmp.Or(c.Epochs, 1)
	c.MaxQueueLength = cmp.Or(c.MaxQueueLength, 4)
	c.SpanVerbosity = cmp.Or(c.SpanVerbosity, SpanKeys)
	if c.Adapter == nil {
		c.Adapter = adapter.TracerTriplets{}
	}
	if c.OnTask == nil {
		c.OnTask = func(Finished) {}
	}
	return c
}

// maxEpochs bounds the epochs, so that the number of all rollouts fits into an int.
const maxEpochs = 1_000_000_000

func (c Config) validate() error {
	if err := cmp.Or(c.Validate(), algorithm.AtLeast(
		algorithm.Minimum{Field: "Epochs", Value: c.Epochs, Least: 1},
		algorithm.Minimum{Field: "MaxQueueLength", Value: c.MaxQueueLength, Least: 1},
	), algorithm.AtMost(maxEpochs, algorithm.Factor{Field: "Epochs", Value: c.Epochs})); err != nil {
		return agl.Errorf(agl.CodeInvalid, "baseline: %w", err)
	}
	switch c.SpanVerbosity {
	case SpanKeys, SpanKeyValues, SpanNone:
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "baseline: SpanVerbosity is %q; allowed are %q, %q and %q", c.SpanVerbosity, SpanKeys, SpanKeyValues, SpanNone)
}

// Baseline is the algorithm. Make it with [New].
type Baseline struct {
	cfg    Config
	report Report
}

var _ agl.Algorithm = (*Baseline)(nil)

// New makes the algorithm. A Config out of range is agl.ErrInvalid.
func New(cfg Config) (*Baseline, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Baseline{cfg: cfg}, nil
}

// Report is the result of a run.
type Report struct {
	Train, Val Counts
}

// Counts is the result for one dataset, over all epochs.
type Counts struct {
	Rollouts int `json:"rollouts"`
	Attempts int `json:"attempts"`
	// Outcomes counts the rollouts by the outcome of their latest attempt.
	Outcomes map[agl.OutcomeKind]int `json:"outcomes"`
	Spans    int                     `json:"spans"`    // of the latest attempts
	Triplets int                     `json:"triplets"` // that the adapter made of them
	// Rewarded rollouts have a reward; RewardMean is over these.
	Rewarded   int     `json:"rewarded"`
	RewardMean float64 `json:"reward_mean"`
}

// Report returns the result of the last Run, even if it failed. It must not be called during a Run.
func (b *Baseline) Report() Report { return b.report }

// Run stores the initial resources and runs the tasks of the train dataset and then of the validation dataset, Config.Epochs
// times, with at most Config.MaxQueueLength rollouts in the queue. It returns when all rollouts have finished. Runners must
// take the rollouts, and there must be at least one task. The tasks that an earlier run has done in Config.OutDir are
// counted and not repeated; results of other tasks there are agl.ErrConflict. A rollout that fails is counted and is not an
// error. When ctx ends, Run returns its error, and outstanding rollouts are cancelled in the store.
func (b *Baseline) Run(ctx context.Context, in agl.AlgorithmInput) error {
	b.report = Report{Train: Counts{Outcomes: map[agl.OutcomeKind]int{}}, Val: Counts{Outcomes: map[agl.OutcomeKind]int{}}}
	if in.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "baseline: the input has no store")
	}
	if length(in.Train)+length(in.Val) == 0 {
		return agl.Errorf(agl.CodeInvalid, "baseline: the datasets are empty; at least one task is required")
	}
	if err := b.run(ctx, in); err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	return nil
}

func length(d agl.Dataset) int {
	if d == nil {
		return 0
	}
	return d.Len()
}

// run enqueues all tasks and returns when the rollouts are read, or at the first error.
func (b *Baseline) run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	metrics, done, err := openMetrics(b.cfg.OutDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, metrics.Close()) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{
		rewards:  map[agl.Mode]float64{},
		Baseline: b, store: in.Store, stop: stop, changed: make(chan struct{}, 1), metrics: metrics,
		earlier: make(map[position]bool, len(done)),
		now:     Finished{Total: b.cfg.Epochs * (length(in.Train) + length(in.Val))}, resources: resourcesHash(in.InitialResources),
	}
	if err := r.checkEarlier(in, done); err != nil {
		return err
	}
	if _, err := in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: ResourcesID, Resources: in.InitialResources}); err != nil {
		return fmt.Errorf("store initial resources: %w", err)
	}
	if b.cfg.RunID != "" {
		if err := algorithm.CancelRun(ctx, in.Store, b.cfg.RunID); err != nil {
			return err
		}
	}
	r.resume(done)

	stopEvents := background.Start(ctx, r.followEvents)
	if err := r.enqueueAll(ctx, in); err != nil {
		stop(err)
	}
	r.rollouts.Wait()
	err = context.Cause(ctx) // before the events are stopped
	stopEvents()
	if err == nil {
		err = b.tellMetrics(ctx)
	}
	return err
}

// tellMetrics reports the result of the run, as the metrics of its last epoch.
func (b *Baseline) tellMetrics(ctx context.Context) error {
	if b.cfg.OnMetrics == nil {
		return nil
	}
	line := map[string]any{"step": b.cfg.Epochs}
	for prefix, c := range map[string]*Counts{"": &b.report.Train, "validation/": &b.report.Val} {
		if c.Rollouts > 0 {
			line[prefix+"rollouts"], line[prefix+"rewarded"] = c.Rollouts, c.Rewarded
		}
		if c.Rewarded > 0 {
			line[prefix+"reward_mean"] = c.RewardMean
		}
	}
	data, err := json.Marshal(line, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode metrics: %w", err)
	}
	b.cfg.OnMetrics(ctx, data)
	return nil
}

// metadata says which run and epoch a rollout belongs to; nil in a run without an id.
func (r *run) metadata(at position) (jsontext.Value, error) {
	if r.cfg.RunID == "" {
		return nil, nil
	}
	data, err := json.Marshal(algorithm.Tag{Algorithm: "baseline", Run: r.cfg.RunID, Step: at.epoch, Index: at.index, Seed: algorithm.DeriveSeed(r.cfg.Seed, "baseline "+string(at.mode), at.epoch, at.index)})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return data, nil
}

// run is one Run.
type run struct {
	*Baseline

	store    agl.Store
	stop     context.CancelCauseFunc // ends everything with an error
	rollouts sync.WaitGroup          // that are awaited
	changed  chan struct{}           // the queue may have room
	metrics  *algorithm.Lines
	earlier  map[position]bool // tasks that were done before
	// resources is a hash of those of the run.
	resources string

	mu      sync.Mutex           // guards the report, and:
	now     Finished             // the totals so far
	rewards map[agl.Mode]float64 // their sums, which depend less on the order of rollouts than running means
}

// checkEarlier refuses to go on where what was done belongs to other tasks, or was done under other conditions.
func (r *run) checkEarlier(in agl.AlgorithmInput, done []Finished) error {
	refuse := func(line int, format string, args ...any) error {
		return agl.Errorf(agl.CodeConflict, "line %d of %s: %s; use the same settings or another directory", line+1, filepath.Join(r.cfg.OutDir, metricsFile), fmt.Sprintf(format, args...))
	}
	for i, one := range done {
		data := in.Train
		if one.Mode == agl.ModeVal {
			data = in.Val
		}
		switch {
		case one.Epoch > r.cfg.Epochs:
			return refuse(i, "epoch %d was begun, and there are %d now", one.Epoch, r.cfg.Epochs)
		case one.Index < 0 || one.Index >= length(data):
			return refuse(i, "task %d of the %s dataset was done, which has %d tasks now", one.Index, one.Mode, length(data))
		case one.Seed.Valid && one.Seed.V != r.cfg.Seed:
			return refuse(i, "the seed was %d, it is %d now", one.Seed.V, r.cfg.Seed)
		case one.Resources != "" && one.Resources != r.resources:
			return refuse(i, "the prompts or the sampling parameters were others")
		}
		task, err := data.Task(one.Index)
		if err != nil {
			return fmt.Errorf("read %s dataset: %w", one.Mode, err)
		}
		if taskHash(task) != one.Task {
			return refuse(i, "task %d of the %s dataset was another", one.Index, one.Mode)
		}
	}
	return nil
}

// resume counts what earlier runs have done.
func (r *run) resume(done []Finished) {
	for i := range done {
		if r.earlier[done[i].position()] {
			continue
		}
		r.earlier[done[i].position()] = true
		r.count(&done[i])
	}
	r.now.Earlier = r.now.Done
	if r.now.Done > 0 {
		r.cfg.Logger.Info("the run resumes", "tasks_done", r.now.Done, "tasks", r.now.Total)
		r.cfg.OnTask(r.now)
	}
}

// followEvents wakes waitForRoom.
func (r *run) followEvents(ctx context.Context) {
	for event, err := range changes.Follow(ctx, r.store, agl.EventsParams{}) {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.stop(fmt.Errorf("follow the store's events: %w", err))
			return
		}
		switch event.Kind {
		case agl.EventRollout, agl.EventAttempt, agl.EventReset:
			background.Wake(r.changed)
		case agl.EventQueue, agl.EventResources, agl.EventWorker:
		}
	}
}

// enqueueAll enqueues every task. Before each it waits for room.
func (r *run) enqueueAll(ctx context.Context, in agl.AlgorithmInput) error {
	for epoch := range r.cfg.Epochs {
		for _, part := range []struct {
			data agl.Dataset
			mode agl.Mode
		}{{in.Train, agl.ModeTrain}, {in.Val, agl.ModeVal}} {
			for i := range length(part.data) {
				at := position{epoch + 1, part.mode, i}
				if r.earlier[at] {
					continue
				}
				task, err := part.data.Task(i)
				if err != nil {
					return fmt.Errorf("read %s dataset: %w", part.mode, err)
				}
				if err := r.enqueue(ctx, task, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// enqueue waits for room, enqueues one rollout, and reads it in the background.
func (r *run) enqueue(ctx context.Context, task jsontext.Value, at position) error {
	if err := r.waitForRoom(ctx); err != nil {
		return err
	}
	metadata, err := r.metadata(at)
	if err != nil {
		return err
	}
	config := r.cfg.Rollout
	queued, err := r.store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{
		Input: task, Mode: at.mode, ResourcesID: agl.Some(ResourcesID), Config: &config, Metadata: metadata,
	}}})
	if err != nil {
		return fmt.Errorf("enqueue a rollout: %w", err)
	}
	for _, rollout := range queued {
		r.rollouts.Go(func() {
			err := panics.Catch(func() error { return r.follow(ctx, rollout.RolloutID, taskHash(task), at) })
			if err != nil {
				r.stop(panics.Located(err)) // also of a panic of the adapter, or of OnTask
			}
			background.Wake(r.changed)
		})
	}
	return nil
}

// waitForRoom returns when fewer than MaxQueueLength rollouts wait to be claimed.
func (r *run) waitForRoom(ctx context.Context) error {
	for {
		page, err := r.store.QueryRollouts(ctx, agl.QueryRolloutsParams{
			StatusIn: []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRequeuing}, Paging: agl.Paging{Limit: 1},
		})
		if err != nil {
			return fmt.Errorf("count queued rollouts: %w", err)
		}
		if page.Total < r.cfg.MaxQueueLength {
			return nil
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow waits for a rollout and reads it. If it fails it cancels the rollout.
func (r *run) follow(ctx context.Context, id, task string, at position) error {
	episodes, err := algorithm.Await(ctx, r.store, r.cfg.Flusher, nil, []string{id})
	if err != nil {
		return errors.Join(err, algorithm.Cancel(ctx, r.store, []string{id}))
	}
	attempts, err := r.store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: id})
	if err != nil {
		return fmt.Errorf("read attempts of rollout %q: %w", id, err)
	}
	return r.finish(ctx, task, at, &episodes[0], attempts.Items)
}

// finish records, counts and logs a finished rollout. One that was deleted meanwhile has no task of its own any more.
func (r *run) finish(ctx context.Context, task string, at position, e *algorithm.Episode, attempts []agl.Attempt) error {
	log := r.cfg.Logger.With("rollout_id", e.Rollout.RolloutID, "mode", string(at.mode))
	triplets, err := r.cfg.Adapter.Adapt(e.Spans)
	if err != nil {
		// A trace without spans has no tree, which is not worth a warning.
		if len(e.Spans) > 0 {
			log.WarnContext(ctx, "the trace cannot be adapted", "error", err)
		}
		triplets = nil
	}
	reward, mask := e.Score()
	one := Finished{
		Epoch: at.epoch, Mode: at.mode, Index: at.index, Task: task, Resources: r.resources, Seed: agl.Some(r.cfg.Seed), RolloutID: e.Rollout.RolloutID,
		Attempts: len(attempts), Outcome: e.Outcome.Kind, Mask: mask, Spans: len(e.Spans), Triplets: len(triplets),
	}
	if mask == "" {
		one.Reward = agl.Some(reward)
	}
	if err := r.metrics.Append(one); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	r.count(&one)
	logRollout(ctx, log, r.cfg.SpanVerbosity, e, &one, attempts, triplets)
	return nil
}

// count adds a task to the report. It calls OnTask unless the task was done before.
func (r *run) count(f *Finished) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.report.Train
	if f.Mode == agl.ModeVal {
		c = &r.report.Val
	}
	c.Rollouts++
	c.Attempts += f.Attempts
	c.Outcomes[f.Outcome]++
	c.Spans += f.Spans
	c.Triplets += f.Triplets
	r.now.Done++
	if f.Outcome != agl.OutcomeOK {
		r.now.Failed++
	}
	if f.Reward.Valid {
		c.Rewarded++
		r.now.Rewarded++
		r.rewards[f.Mode] += f.Reward.V
		c.RewardMean = r.rewards[f.Mode] / float64(c.Rewarded)
		r.now.RewardMean = (r.rewards[agl.ModeTrain] + r.rewards[agl.ModeVal]) / float64(r.now.Rewarded)
	}
	if _, before := r.earlier[f.position()]; before {
		return
	}
	one := *f
	one.Done, one.Total, one.Earlier = r.now.Done, r.now.Total, r.now.Earlier
	one.Failed, one.Rewarded, one.RewardMean = r.now.Failed, r.now.Rewarded, r.now.RewardMean
	r.cfg.OnTask(one)
}
