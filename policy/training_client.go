package policy

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// trainingClient is one model in training. Its calls take turns.
type trainingClient struct {
	id      string
	cfg     Config
	size    int // number of parameters
	saved   *savedWeights
	turn    *semaphore.Weighted // of size 1, held while a call runs
	trainer *trainer            // nil after Unload
}

// run calls do with exclusive use of the trainer.
func (m *trainingClient) run(ctx context.Context, do func(t *trainer) error) error {
	if err := m.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer m.turn.Release(1)
	if m.trainer == nil {
		return agl.Errorf(agl.CodeNotFound, "model: %s is unloaded", m.id)
	}
	return do(m.trainer)
}

func (m *trainingClient) Info(ctx context.Context) (tinker.Info, error) {
	info := tinker.Info{ModelID: m.id, Spec: m.cfg.spec(), Parameters: m.size}
	err := m.run(ctx, func(t *trainer) error {
		info.Step = t.step
		return nil
	})
	return info, err
}

func (m *trainingClient) Forward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(ctx, p, false)
}

// ForwardBackward implements [tinker.TrainingClient]. The loss is the plain sum over positions and data.
func (m *trainingClient) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(ctx, p, true)
}

func (m *trainingClient) forward(ctx context.Context, p tinker.ForwardParams, withGrad bool) (res tinker.ForwardResult, err error) {
	if err := p.Validate(m.cfg.spec()); err != nil {
		return res, err
	}
	err = m.run(ctx, func(t *trainer) (err error) {
		res, err = t.forward(ctx, p.Data, p.Loss.WithDefaults(), withGrad)
		return err
	})
	if err != nil {
		return tinker.ForwardResult{}, fmt.Errorf("policy: forward: %w", err)
	}
	return res, nil
}

// OptimStep implements [tinker.TrainingClient]. A gradient that is not finite is dropped and is agl.ErrInvalid.
func (m *trainingClient) OptimStep(ctx context.Context, p tinker.AdamParams) (res tinker.OptimStepResult, err error) {
	if err := p.Validate(); err != nil {
		return res, err
	}
	err = m.run(ctx, func(t *trainer) (err error) {
		res.GradNorm, err = t.adam(p)
		res.Step = t.step
		return err
	})
	return res, err
}

func (m *trainingClient) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	return m.save(ctx, tinker.KindCheckpoint, p.Name, func(t *trainer, path tinker.Path) (tinker.Path, error) {
		return m.saved.save(path, t.encode(), p.Overwrite)
	})
}

func (m *trainingClient) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	return m.save(ctx, tinker.KindSampler, p.Name, func(t *trainer, path tinker.Path) (tinker.Path, error) {
		return m.saved.publish(path, t, p)
	})
}

func (m *trainingClient) save(ctx context.Context, kind tinker.WeightsKind, name string, do func(t *trainer, path tinker.Path) (tinker.Path, error)) (string, error) {
	if err := tinker.ValidateName(name); err != nil {
		return "", err
	}
	path := tinker.Path{Model: m.id, Kind: kind, Name: name}
	err := m.run(ctx, func(t *trainer) (err error) {
		path, err = do(t, path)
		return err
	})
	if err != nil {
		return "", err
	}
	return path.String(), nil
}

// LoadWeights implements [tinker.TrainingClient]. A damaged checkpoint is tinker.ErrDamaged.
func (m *trainingClient) LoadWeights(ctx context.Context, p tinker.LoadWeightsParams) error {
	path, err := p.Checkpoint()
	if err != nil {
		return err
	}
	return m.run(ctx, func(t *trainer) error {
		c, err := m.saved.load(path)
		if err != nil {
			return err
		}
		if c.WeightsOnly && p.WithOptimizer {
			return invalid("path: %v has no optimizer state", path)
		}
		t.restore(c, p.WithOptimizer)
		return nil
	})
}

func (m *trainingClient) Unload(ctx context.Context) error {
	return m.run(ctx, func(*trainer) error {
		m.trainer = nil
		return nil
	})
}
