package sft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// SFT is the algorithm. Make it with [New].
type SFT struct {
	cfg     Config
	summary Summary
}

var _ agl.Algorithm = (*SFT)(nil)

// New makes the algorithm. A Config out of range is agl.ErrInvalid and names the field.
func New(cfg Config) (*SFT, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &SFT{cfg: cfg}, nil
}

// Summary returns the result of the last Run, even if it failed. It must not be called during a Run.
func (t *SFT) Summary() Summary { return t.summary }

// Run makes all rounds, those of a checkpoint in Config.OutDir included. Without Config.From it needs a train dataset, and
// runners must take the rollouts; it uses the validation dataset if there is one.
//
// When ctx ends, Run returns its error; outstanding rollouts are cancelled in the store. It makes a checkpoint of the steps done. A
// checkpoint of other settings or data is agl.ErrConflict. If none of the existing rollouts can be learned from,
// Run returns agl.ErrInvalid; if no rollout of a round counts, or every model call of one was recorded without token ids,
// agl.ErrIllegalState.
func (t *SFT) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	t.summary = Summary{}
	r := &run{cfg: t.cfg, in: in}
	defer func() {
		err = errors.Join(err, r.session.Close(context.WithoutCancel(ctx)))
		t.summary = Summary{Summary: r.session.Summary(), Loss: r.loss, Selected: r.own.Selected}
	}()
	if err := r.open(ctx); err != nil {
		return fmt.Errorf("sft: %w", err)
	}
	for r.session.Step < r.cfg.total() {
		round := r.session.Step / r.cfg.Steps
		if err := r.round(ctx, round); err != nil {
			return fmt.Errorf("sft: round %d: %w", round+1, err)
		}
	}
	return nil
}

// run is one Run.
type run struct {
	cfg      Config
	in       agl.AlgorithmInput
	session  *algorithm.Session
	stored   *Shuffled   // the rollouts of From; nil without it
	kept     []candidate // the rollouts of this round that are learned from; nil with From
	selected *Selected   // of this round, until it is reported
	spec     tinker.ModelSpec
	loss     float64
	own      state
}

// state has SFT's own members of a checkpoint.
type state struct {
	Selected *Selected `json:"selected"`
	// Rollouts are those of the round under way, in order, once all have finished.
	Rollouts []string `json:"rollouts,omitzero"`
	// Report is that of the last step if it was interrupted after the weights had changed.
	Report *Report `json:"report,omitzero"`
}

// open makes everything ready for the next round.
func (r *run) open(ctx context.Context) error {
	if r.cfg.From == nil {
		if r.in.Train == nil || r.in.Train.Len() == 0 {
			return agl.Errorf(agl.CodeInvalid, "the train dataset is empty; at least one task is required")
		}
		if err := algorithm.AtMost(algorithm.MaxRollouts, algorithm.Factor{Field: "tasks of a round", Value: r.tasks()}, algorithm.Factor{Field: "Samples", Value: r.cfg.Samples}); err != nil {
			return err
		}
	}
	can, err := algorithm.CheckEngine(ctx, r.cfg.Service, []tinker.LossName{tinker.CrossEntropy}, r.cfg.InitialWeights, r.cfg.Logger)
	if err != nil {
		return err
	}
	for i, m := range can.Models {
		if r.cfg.Model.BaseModel == m.Name || r.cfg.Model.BaseModel == "" && i == 0 {
			r.spec = m
		}
	}
	data, err := r.fingerprint(ctx)
	if err != nil {
		return err
	}
	r.session, err = algorithm.OpenSession(ctx, algorithm.SessionParams{
		Algorithm: "sft", Input: r.in, RunConfig: r.cfg.RunConfig, Training: r.cfg.TrainingConfig,
		Identity: r.cfg.identity(data), Steps: r.cfg.total(), State: func() (any, error) { return r.own, nil },
	})
	if err != nil {
		return err
	}
	if r.session.Resumed {
		if err := json.Unmarshal(r.session.Own, &r.own); err != nil {
			return fmt.Errorf("checkpoint of step %d: %w", r.session.Step, err)
		}
	}
	if r.session.Step > 0 {
		r.selected = nil // reported by the earlier process
	}
	err = r.session.Begin(ctx, func(v *algorithm.Report, took time.Duration) any {
		return Report{Steps: r.cfg.total(), Validation: v, ValidateSeconds: took.Seconds()}
	})
	if err != nil || r.own.Report == nil {
		return err
	}
	report := *r.own.Report
	r.own.Report, report.Steps = nil, r.cfg.total()
	return r.finish(ctx, report, false) // its weights have just been published
}

// fingerprint identifies the data. It reads From, if there is one.
func (r *run) fingerprint(ctx context.Context) (string, error) {
	if r.cfg.From == nil {
		data, err := algorithm.Fingerprint(r.in.Train)
		if err != nil {
			return "", fmt.Errorf("read train dataset: %w", err)
		}
		return data, nil
	}
	s := r.selector()
	for episode, err := range r.cfg.From(ctx) {
		if err != nil {
			return "", err
		}
		if usable(&episode.Rollout) {
			s.add(&episode)
		}
	}
	_, data, selected := s.data()
	if len(data) == 0 {
		return "", agl.Errorf(agl.CodeInvalid, "no stored rollout can be learned from: of %d that succeeded, %d are rejected for their rewards, and these cannot be used: %s",
			selected.Rollouts, selected.Rejected, algorithm.DescribeMasked(selected.Masked))
	}
	var err error
	if r.stored, err = NewShuffled(data, r.cfg.Batch, r.cfg.Seed); err != nil {
		return "", err
	}
	r.selected = &selected
	return r.stored.Fingerprint(), nil
}

func (r *run) selector() *selector {
	return &selector{filter: r.cfg.Filter, adapters: r.adapters(), context: r.spec.Context, vocab: r.spec.Vocab}
}

// adapters returns the adapters to try on a rollout, in order: the first that finds a call reads it. The default, adapter.Trajectories, reads
// only calls of the model in training. Rollouts of From may be of another model: one without a call of ModelName is read whole.
func (r *run) adapters() []agl.Adapter[adapter.Merged] {
	all, ok := r.cfg.Adapter.(adapter.Trajectories)
	if !ok || all.Keep != nil || r.cfg.From != nil && r.cfg.ModelName == "" {
		return []agl.Adapter[adapter.Merged]{r.cfg.Adapter}
	}
	own := all
	if r.cfg.From == nil {
		own.Keep = func(call adapter.Call) bool { return r.session.Calls.Owner(call) != algorithm.OwnerOther }
		return []agl.Adapter[adapter.Merged]{own}
	}
	own.Keep = func(call adapter.Call) bool { return call.Model == "" || call.Model == r.cfg.ModelName }
	return []agl.Adapter[adapter.Merged]{own, all}
}

// round runs a round, counted from 0, or the rest of one that resumes.
func (r *run) round(ctx context.Context, round int) error {
	source := r.stored
	if source == nil {
		var err error
		if source, err = r.sample(ctx, round); err != nil {
			return err
		}
	}
	s := r.session
	first := round * r.cfg.Steps
	train := &training{client: s.Model.TrainingClient, steps: r.cfg.total(), schedule: r.cfg.Schedule, adam: r.cfg.Adam}
	if len(r.kept) > 0 {
		train.learned = map[*int32]learned{}
	}
	for last := first + r.cfg.Steps; s.Step < last; {
		report := Report{Steps: r.cfg.total(), Round: round + 1, Selected: r.selected}
		if source == nil {
			s.Step = last - 1 // the steps of a round without data are skipped
		} else {
			step, err := train.step(ctx, s.Step, source, s.Step-first)
			if err != nil && ctx.Err() != nil && !train.dirty {
				s.Keep(ctx, r.own, false)
			}
			if err != nil {
				return err
			}
			report.Updates, report.Loss, report.LearningRate = 1, step.Loss, step.LearningRate
			report.GradNorm, report.Tokens, report.Seconds = step.GradNorm, step.Tokens, step.Duration.Seconds()
			r.loss = step.Loss
		}
		if r.selected != nil {
			r.own.Selected, r.selected = r.selected, nil
		}
		s.Step++
		if s.Step == last && len(r.kept) > 0 {
			s.KeepTrained(ctx, s.Step, r.trained(train.learned))
		}
		report.Step = s.Step
		if err := r.finish(ctx, report, source != nil); err != nil {
			return err
		}
	}
	return nil
}

// finish ends a step. After the last step of a round it publishes, if there is something to publish, validates and makes a checkpoint. If it
// is interrupted, the run that resumes does so.
func (r *run) finish(ctx context.Context, report Report, publish bool) (err error) {
	s, last := r.session, r.session.Step%r.cfg.Steps == 0
	if last {
		r.own.Rollouts = nil
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			own := r.own
			own.Report = &report
			s.Keep(ctx, own, true)
		}
	}()
	if last && publish {
		if err := s.Publish(ctx, s.Step); err != nil {
			return err
		}
	}
	if last && report.Validation == nil { // not interrupted after it
		var took time.Duration
		if report.Validation, took, err = s.Validate(ctx, algorithm.Tag{Step: s.Step, Round: report.Round}); err != nil {
			return err
		}
		report.ValidateSeconds = took.Seconds()
	}
	if err := s.Commit(ctx, last || s.Step%r.cfg.CheckpointEvery == 0, func(time.Duration) any { return report }); err != nil {
		return err
	}
	r.cfg.OnStep(report)
	return nil
}

// finished reads the rollouts of a round that was interrupted when they had all finished; nil if there are none, or not any more.
func (r *run) finished(ctx context.Context, round int) ([]algorithm.Episode, error) {
	ids := r.own.Rollouts
	if ids == nil {
		return nil, nil
	}
	store := r.session.Store()
	page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: ids})
	if err != nil {
		return nil, fmt.Errorf("read rollouts of the checkpoint: %w", err)
	}
	var episodes []algorithm.Episode
	if len(page.Items) == len(ids) {
		if episodes, err = algorithm.Await(ctx, store, r.cfg.Flusher, algorithm.ReadFor(r.cfg.Adapter), ids); err != nil {
			return nil, err
		}
	}
	if episodes == nil || slices.ContainsFunc(episodes, func(e algorithm.Episode) bool { return e.Evicted }) {
		r.cfg.Logger.WarnContext(ctx, "the store has not kept the rollouts of the interrupted round, which runs them again", "rollouts", len(ids))
		return nil, nil
	}
	if r.cfg.Publisher != nil {
		for i := range episodes { // by an earlier process
			r.session.Calls.Published(episodes[i].Rollout.ResourcesID.V, round)
		}
	}
	return episodes, nil
}

// sampled runs the rollouts of a round, in the order of the tasks.
func (r *run) sampled(ctx context.Context, round int) ([]algorithm.Episode, error) {
	rollouts, err := r.rollouts(round)
	if err != nil {
		return nil, err
	}
	episodes := make([]algorithm.Episode, len(rollouts))
	params := r.session.Params(rollouts, r.cfg.Samples)
	params.Read = algorithm.ReadFor(r.cfg.Adapter)
	for finished, err := range r.session.Rollouts(ctx, round+1, params) {
		if err != nil {
			return nil, err
		}
		copy(episodes[finished.Index*r.cfg.Samples:], finished.Episodes)
	}
	return episodes, nil
}

// sample runs the rollouts of a round and selects from them; nil if none can be learned from. A round that was interrupted has its rollouts.
func (r *run) sample(ctx context.Context, round int) (*Shuffled, error) {
	episodes, err := r.finished(ctx, round)
	known := episodes != nil
	if err == nil && !known {
		episodes, err = r.sampled(ctx, round)
	}
	if err != nil {
		return nil, err
	}
	s := r.selector()
	for i := range episodes {
		s.add(&episodes[i])
	}
	if err := algorithm.CheckCoverage(ctx, "round", s.coverage, r.cfg.Logger); err != nil {
		return nil, err
	}
	kept, data, selected := s.data()
	r.kept, r.selected = kept, &selected
	if known && r.session.Step > round*r.cfg.Steps {
		r.selected = nil // reported by the earlier process
	}
	masked := 0
	for _, n := range selected.Masked {
		masked += n
	}
	if masked == selected.Rollouts { // the next round would be the same
		return nil, agl.Errorf(agl.CodeIllegalState, "no rollout of %d counts: %s", masked, algorithm.DescribeMasked(selected.Masked))
	}
	if !known {
		r.session.Totals.Add(selected.Rollouts, selected.Masked)
	}
	if len(data) == 0 {
		r.cfg.Logger.WarnContext(ctx, "no rollout of the round can be learned from",
			"round", round+1, "rollouts", selected.Rollouts, "rejected", selected.Rejected, "masked", selected.Masked)
		return nil, nil //nolint:nilnil // not an error: the next round draws other tasks
	}
	source, err := NewShuffled(data, r.cfg.Batch, algorithm.DeriveSeed(r.cfg.Seed, "round", round))
	if err != nil || known {
		return source, err
	}
	r.own.Rollouts = make([]string, len(episodes))
	for i := range episodes {
		r.own.Rollouts[i] = episodes[i].Rollout.RolloutID
	}
	return source, r.session.Commit(ctx, true, nil)
}

// tasks is the number of tasks of a round.
func (r *run) tasks() int {
	n := r.in.Train.Len()
	return min(cmp.Or(r.cfg.Tasks, n), n)
}

// rollouts describes Samples rollouts of each task of a round.
func (r *run) rollouts(round int) ([]agl.EnqueueRollout, error) {
	tasks := r.tasks()
	order := algorithm.NewShuffle(r.in.Train.Len(), r.cfg.Seed)
	list := make([]agl.EnqueueRollout, 0, tasks*r.cfg.Samples)
	for i := range tasks {
		index := order.At(round*tasks + i)
		input, err := r.in.Train.Task(index)
		if err != nil {
			return nil, fmt.Errorf("read train dataset: %w", err)
		}
		for k := range r.cfg.Samples {
			rollout, err := r.session.Rollout(input, agl.ModeTrain, r.session.ResourcesID, algorithm.Tag{
				Round: round + 1, Sample: k, Index: index, Seed: algorithm.DeriveSeed(r.cfg.Seed, "sample", round, i, k),
			})
			if err != nil {
				return nil, err
			}
			list = append(list, rollout)
		}
	}
	return list, nil
}
