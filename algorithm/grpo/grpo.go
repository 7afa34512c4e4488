package grpo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// GRPO is the algorithm. Make it with [New].
type GRPO struct {
	cfg     Config
	summary Summary
}

var _ agl.Algorithm = (*GRPO)(nil)

// New makes the algorithm. A Config out of range is agl.ErrInvalid and names the
// field.
func New(cfg Config) (*GRPO, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &GRPO{cfg: cfg}, nil
}

// Summary returns what the last Run came to, also when it ended with an error.
// It must not be called while one is running.
func (g *GRPO) Summary() Summary { return g.summary }

// Run trains until Config.Steps steps are done, those that a checkpoint in
// Config.OutDir holds included. It needs runners that take the rollouts, a train
// dataset unless there is a Source, and uses the validation dataset if there is
// one.
//
// When ctx ends, Run returns its error; rollouts that are outstanding are
// cancelled in the store and the last checkpoint stays whole. A checkpoint of
// other settings is agl.ErrConflict. A step of which every model call was recorded
// without token ids or log-probabilities is agl.ErrIllegalState: it cannot be
// trained on, and neither can the next.
func (g *GRPO) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	g.summary = Summary{}
	r := &run{cfg: g.cfg, in: in, source: g.cfg.Source, warned: map[WarningKind]bool{}}
	defer func() {
		err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
		g.summary = r.summary()
	}()
	if err := r.open(ctx); err != nil {
		return err
	}
	for step := r.step + 1; step <= r.cfg.Steps; step++ {
		if err := r.trainStep(ctx, step); err != nil {
			return fmt.Errorf("grpo: step %d: %w", step, err)
		}
	}
	return nil
}

// run is one Run.
type run struct {
	cfg         Config
	in          agl.AlgorithmInput
	source      Source
	checkpoints *algorithm.Checkpoints // nil without an OutDir
	identity    map[string]string
	client      tinker.TrainingClient
	reference   tinker.TrainingClient // of KL; nil without it
	vocab       int                   // of the model; 0 is unknown
	context     int                   // of the model, in tokens; 0 is unknown
	metrics     *algorithm.Metrics
	serving     *algorithm.Serving

	step    int // steps done
	resumed bool
	state   state
	weights string // of the last checkpoint
	warned  map[WarningKind]bool
}

// state is what a checkpoint holds besides the weights.
type state struct {
	// Run names the run over all its processes, in the metadata of its rollouts.
	Run string `json:"run"`
	// ResourcesID is the version that was being served.
	ResourcesID string            `json:"resources_id"`
	Source      jsontext.Value    `json:"source"`
	Totals      Totals            `json:"totals"`
	Before      *algorithm.Report `json:"before"`
	After       *algorithm.Report `json:"after"`
}

// open makes everything ready for the next step.
func (r *run) open(ctx context.Context) (err error) {
	if r.in.Store == nil {
		return invalid("the input has no store")
	}
	if r.in.Val != nil && r.in.Val.Len() == 0 {
		return invalid("the validation dataset is empty; leave it out or give it tasks")
	}
	if r.source == nil {
		if r.source, err = NewDatasetSource(r.in.Train, r.cfg.Seed); err != nil {
			return err
		}
	}
	r.identity = r.cfg.identity(r.source)
	if r.cfg.OutDir != "" {
		r.checkpoints, err = algorithm.OpenCheckpoints(algorithm.CheckpointsConfig{
			Dir: filepath.Join(r.cfg.OutDir, "checkpoints"), Service: r.cfg.Service, Logger: r.cfg.Logger,
		})
		if err != nil {
			return fmt.Errorf("grpo: %w", err)
		}
	}
	if err := r.openModel(ctx); err != nil {
		return fmt.Errorf("grpo: %w", err)
	}
	if r.cfg.OutDir != "" {
		if r.metrics, err = algorithm.OpenMetrics(filepath.Join(r.cfg.OutDir, "metrics.jsonl"), r.step); err != nil {
			return fmt.Errorf("grpo: %w", err)
		}
	}
	r.cfg.Progress.OnStart(Start{Step: r.step, Steps: r.cfg.Steps, Resumed: r.resumed, Before: r.state.Before})
	if err := r.begin(ctx); err != nil {
		return fmt.Errorf("grpo: %w", err)
	}
	return nil
}

// openModel makes the model and goes on from a checkpoint, if there is one.
func (r *run) openModel(ctx context.Context) error {
	if _, err := algorithm.CheckEngine(ctx, r.cfg.Service, r.cfg.Losses(), r.cfg.InitialWeights, r.cfg.Logger); err != nil {
		return err
	}
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
	if err := r.openReference(ctx); err != nil {
		return err
	}
	info, err := client.Info(ctx)
	if err != nil {
		return fmt.Errorf("describe model: %w", err)
	}
	r.vocab, r.context = info.Spec.Vocab, info.Spec.Context
	if !resumed {
		var id [6]byte
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("run id: %w", err)
		}
		r.state.Run = "grpo-" + hex.EncodeToString(id[:])
		return nil
	}
	r.resumed, r.step, r.weights = true, checkpoint.Step, checkpoint.Weights
	if err := json.Unmarshal(checkpoint.State, &r.state); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	if r.step < r.cfg.Steps {
		r.state.After = nil // of a run that was shorter
	}
	if err := r.source.Restore(r.state.Source); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	r.cfg.Logger.InfoContext(ctx, "training resumes", "run", r.state.Run, "step", r.step, "steps", r.cfg.Steps)
	return algorithm.CancelLeftovers(ctx, r.in.Store, r.state.Run)
}

// begin publishes the first model of this process and makes the validation
// before the first step.
func (r *run) begin(ctx context.Context) error {
	if err := r.publish(ctx, r.step); err != nil {
		return err
	}
	if r.step > 0 {
		return nil
	}
	if !r.resumed {
		// So that rollouts can be told to be this run's before there are any.
		if err := r.checkpoint(ctx, &StepReport{}); err != nil {
			return err
		}
	}
	if r.in.Val == nil {
		return nil
	}
	report := StepReport{Steps: r.cfg.Steps, ResourcesID: r.state.ResourcesID, Masked: map[algorithm.Mask]int{}}
	if err := r.validate(ctx, &report); err != nil {
		return err
	}
	r.state.Before = report.Validation
	report.Seconds.Total = report.Seconds.Validate
	return r.metrics.Write(report)
}

// trainStep makes one step, counted from 1.
func (r *run) trainStep(ctx context.Context, step int) error {
	start := time.Now()
	report := StepReport{Step: step, Steps: r.cfg.Steps, ResourcesID: r.state.ResourcesID}
	groups, sampling, err := r.collect(ctx, step)
	if err != nil {
		return err
	}
	data := r.assemble(groups, &report)
	report.Seconds.Rollouts = sampling.Seconds()
	if sampling > 0 {
		report.TokensPerSecond = float64(report.ResponseTokens) / sampling.Seconds()
	}
	if err := r.update(ctx, data, &report); err != nil {
		return err
	}
	if report.Updates > 0 {
		mark := time.Now()
		if err := r.publish(ctx, step); err != nil {
			return err
		}
		report.Seconds.Publish = time.Since(mark).Seconds()
	}
	r.step = step
	r.count(report)
	last := step == r.cfg.Steps
	every := r.cfg.Validation.Every
	if r.in.Val != nil && (last || every > 0 && step%every == 0) {
		if err := r.validate(ctx, &report); err != nil {
			return err
		}
		if last {
			r.state.After = report.Validation
		}
	}
	return r.finish(ctx, start, report, last || step%r.cfg.CheckpointEvery == 0)
}

// finish writes down what a step did.
func (r *run) finish(ctx context.Context, start time.Time, report StepReport, checkpoint bool) error {
	if checkpoint && r.checkpoints != nil {
		if err := r.saveWeights(ctx, &report); err != nil {
			return err
		}
	}
	report.Seconds.Total = time.Since(start).Seconds()
	if err := r.metrics.Write(report); err != nil {
		return err
	}
	if checkpoint && r.checkpoints != nil {
		if err := r.saveState(ctx); err != nil {
			return err
		}
	}
	r.warn(ctx, report)
	r.cfg.Progress.OnStep(report)
	return nil
}

func (r *run) count(report StepReport) {
	t := &r.state.Totals
	t.Rollouts += report.Rollouts
	t.Spans += report.Spans
	t.Tokens += report.ResponseTokens
	t.addMasked(report.Masked)
}

func (r *run) summary() Summary {
	s := Summary{
		Step: r.step, Resumed: r.resumed, Totals: r.state.Totals, Before: r.state.Before, After: r.state.After,
		Weights: r.weights, Snapshot: r.serving.Snapshot(), ResourcesID: r.state.ResourcesID,
	}
	return s
}

// close gives back what open took.
func (r *run) close(ctx context.Context) error {
	err := r.metrics.Close()
	for _, client := range []tinker.TrainingClient{r.client, r.reference} {
		if client != nil {
			err = errors.Join(err, client.Unload(ctx))
		}
	}
	return err
}
