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
	// More are trained beside the first, on the same engine, and saved with it. Only Model and InitialWeights of a role are read.
	More []Role
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
	// Weights is the path of the weights that were saved last or, before that, of those in Restored; MoreWeights are
	// those of ModelParams.More.
	Weights     string
	MoreWeights []string
	// Saved is the step of the last checkpoint; -1 if there is none.
	Saved int

	clients     []tinker.TrainingClient // of ModelParams.Create, then of each of ModelParams.More
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
	models := append([]Role{{Model: p.Create, InitialWeights: p.InitialWeights}}, p.More...)
	for _, of := range models {
		client, err := p.Service.CreateModel(ctx, of.Model)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("create model: %w", err), m.Unload(context.WithoutCancel(ctx)))
		}
		m.clients = append(m.clients, client)
	}
	m.TrainingClient = m.clients[0]
	if err := m.load(ctx, models); err != nil {
		return nil, errors.Join(err, m.Unload(context.WithoutCancel(ctx)))
	}
	return m, nil
}

func (m *Model) load(ctx context.Context, models []Role) (err error) {
	if m.checkpoints != nil {
		m.Restored, m.Resumed, err = m.checkpoints.Restore(ctx, m.identity, func(cp Checkpoint) error {
			weights := cp.all()
			if len(weights) != len(models) {
				return fmt.Errorf("%w: it has the weights of %d models, the run trains %d", errDamaged, len(weights), len(models))
			}
			for i, client := range m.clients {
				if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: weights[i], WithOptimizer: true}); err != nil {
					return err
				}
			}
			return nil
		})
		if m.Weights, m.MoreWeights = m.Restored.Weights, m.Restored.More; m.Resumed {
			m.Saved = m.Restored.Step
		}
	}
	if err != nil || m.Resumed {
		return err
	}
	for i, client := range m.clients {
		initial := models[i].InitialWeights
		if initial == "" {
			continue
		}
		if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: initial}); err != nil {
			return fmt.Errorf("load initial weights %s: %w", initial, err)
		}
	}
	return nil
}

// Unload unloads all models.
func (m *Model) Unload(ctx context.Context) error {
	var errs []error
	for _, client := range m.clients {
		errs = append(errs, client.Unload(ctx))
	}
	return errors.Join(errs...)
}

// Unload unloads models at the end of a run. A failure is a warning: what was learned is in the checkpoints, and an engine frees the models
// of a session that has ended. Some engines cannot unload.
func Unload(ctx context.Context, logger *slog.Logger, models ...tinker.TrainingClient) {
	for _, model := range models {
		if err := model.Unload(ctx); err != nil {
			logger.WarnContext(ctx, "the engine has not unloaded a model", "error", err)
		}
	}
}

// KeepsCheckpoints reports whether the model was opened with a directory for them.
func (m *Model) KeepsCheckpoints() bool { return m.checkpoints != nil }

// Save saves the weights after a step: the first half of a checkpoint. [Model.SaveState] is the second.
func (m *Model) Save(ctx context.Context, step int) error {
	var saved []string
	for _, client := range m.clients {
		weights, err := client.SaveWeights(ctx, tinker.SaveWeightsParams{Name: snapshotName(step)})
		if err != nil {
			return fmt.Errorf("save weights: %w", err)
		}
		saved = append(saved, weights)
		if m.checkpoints != nil {
			if err := m.checkpoints.NoteWeights(saved...); err != nil {
				return err
			}
		}
	}
	m.Weights, m.MoreWeights = saved[0], nil
	if len(saved) > 1 {
		m.MoreWeights = saved[1:]
	}
	return nil
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
	if err := m.checkpoints.Save(ctx, Checkpoint{Step: step, Weights: m.Weights, More: m.MoreWeights, Identity: m.identity, State: jsontext.Value(raw)}); err != nil {
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
