package algorithm

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl/tinker"
)

// Model is the arguments of [OpenModel].
type Model struct {
	// Service makes the model. Required.
	Service tinker.Service
	// Create describes it.
	Create tinker.CreateModelParams
	// InitialWeights is a path of tinker.TrainingClient.SaveWeights to start from
	// with a fresh optimizer, when there is no checkpoint; empty starts from the
	// base model.
	InitialWeights string
	// Checkpoints are looked at first; nil means there are none.
	Checkpoints *Checkpoints
	// Identity is what a checkpoint must have been made with.
	Identity map[string]string
}

// OpenModel makes a model and loads the newest checkpoint (resumed is true), or
// the initial weights, into it. The caller unloads it.
func OpenModel(ctx context.Context, m Model) (client tinker.TrainingClient, cp Checkpoint, resumed bool, err error) {
	client, err = m.Service.CreateModel(ctx, m.Create)
	if err != nil {
		return nil, Checkpoint{}, false, fmt.Errorf("create model: %w", err)
	}
	cp, resumed, err = m.load(ctx, client)
	if err != nil {
		return nil, Checkpoint{}, false, errors.Join(err, client.Unload(context.WithoutCancel(ctx)))
	}
	return client, cp, resumed, nil
}

func (m Model) load(ctx context.Context, client tinker.TrainingClient) (cp Checkpoint, resumed bool, err error) {
	if m.Checkpoints != nil {
		cp, resumed, err = m.Checkpoints.Restore(ctx, m.Identity, func(cp Checkpoint) error {
			return client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: cp.Weights, WithOptimizer: true})
		})
	}
	if err != nil || resumed || m.InitialWeights == "" {
		return cp, resumed, err
	}
	if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: m.InitialWeights}); err != nil {
		return Checkpoint{}, false, fmt.Errorf("load initial weights %s: %w", m.InitialWeights, err)
	}
	return Checkpoint{}, false, nil
}
