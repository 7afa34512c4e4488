package algorithm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// CheckEngine asks an engine for its capabilities. A missing loss is
// agl.ErrUnimplemented; other properties that matter for a run are logged.
func CheckEngine(ctx context.Context, service tinker.Service, losses []tinker.LossName, initialWeights string, logger *slog.Logger) (tinker.Capabilities, error) {
	can, err := service.Capabilities(ctx)
	if err != nil {
		return tinker.Capabilities{}, fmt.Errorf("ask the engine for its capabilities: %w", err)
	}
	for _, loss := range losses {
		if !slices.Contains(can.Losses, loss) {
			return tinker.Capabilities{}, agl.Errorf(agl.CodeUnimplemented, "the engine has no loss %q, only %q", loss, can.Losses)
		}
	}
	if !can.SummedLoss {
		logger.WarnContext(ctx, "the engine does not sum losses; the same learning rate may act differently than on other engines")
	}
	if initialWeights != "" && !can.OptimizerOptional {
		logger.WarnContext(ctx, "the engine restores the optimizer's state together with the initial weights")
	}
	return can, nil
}

// ModelParams are the arguments of [OpenModel].
type ModelParams struct {
	// Service creates the model. Required.
	Service tinker.Service
	// Create describes it.
	Create tinker.CreateModelParams
	// InitialWeights is a path of tinker.TrainingClient.SaveWeights to start from, with a fresh optimizer, if there is no
	// checkpoint; empty starts from the base model.
	InitialWeights string
	// Dir holds checkpoints; empty keeps none.
	Dir string
	// Identity is that of a [Checkpoint].
	Identity map[string]string
	// Logger gets warnings; nil discards them.
	Logger *slog.Logger
}

// Model is a model in training, with its checkpoints. It is used by one goroutine.
type Model struct {
	tinker.TrainingClient

	// Restored is the checkpoint that the model was opened with; zero if Resumed is false.
	Restored Checkpoint
	Resumed  bool
	// Weights is the path that SaveWeights, or the checkpoint, has last given.
	Weights string
	// Saved is the step of the last checkpoint; -1 if there is none.
	Saved int

	identity    map[string]string
	checkpoints *Checkpoints // nil keeps none
}

// OpenModel creates a model and loads the newest checkpoint, or else the initial weights. A checkpoint of another identity
// is agl.ErrConflict. The caller unloads the model.
func OpenModel(ctx context.Context, p ModelParams) (*Model, error) {
	m := &Model{identity: p.Identity, Saved: -1}
	var err error
	if p.Dir != "" {
		if m.checkpoints, err = OpenCheckpoints(p.Dir, p.Service, p.Logger); err != nil {
			return nil, err
		}
	}
	if m.TrainingClient, err = p.Service.CreateModel(ctx, p.Create); err != nil {
		return nil, fmt.Errorf("create model: %w", err)
	}
	if err := m.load(ctx, p.InitialWeights); err != nil {
		return nil, errors.Join(err, m.Unload(context.WithoutCancel(ctx)))
	}
	return m, nil
}

func (m *Model) load(ctx context.Context, initialWeights string) (err error) {
	if m.checkpoints != nil {
		m.Restored, m.Resumed, err = m.checkpoints.Restore(ctx, m.identity, func(cp Checkpoint) error {
			return m.LoadWeights(ctx, tinker.LoadWeightsParams{Path: cp.Weights, WithOptimizer: true})
		})
		if m.Weights = m.Restored.Weights; m.Resumed {
			m.Saved = m.Restored.Step
		}
	}
	if err != nil || m.Resumed || initialWeights == "" {
		return err
	}
	if err := m.LoadWeights(ctx, tinker.LoadWeightsParams{Path: initialWeights}); err != nil {
		return fmt.Errorf("load initial weights %s: %w", initialWeights, err)
	}
	return nil
}

// KeepsCheckpoints reports whether the model was opened with a directory for them.
func (m *Model) KeepsCheckpoints() bool { return m.checkpoints != nil }

// Save saves the weights after a step: the first half of a checkpoint. [Model.SaveState] is the second.
func (m *Model) Save(ctx context.Context, step int) error {
	weights, err := m.SaveWeights(ctx, tinker.SaveWeightsParams{Name: snapshotName(step)})
	if err != nil {
		return fmt.Errorf("save weights: %w", err)
	}
	m.Weights = weights
	if m.checkpoints == nil {
		return nil
	}
	return m.checkpoints.NoteWeights(weights)
}

// SaveState writes the checkpoint of the weights that were saved after a step. From here on, a later run resumes after this
// step. It does nothing without a directory.
func (m *Model) SaveState(ctx context.Context, step int, state any) error {
	if m.checkpoints == nil {
		return nil
	}
	raw, err := json.Marshal(state, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := m.checkpoints.Save(ctx, Checkpoint{Step: step, Weights: m.Weights, Identity: m.identity, State: jsontext.Value(raw)}); err != nil {
		return err
	}
	m.Saved = step
	return nil
}

// Checkpoint is Save and SaveState.
func (m *Model) Checkpoint(ctx context.Context, step int, state any) error {
	if err := m.Save(ctx, step); err != nil {
		return err
	}
	return m.SaveState(ctx, step, state)
}

func snapshotName(step int) string { return fmt.Sprintf("step-%08d", step) }
