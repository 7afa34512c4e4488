package baseline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// Verbosity says how much of a span is logged.
type Verbosity string

// The verbosities.
const (
	SpanKeys      Verbosity = "keys"       // name and attribute names
	SpanKeyValues Verbosity = "key_values" // name and attributes
	SpanNone      Verbosity = "none"       // nothing
)

// ResourcesID is the id under which the initial resources are stored.
const ResourcesID = "default"

// Config configures [New]. Every field may be zero.
type Config struct {
	// Epochs is how often the datasets are gone through; zero means 1.
	Epochs int
	// MaxQueueLength is how many rollouts may wait to be claimed before another is
	// enqueued; zero means 4.
	MaxQueueLength int
	// SpanVerbosity says how much of a span is logged; empty means keys.
	SpanVerbosity Verbosity
	// Adapter makes triplets of a rollout's spans; nil means
	// adapter.TracerTriplets{}.
	Adapter agl.Adapter[[]adapter.Triplet]
	// Rollout bounds each attempt. Its zero value is one attempt without any limit.
	Rollout agl.RolloutConfig
	// Flusher is called before spans are read; nil means that nothing records late.
	Flusher algorithm.Flusher
	// OutDir gets metrics.jsonl, one line per finished task, and a later run of the
	// same Config leaves out the tasks that have one; empty means neither.
	OutDir string
	// Progress is called as tasks finish, never concurrently, and once at the start
	// of a run that goes on from an earlier one; nil does nothing.
	Progress func(Finished)
	// Logger gets what the agent did, at level info; nil discards it.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Epochs == 0 {
		c.Epochs = 1
	}
	if c.MaxQueueLength == 0 {
		c.MaxQueueLength = 4
	}
	if c.SpanVerbosity == "" {
		c.SpanVerbosity = SpanKeys
	}
	if c.Adapter == nil {
		c.Adapter = adapter.TracerTriplets{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = func(Finished) {}
	}
	c.Rollout = c.Rollout.WithDefaults()
	return c
}

func (c Config) validate() error {
	switch {
	case c.Epochs < 1:
		return agl.Errorf(agl.CodeInvalid, "baseline: Epochs is %d, must be at least 1", c.Epochs)
	case c.MaxQueueLength < 1:
		return agl.Errorf(agl.CodeInvalid, "baseline: MaxQueueLength is %d, must be at least 1", c.MaxQueueLength)
	}
	switch c.SpanVerbosity {
	case SpanKeys, SpanKeyValues, SpanNone:
	default:
		return agl.Errorf(agl.CodeInvalid, "baseline: SpanVerbosity is %q; allowed are %q, %q and %q", c.SpanVerbosity, SpanKeys, SpanKeyValues, SpanNone)
	}
	if err := c.Rollout.Validate(); err != nil {
		return agl.Errorf(agl.CodeInvalid, "baseline: Rollout: %w", err)
	}
	return nil
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

// Report is what a run saw.
type Report struct {
	Train, Val Counts
}

// Counts is what a run saw of one dataset, over all epochs.
type Counts struct {
	Rollouts int `json:"rollouts"`
	Attempts int `json:"attempts"`
	// Outcomes counts the rollouts by how their latest attempt ended.
	Outcomes map[agl.OutcomeKind]int `json:"outcomes"`
	Spans    int                     `json:"spans"`    // of the latest attempts
	Triplets int                     `json:"triplets"` // that the adapter made of them
	// Rewarded rollouts have a reward; RewardMean is over these.
	Rewarded   int     `json:"rewarded"`
	RewardMean float64 `json:"reward_mean"`
}

// Report returns what the last Run saw, also when it ended with an error. It
// must not be called while one is running.
func (b *Baseline) Report() Report { return b.report }

// Run stores the initial resources and runs the tasks of the train dataset and
// then of the validation dataset, as often as Config.Epochs says, never letting
// the queue grow beyond Config.MaxQueueLength, and returns when all rollouts have
// finished. It needs runners that take the rollouts and at least one task. What a
// run before has done in Config.OutDir is counted and not done again; results of
// other tasks there are agl.ErrConflict. A rollout that fails is counted and no error. When ctx ends, Run returns its
// error, and rollouts that are outstanding are cancelled in the store.
func (b *Baseline) Run(ctx context.Context, in agl.AlgorithmInput) error {
	b.report = Report{Train: Counts{Outcomes: map[agl.OutcomeKind]int{}}, Val: Counts{Outcomes: map[agl.OutcomeKind]int{}}}
	if in.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "baseline: the input has no store")
	}
	if length(in.Train)+length(in.Val) == 0 {
		return agl.Errorf(agl.CodeInvalid, "baseline: the datasets are empty; at least one task is needed")
	}
	_, err := in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: ResourcesID, Resources: in.InitialResources})
	if err != nil {
		return fmt.Errorf("baseline: store initial resources: %w", err)
	}
	err = b.run(ctx, in)
	b.report.Train.finish()
	b.report.Val.finish()
	if err != nil {
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

// finish turns the sum of rewards into their mean.
func (c *Counts) finish() {
	if c.Rewarded > 0 {
		c.RewardMean /= float64(c.Rewarded)
	}
}

// run enqueues everything and returns when it is read, or at the first error.
func (b *Baseline) run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	journal, done, err := openJournal(b.cfg.OutDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.close()) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{
		Baseline: b, store: in.Store, stop: stop, changed: make(chan struct{}, 1), journal: journal,
		earlier: make(map[place]string, len(done)),
		now:     Finished{Total: b.cfg.Epochs * (length(in.Train) + length(in.Val))},
	}
	r.goOn(done)

	eventsCtx, stopEvents := context.WithCancel(ctx)
	var events sync.WaitGroup
	events.Go(func() { r.followEvents(eventsCtx) })
	if err := r.enqueueAll(ctx, in); err != nil {
		stop(err)
	}
	r.rollouts.Wait()
	err = context.Cause(ctx) // before the events are told to end
	stopEvents()
	events.Wait()
	return err
}

// run is one Run.
type run struct {
	*Baseline

	store    agl.Store
	stop     context.CancelCauseFunc // ends everything because of an error
	rollouts sync.WaitGroup          // those that are being waited for
	changed  chan struct{}           // something happened that may have made room in the queue

	journal *journal
	earlier map[place]string // tasks that were done before, with their hashes

	mu  sync.Mutex // guards report and what follows
	now Finished   // how the run stands
}

// goOn counts what earlier runs have done.
func (r *run) goOn(done []Finished) {
	for i := range done {
		if _, again := r.earlier[done[i].place()]; again {
			continue
		}
		r.earlier[done[i].place()] = done[i].Task
		r.count(&done[i])
	}
	r.now.Earlier = r.now.Done
	if r.now.Done > 0 {
		r.cfg.Logger.Info("goes on from earlier results", "tasks", r.now.Done, "of", r.now.Total)
		r.cfg.Progress(r.now)
	}
}

// followEvents wakes whoever waits for room in the queue.
func (r *run) followEvents(ctx context.Context) {
	for event, err := range r.store.Events(ctx, agl.EventsParams{}) {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.stop(fmt.Errorf("follow the store's events: %w", err))
			return
		}
		switch event.Kind {
		case agl.EventRollout, agl.EventAttempt, agl.EventReset:
			r.wake()
		case agl.EventQueue, agl.EventResources, agl.EventWorker:
		}
	}
}

func (r *run) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// enqueueAll enqueues every task, waiting for room before each.
func (r *run) enqueueAll(ctx context.Context, in agl.AlgorithmInput) error {
	for epoch := range r.cfg.Epochs {
		for _, part := range []struct {
			data agl.Dataset
			mode agl.Mode
		}{{in.Train, agl.ModeTrain}, {in.Val, agl.ModeVal}} {
			for i := range length(part.data) {
				task, err := part.data.Task(i)
				if err != nil {
					return fmt.Errorf("read %s dataset: %w", part.mode, err)
				}
				at := place{epoch + 1, part.mode, i}
				if hash, ok := r.earlier[at]; ok {
					if hash != taskHash(task) {
						return agl.Errorf(agl.CodeConflict, "task %d of the %s dataset is not the one of which %s has the result; use another directory",
							i, part.mode, filepath.Join(r.cfg.OutDir, metricsFile))
					}
					continue
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
func (r *run) enqueue(ctx context.Context, task jsontext.Value, at place) error {
	if err := r.waitForRoom(ctx); err != nil {
		return err
	}
	config := r.cfg.Rollout
	queued, err := r.store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{
		Input: task, Mode: at.mode, ResourcesID: agl.Some(ResourcesID), Config: &config,
	}}})
	if err != nil {
		return fmt.Errorf("enqueue a rollout: %w", err)
	}
	for _, rollout := range queued {
		r.rollouts.Go(func() {
			if err := r.follow(ctx, rollout.RolloutID, at); err != nil {
				r.stop(err)
			}
			r.wake()
		})
	}
	return nil
}

// waitForRoom returns when at most MaxQueueLength rollouts wait to be claimed.
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

// follow waits for a rollout and reads it. It cancels the rollout when it cannot.
func (r *run) follow(ctx context.Context, id string, at place) error {
	episodes, err := algorithm.Await(ctx, r.store, r.cfg.Flusher, []string{id})
	if err != nil {
		return errors.Join(err, algorithm.Cancel(ctx, r.store, []string{id}))
	}
	attempts, err := r.store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: id})
	if err != nil {
		return fmt.Errorf("read attempts of rollout %s: %w", id, err)
	}
	return r.see(ctx, at, &episodes[0], attempts.Items)
}
