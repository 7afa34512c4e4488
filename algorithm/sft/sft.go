package sft

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// Tuner fine-tunes a model on rollouts. Make it with [NewTuner].
type Tuner struct {
	cfg     TunerConfig
	summary Summary
}

var _ agl.Algorithm = (*Tuner)(nil)

// NewTuner makes the algorithm. A TunerConfig out of range is agl.ErrInvalid and
// names the field.
func NewTuner(cfg TunerConfig) (*Tuner, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Tuner{cfg: cfg}, nil
}

// Summary returns what the last Run came to, also when it ended with an error. It
// must not be called while one is running.
func (t *Tuner) Summary() Summary { return t.summary }

// Run makes all rounds, those that a checkpoint in TunerConfig.OutDir holds
// included. Without TunerConfig.From it needs runners that take the rollouts, and
// a train dataset; it uses the validation dataset if there is one.
//
// When ctx ends, Run returns its error; rollouts that are outstanding are
// cancelled in the store and the last checkpoint stays whole. A checkpoint of
// other settings or data is agl.ErrConflict. Stored rollouts of which none can be
// learned from are agl.ErrInvalid, and a round of which every model call was
// recorded without token ids is agl.ErrIllegalState.
func (t *Tuner) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	t.summary = Summary{}
	r := &tuning{cfg: t.cfg, in: in}
	defer func() {
		err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
		t.summary = r.summary()
	}()
	if err := r.open(ctx); err != nil {
		return fmt.Errorf("sft: %w", err)
	}
	for r.step < r.cfg.total() {
		round := r.step / r.cfg.Steps
		if err := r.round(ctx, round); err != nil {
			return fmt.Errorf("sft: round %d: %w", round+1, err)
		}
	}
	return nil
}

// tuning is one Run.
type tuning struct {
	cfg         TunerConfig
	in          agl.AlgorithmInput
	client      tinker.TrainingClient
	serving     *algorithm.Serving
	checkpoints *algorithm.Checkpoints // nil without an OutDir
	metrics     *algorithm.Metrics
	identity    map[string]string
	stored      *Shuffled // what From has; nil without it
	selected    *Selected // of this round, until it is reported
	spec        tinker.ModelSpec

	step    int // steps done
	resumed bool
	weights string // of the last checkpoint
	loss    float64
	state   tuningState
}

// tuningState is what a checkpoint holds besides the weights.
type tuningState struct {
	// Run names the run over all its processes, in the metadata of its rollouts.
	Run         string            `json:"run"`
	ResourcesID string            `json:"resources_id"`
	Totals      Totals            `json:"totals"`
	Selected    *Selected         `json:"selected"`
	Before      *algorithm.Report `json:"before"`
	After       *algorithm.Report `json:"after"`
}

// open makes everything ready for the next round.
func (r *tuning) open(ctx context.Context) (err error) {
	switch {
	case r.in.Store == nil:
		return agl.Errorf(agl.CodeInvalid, "the input has no store")
	case r.in.Val != nil && r.in.Val.Len() == 0:
		return agl.Errorf(agl.CodeInvalid, "the validation dataset is empty; leave it out or give it tasks")
	case r.cfg.From == nil && (r.in.Train == nil || r.in.Train.Len() == 0):
		return agl.Errorf(agl.CodeInvalid, "the train dataset is empty; at least one task is needed")
	}
	if err := r.describe(ctx); err != nil {
		return err
	}
	if r.cfg.OutDir != "" {
		r.checkpoints, err = algorithm.OpenCheckpoints(algorithm.CheckpointsConfig{
			Dir: filepath.Join(r.cfg.OutDir, "checkpoints"), Service: r.cfg.Service, Logger: r.cfg.Logger,
		})
		if err != nil {
			return err
		}
	}
	if err := r.openModel(ctx); err != nil {
		return err
	}
	if r.cfg.OutDir != "" {
		if r.metrics, err = algorithm.OpenMetrics(filepath.Join(r.cfg.OutDir, "metrics.jsonl"), r.step); err != nil {
			return err
		}
	}
	r.cfg.OnStart(r.step, r.cfg.total())
	return r.begin(ctx)
}

// describe finds what the run is made of: its model's limits, its data and its
// identity.
func (r *tuning) describe(ctx context.Context) error {
	can, err := algorithm.CheckEngine(ctx, r.cfg.Service, []tinker.LossName{tinker.CrossEntropy}, r.cfg.InitialWeights, r.cfg.Logger)
	if err != nil {
		return err
	}
	for i, m := range can.Models {
		if r.cfg.Model.BaseModel == m.Name || r.cfg.Model.BaseModel == "" && i == 0 {
			r.spec = m
		}
	}
	var data string
	if r.cfg.From == nil {
		if data, err = algorithm.Fingerprint(r.in.Train); err != nil {
			return fmt.Errorf("read train dataset: %w", err)
		}
	} else {
		if err := r.readStored(ctx); err != nil {
			return err
		}
		data = r.stored.Fingerprint()
	}
	r.identity = r.cfg.identity(data)
	return nil
}

// readStored chooses among the rollouts that are there.
func (r *tuning) readStored(ctx context.Context) error {
	p := r.picker()
	if err := p.from(ctx, r.cfg.From); err != nil {
		return err
	}
	data, selected := p.data()
	if len(data) == 0 {
		return agl.Errorf(agl.CodeInvalid, "no stored rollout can be learned from: of %d that succeeded, %d are rejected by their rewards, and these cannot be used: %v",
			selected.Rollouts, selected.Rejected, selected.Masked)
	}
	var err error
	r.stored, err = NewShuffled(data, r.cfg.Batch, r.cfg.Seed)
	r.selected = &selected
	return err
}

func (r *tuning) picker() *picker {
	return &picker{filter: r.cfg.Filter, adapter: r.cfg.Adapter, limit: r.spec.Context, vocab: r.spec.Vocab}
}

// openModel makes the model and goes on from a checkpoint, if there is one.
func (r *tuning) openModel(ctx context.Context) error {
	client, checkpoint, resumed, err := algorithm.OpenModel(ctx, algorithm.Model{
		Service: r.cfg.Service, Create: r.cfg.Model, InitialWeights: r.cfg.InitialWeights,
		Checkpoints: r.checkpoints, Identity: r.identity,
	})
	if err != nil {
		return err
	}
	r.client = client
	r.serving = &algorithm.Serving{
		Client: client, Service: r.cfg.Service, Store: r.in.Store, Resources: r.in.InitialResources,
		Publisher: r.cfg.Publisher, Logger: r.cfg.Logger,
	}
	if !resumed {
		var id [6]byte
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("run id: %w", err)
		}
		r.state.Run = "sft-" + hex.EncodeToString(id[:])
		return nil
	}
	r.resumed, r.step, r.weights = true, checkpoint.Step, checkpoint.Weights
	if err := json.Unmarshal(checkpoint.State, &r.state); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	if r.step < r.cfg.total() {
		r.state.After = nil // of a run that was shorter
	}
	if r.step > 0 {
		r.selected = nil // was reported
	}
	r.cfg.Logger.InfoContext(ctx, "fine-tuning resumes", "run", r.state.Run, "step", r.step, "steps", r.cfg.total())
	return algorithm.CancelLeftovers(ctx, r.in.Store, r.state.Run)
}

// begin publishes the first model of this process and makes the validation before
// the first step.
func (r *tuning) begin(ctx context.Context) error {
	if err := r.publish(ctx); err != nil {
		return err
	}
	if r.step > 0 {
		return nil
	}
	if !r.resumed {
		// So that rollouts can be told to be this run's before there are any.
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	if r.in.Val == nil {
		return nil
	}
	report := Report{Steps: r.cfg.total()}
	if err := r.validate(ctx, &report); err != nil {
		return err
	}
	r.state.Before = report.Validation
	return r.metrics.Write(report)
}

// publish makes the current weights the model that agents call.
func (r *tuning) publish(ctx context.Context) error {
	p, err := r.serving.Publish(ctx, fmt.Sprintf("step-%08d", r.step))
	if err != nil {
		return err
	}
	r.state.ResourcesID = p.Version
	return nil
}

// round makes the rest of a round, counted from 0.
func (r *tuning) round(ctx context.Context, round int) error {
	source := r.stored
	if source == nil {
		var err error
		if source, err = r.sample(ctx, round); err != nil {
			return err
		}
	}
	first := round * r.cfg.Steps
	train := &training{client: r.client, Config: Config{Steps: r.cfg.total(), Schedule: r.cfg.Schedule, Adam: r.cfg.Adam, Source: shifted{source, first}}}
	for last := first + r.cfg.Steps; r.step < last; {
		if source == nil {
			r.step = last - 1 // nothing to learn: the steps are passed over
		}
		report := Report{Step: r.step + 1, Steps: r.cfg.total(), Round: round + 1, Selected: r.selected}
		if source != nil {
			step, err := train.step(ctx, r.step)
			if err != nil {
				return err
			}
			report.Updates, report.Loss, report.LearningRate = 1, step.Loss, step.LearningRate
			report.GradNorm, report.Tokens, report.Seconds = step.GradNorm, step.Tokens, step.Duration.Seconds()
			r.loss = step.Loss
		}
		r.selected = nil
		r.step++
		if err := r.finish(ctx, report, r.step == last, source != nil); err != nil {
			return err
		}
	}
	return nil
}

// shifted is a source whose batches are counted from another step.
type shifted struct {
	*Shuffled

	first int
}

// Batch implements [Source].
func (s shifted) Batch(step int) ([]tinker.Datum, error) { return s.Shuffled.Batch(step - s.first) }

// finish writes down what a step did; after the last of a round it publishes and
// validates.
func (r *tuning) finish(ctx context.Context, report Report, last, learned bool) error {
	if last && learned {
		if err := r.publish(ctx); err != nil {
			return err
		}
	}
	if last && r.in.Val != nil {
		if err := r.validate(ctx, &report); err != nil {
			return err
		}
		if r.step == r.cfg.total() {
			r.state.After = report.Validation
		}
	}
	if report.Selected != nil {
		r.state.Selected = report.Selected
	}
	if err := r.metrics.Write(report); err != nil {
		return err
	}
	// Within a round of own rollouts there is nothing to go on with: they are made again.
	if last || r.stored != nil && r.step%r.cfg.CheckpointEvery == 0 {
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	r.cfg.OnStep(report)
	return nil
}

// save makes a checkpoint.
func (r *tuning) save(ctx context.Context) error {
	if r.checkpoints == nil {
		return nil
	}
	weights, err := r.client.SaveWeights(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("step-%08d", r.step)})
	if err != nil {
		return fmt.Errorf("save weights: %w", err)
	}
	if err := r.checkpoints.Pend(weights); err != nil {
		return err
	}
	r.weights = weights
	if err := r.metrics.Sync(); err != nil {
		return err
	}
	raw, err := json.Marshal(r.state, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return r.checkpoints.Save(ctx, algorithm.Checkpoint{Step: r.step, Weights: weights, Identity: r.identity, State: raw})
}

// validate tries the validation dataset with the model that is published.
func (r *tuning) validate(ctx context.Context, report *Report) error {
	start := time.Now()
	resources, err := algorithm.SamplingVersion(ctx, r.in.Store, r.in.InitialResources, r.cfg.Validation.Sampling, r.state.ResourcesID)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	tag, err := json.Marshal(rolloutTag{Algorithm: "sft", Run: r.state.Run, Round: report.Round})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	result, err := algorithm.Evaluate(ctx, algorithm.Evaluation{
		Store: r.in.Store, Flusher: r.cfg.Flusher, Tasks: r.in.Val, N: r.cfg.Validation.N,
		ResourcesID: agl.Some(resources), Rollout: r.cfg.Rollout, Metadata: tag,
		Seed: r.cfg.Seed, PassReward: r.cfg.PassReward, Form: r.cfg.Form, Logger: r.cfg.Logger,
		Progress: func(done, total int) { r.cfg.OnRollouts(agl.ModeVal, report.Round, done, total) },
	})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	report.Validation, report.ValidateSeconds = &result, time.Since(start).Seconds()
	r.state.Totals.add(len(result.Results), result.Masked)
	r.cfg.OnValidation(report.Step, result)
	return nil
}

func (r *tuning) summary() Summary {
	return Summary{
		Step: r.step, Resumed: r.resumed, Loss: r.loss, Totals: r.state.Totals, Selected: r.state.Selected,
		Before: r.state.Before, After: r.state.After,
		Weights: r.weights, Snapshot: r.serving.Snapshot(), ResourcesID: r.state.ResourcesID,
	}
}

// close gives back what open took.
func (r *tuning) close(ctx context.Context) error {
	err := r.metrics.Close()
	if r.client != nil {
		err = errors.Join(err, r.client.Unload(ctx))
	}
	return err
}
