package grpo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agl-go/agl/tinker"
)

// updater takes the optimizer steps of a step.
type updater struct {
	cfg       Config
	client    tinker.TrainingClient
	reference tinker.TrainingClient // of KL; nil without it
	vocab     int                   // of the model; 0 is unknown
}

// openReference creates the reference model of KL; nil without KL. The caller unloads the model, even after an error.
func openReference(ctx context.Context, c Config) (tinker.TrainingClient, error) {
	if c.KL.Coefficient == 0 {
		return nil, nil //nolint:nilnil // no reference is needed
	}
	client, err := c.Service.CreateModel(ctx, c.Model)
	if err != nil {
		return nil, fmt.Errorf("create the reference model of KL: %w", err)
	}
	weights := c.reference()
	if weights == "" {
		return client, nil
	}
	if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: weights}); err != nil {
		return client, fmt.Errorf("load the reference of KL from %s: %w", weights, err)
	}
	return client, nil
}

// update takes the optimizer steps of a step whose data come in one part or more.
type update struct {
	*updater

	report  *StepReport
	adam    tinker.AdamParams
	parts   int        // that came
	pending bool       // a gradient that no optimizer step has taken
	stepped bool       // an optimizer step was begun, so the weights may have changed
	tokens  int        // that were compared with the reference of KL
	first   comparison // of the first optimizer step
	all     comparison // of what the correction has seen
	total   int        // tokens that it has seen
	refused int        // of these
	// computed holds what is known about each sequence, by the address of its first token.
	computed map[*int32]*computed
}

// comparison has the log-probabilities of the trainer for data.
type comparison struct {
	data     []tinker.Datum
	logprobs [][]float32
}

func (c *comparison) add(data []tinker.Datum, logprobs [][]float32) {
	c.data, c.logprobs = append(c.data, data...), append(c.logprobs, logprobs...)
}

// begin begins the update of a step, which report is of.
func (u *updater) begin(report *StepReport) *update {
	adam := u.cfg.Adam
	adam.LearningRate = u.cfg.Schedule.Rate(report.Step-1, u.cfg.Steps)
	return &update{updater: u, report: report, adam: adam, computed: map[*int32]*computed{}}
}

// train trains on the next of Config.parts parts of the data. An optimizer step is taken only if one of its parts has data. What follows the
// beginning of the first optimizer step has the context finishing.
func (u *update) train(ctx, finishing context.Context, data []tinker.Datum) (err error) {
	u.parts++
	if len(data) == 0 && !u.pending {
		return nil
	}
	start := time.Now()
	defer func() { u.report.Seconds.Train += time.Since(start).Seconds() }()
	for i := range data {
		if err := data[i].Validate(u.cfg.Loss.Name, u.vocab); err != nil {
			return fmt.Errorf("the recorded tokens do not fit the model in training; do the agents call another model? %w", err)
		}
	}
	if u.reference != nil && len(data) > 0 {
		kl, err := penalize(ctx, u.reference, data, u.cfg.KL.Coefficient)
		if err != nil {
			return err
		}
		n := trainedTokens(data)
		u.tokens += n
		u.report.KL += (kl - u.report.KL) * shareOf(n, u.tokens)
	}
	u.note(data)
	if data, err = u.correct(ctx, data); err != nil {
		return err
	}
	if parts := u.cfg.parts(); parts > 1 {
		return u.forward(ctx, finishing, data, u.parts%(parts/u.cfg.Minibatches) == 0)
	}
	n := min(u.cfg.Minibatches, len(data))
	for i := range n {
		if err := u.forward(ctx, finishing, data[i*len(data)/n:(i+1)*len(data)/n], true); err != nil {
			return err
		}
	}
	return nil
}

// forward adds the gradient of data and, if they are the last of an optimizer step, takes that.
func (u *update) forward(ctx, finishing context.Context, data []tinker.Datum, last bool) (err error) {
	var forward tinker.ForwardResult
	var optim tinker.OptimStepResult
	if u.stepped {
		ctx = finishing
	}
	switch u.pending = u.pending || len(data) > 0; {
	case !u.pending:
		return nil
	case !last:
		if len(data) == 0 {
			return nil
		}
		if forward, err = u.client.ForwardBackward(ctx, tinker.ForwardParams{Data: data, Loss: u.cfg.Loss}); err != nil {
			return fmt.Errorf("forward and backward: %w", err)
		}
	default:
		anchored, err := u.anchor(ctx, u.report.Step)
		if err != nil {
			return err
		}
		u.report.AnchorLoss += anchored
		if err := ctx.Err(); err != nil {
			return err
		}
		u.stepped, ctx = true, finishing
		if len(data) > 0 {
			forward, optim, err = tinker.Step(ctx, u.client, tinker.ForwardParams{Data: data, Loss: u.cfg.Loss}, u.adam)
		} else if optim, err = u.client.OptimStep(ctx, u.adam); err != nil {
			err = fmt.Errorf("optimizer: %w", err)
		}
		if err != nil {
			return err
		}
	}
	if err := checkForward(data, forward, optim); err != nil {
		return err
	}
	u.noteCurrent(data, forward.Logprobs)
	if u.report.Updates == 0 {
		u.first.add(u.asSampled(data), forward.Logprobs)
	}
	u.report.Loss += forward.Loss
	if last {
		u.pending = false
		u.report.Updates++
		u.report.GradNorm += optim.GradNorm
	}
	return nil
}

// asSampled returns data with the sampler's log-probabilities, in whose place a correction may have put others.
func (u *update) asSampled(data []tinker.Datum) []tinker.Datum {
	data = slices.Clone(data)
	for i := range data {
		data[i].Logprobs = u.computed[&data[i].Input[0]].sampler
	}
	return data
}

// anchor adds the gradient of the demonstrations to that of an optimizer step, and returns their mean loss.
func (u *updater) anchor(ctx context.Context, step int) (loss float64, err error) {
	if u.cfg.Anchor == nil {
		return 0, nil
	}
	res, err := u.client.ForwardBackward(ctx, tinker.ForwardParams{
		Data: u.cfg.Anchor.of(step, u.cfg.Seed), Loss: tinker.Loss{Name: tinker.CrossEntropy},
	})
	if err != nil {
		return 0, fmt.Errorf("demonstrations of the anchor: %w", err)
	}
	return res.Loss / u.cfg.Anchor.Weight, nil
}

// end completes the report.
func (u *update) end() {
	r, n := u.report, float64(u.report.Updates)
	if u.all.data != nil {
		drift := driftOf(u.all.data, u.all.logprobs, u.cfg.Loss)
		drift.Rejected = shareOf(u.refused, u.total)
		r.Drift = &drift
	}
	if n == 0 {
		return
	}
	r.LearningRate = u.adam.LearningRate
	r.Loss, r.GradNorm, r.AnchorLoss = r.Loss/n, r.GradNorm/n, r.AnchorLoss/n
	r.LogprobGap = logprobGap(u.first.data, u.first.logprobs)
	if r.Drift == nil {
		drift := driftOf(u.first.data, u.first.logprobs, u.cfg.Loss)
		r.Drift = &drift
	}
}

// correct applies the correction, for which it asks the engine for the log-probabilities of the data.
func (u *update) correct(ctx context.Context, data []tinker.Datum) ([]tinker.Datum, error) {
	if u.cfg.Correction.Kind == "" || len(data) == 0 {
		return data, nil
	}
	proximal, err := u.client.Forward(ctx, tinker.ForwardParams{Data: data, Loss: u.cfg.Loss})
	if err != nil {
		return nil, fmt.Errorf("log-probabilities of the weights in training: %w", err)
	}
	if err := checkLogprobs(data, proximal.Logprobs); err != nil {
		return nil, err
	}
	u.all.add(data, proximal.Logprobs)
	u.noteCurrent(data, proximal.Logprobs)
	kept, refused := u.cfg.Correction.Apply(data, proximal.Logprobs)
	u.noteKept(data, kept)
	u.total, u.refused = u.total+trainedTokens(data), u.refused+refused
	return kept, nil
}

// checkForward returns an error if the loss, the norm of the gradient or a log-probability is not finite: the weights have become useless.
func checkForward(data []tinker.Datum, forward tinker.ForwardResult, optim tinker.OptimStepResult) error {
	if err := tinker.CheckFinite(forward.Loss, optim.GradNorm); err != nil {
		return err
	}
	return checkLogprobs(data, forward.Logprobs)
}
