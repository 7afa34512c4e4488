package algorithm

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Validate runs the validation dataset with the model that is published, counts its rollouts, and sets After if Step is the
// last. The result is nil if there is no validation dataset. The seeds are the same each time, so that two validations
// differ by their weights alone.
func (s *Session) Validate(ctx context.Context, tag Tag) (result *Report, took time.Duration, err error) {
	p, t := s.p, s.p.Training
	if p.Input.Val == nil {
		return nil, 0, nil
	}
	start := time.Now()
	resources, err := SamplingVersion(ctx, p.Input.Store, p.Input.InitialResources, t.Validation.Sampling, s.ResourcesID)
	if err != nil {
		return nil, 0, fmt.Errorf("validate: %w", err)
	}
	report, err := s.evaluate(ctx, resources, tag)
	if err != nil {
		return nil, 0, fmt.Errorf("validate: %w", err)
	}
	if s.Step == p.Steps {
		s.After = &report
	}
	p.Progress.OnValidation(s.Step, report)
	return &report, time.Since(start), nil
}

// evaluate runs the validation dataset with some resources, and counts its rollouts.
func (s *Session) evaluate(ctx context.Context, resources string, tag Tag) (Report, error) {
	params, err := s.evaluation(resources, tag)
	if err != nil {
		return Report{}, err
	}
	params.Progress = func(done, total int) { s.p.Progress.OnRollouts(PhaseValidation, s.Step, done, total) }
	report, err := Evaluate(ctx, params)
	if err == nil {
		s.Totals.Add(len(report.Results), report.Masked)
	}
	return report, err
}

// evaluation describes a run of the validation dataset with some resources.
func (s *Session) evaluation(resources string, tag Tag) (EvaluateParams, error) {
	p, t := s.p, s.p.Training
	metadata, err := s.metadata(tag)
	return EvaluateParams{
		Store: p.Input.Store, Flusher: p.Flusher, Tasks: p.Input.Val, N: t.Validation.N,
		ResourcesID: agl.Some(resources), Rollout: p.Rollout, Metadata: metadata,
		Seed: p.Seed, PassReward: t.PassReward, Form: t.Form, Logger: p.Logger,
	}, err
}

// Validated is a validation that ran beside training.
type Validated struct {
	Step       int     `json:"step"` // after which the weights were validated
	Validation Report  `json:"validation"`
	Seconds    float64 `json:"seconds"`
}

// besideValidation is a validation that runs beside training. Its rollouts have resources of their own, which pin them to the weights.
type besideValidation struct {
	resources string
	of        string // the resources with which the weights were published
	stop      context.CancelFunc
	done      chan struct{} // closed when result and err are set
	result    Validated
	err       error
}

// end ends a validation and waits for it. On nil it does nothing.
func (v *besideValidation) end() {
	if v != nil {
		v.stop()
		<-v.done
	}
}

// validates reports whether the weights of a step are validated beside training.
func (s *Session) validates(step int) bool { return s.beside != nil && s.beside.result.Step == step }

// StartValidation starts a run of the validation dataset with the published model. Its rollouts keep these weights while newer ones
// are published. No other validation may be running: see [Session.EndValidation]. [Session.Commit] makes a checkpoint of this step; a run
// that resumes from it starts the validation again.
func (s *Session) StartValidation(ctx context.Context) error {
	if s.p.Input.Val == nil || s.validates(s.Step) {
		return nil
	}
	resources, err := s.addValidationResources(ctx, s.p.Input.InitialResources)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	params, err := s.evaluation(resources, Tag{Step: s.Step})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	v := &besideValidation{resources: resources, of: s.ResourcesID, done: make(chan struct{}), result: Validated{Step: s.Step}}
	ctx, v.stop = context.WithCancel(ctx)
	s.beside = v
	// Pin the rollouts now: a call that is under way when the next weights are published must not get those.
	if _, err := s.serve(ctx, s.snapshots[len(s.snapshots)-1]); err != nil {
		close(v.done)
		return fmt.Errorf("validate: %w", err)
	}
	go func() {
		defer close(v.done)
		start := time.Now()
		v.result.Validation, v.err = Evaluate(ctx, params)
		v.result.Seconds = time.Since(start).Seconds()
	}()
	return nil
}

// addValidationResources adds resources of their own for the rollouts of one validation.
func (s *Session) addValidationResources(ctx context.Context, resources agl.Resources) (id string, err error) {
	sampling := s.p.Training.Validation.Sampling
	if sampling == nil {
		sampling = jsontext.Value("{}")
	}
	return SamplingVersion(ctx, s.p.Input.Store, resources, sampling, "")
}

// EndValidation returns the result of [Session.StartValidation], and counts its rollouts. It is nil if none was started before this
// step, or if it still runs and wait is false.
func (s *Session) EndValidation(wait bool) (*Validated, error) {
	v := s.beside
	if v == nil || s.validates(s.Step) {
		return nil, nil //nolint:nilnil // there is none
	}
	select {
	case <-v.done:
	default:
		if !wait {
			return nil, nil //nolint:nilnil // not yet
		}
		<-v.done // ends with the context of its start
	}
	s.beside = nil
	v.stop()
	if v.err != nil {
		return nil, fmt.Errorf("validate the weights of step %d: %w", v.result.Step, v.err)
	}
	s.Totals.Add(len(v.result.Validation.Results), v.result.Validation.Masked)
	s.p.Progress.OnValidation(v.result.Step, v.result.Validation)
	return &v.result, nil
}
