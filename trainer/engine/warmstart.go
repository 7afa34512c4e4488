package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// WarmStart is supervised training on conversations, before anything is learned
// from rewards. What the assistant writes is what the model learns.
type WarmStart struct {
	// Path is a JSONL file of {"messages": [{"role": …, "content": …}, …]}. Required.
	Path string
	// Steps and Batch, in conversations; zero means DefaultWarmSteps and 32.
	Steps, Batch int
	// Schedule is the learning rate; a zero Peak means 3e-3, falling to 0, after a
	// warm-up of a tenth of the steps, at most 100.
	Schedule algorithm.Schedule
	// Model is the model to make.
	Model tinker.CreateModelParams
	// Seed decides the order of the conversations.
	Seed uint64
	// OutDir holds checkpoints, from which a later run of the same goes on; empty
	// means none.
	OutDir string
	// OnStep is called after each step; nil does nothing.
	OnStep func(sft.StepReport)
	// Logger gets what people should know; nil discards it.
	Logger *slog.Logger
}

// DefaultWarmSteps is how many steps a [WarmStart] has that says nothing.
const DefaultWarmSteps = 1200

func (w WarmStart) withDefaults() WarmStart {
	const batch, peak, rise = 32, 3e-3, 100
	if w.Steps == 0 {
		w.Steps = DefaultWarmSteps
	}
	if w.Batch == 0 {
		w.Batch = batch
	}
	if w.Schedule.Peak == 0 {
		w.Schedule = algorithm.Schedule{Peak: peak, Warmup: min(rise, w.Steps/10)}
	}
	return w
}

// Demonstrator is a chat format that makes data for supervised training.
type Demonstrator interface {
	// Demonstration gives weight to what the assistant writes in a conversation, and
	// to nothing else.
	Demonstration(messages []chat.Message) (tinker.Datum, error)
}

var _ Demonstrator = (*chat.RoleMarks)(nil)

// WarmStart trains and returns the path of the weights. A conversation that the
// model cannot read, for its characters, roles or length, is agl.ErrInvalid, and a
// format that is no [Demonstrator] is agl.ErrUnimplemented.
func (e *Engine) WarmStart(ctx context.Context, w WarmStart) (weights string, err error) {
	w = w.withDefaults()
	data, err := e.Demonstrations(ctx, w.Model.BaseModel, w.Path)
	if err != nil {
		return "", fmt.Errorf("warm start: %w", err)
	}
	source, err := sft.NewShuffled(data, w.Batch, w.Seed)
	if err != nil {
		return "", fmt.Errorf("warm start: %w", err)
	}
	result, err := sft.Train(ctx, sft.TrainConfig{
		Service: e.Service, Model: w.Model, Source: source, Steps: w.Steps, Schedule: w.Schedule,
		OutDir: w.OutDir, OnStep: w.OnStep, Logger: w.Logger,
	})
	if err != nil {
		return "", fmt.Errorf("warm start: %w", err)
	}
	return result.Weights, nil
}

// Demonstrations reads a file of conversations as a [WarmStart] of a base model
// does.
func (e *Engine) Demonstrations(ctx context.Context, baseModel, path string) (data []tinker.Datum, err error) {
	demonstrator, ok := e.Renderer.(Demonstrator)
	if !ok {
		return nil, agl.Errorf(agl.CodeUnimplemented, "the chat format of the model makes no demonstrations")
	}
	spec, err := e.Check(ctx, baseModel)
	if err != nil {
		return nil, err
	}
	reader, err := dataset.Open(path, dataset.Options{Format: dataset.FormatJSONL})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for record, err := range reader.Records() {
		if err != nil {
			return nil, err
		}
		var conversation struct {
			Messages []struct {
				Role    string `json:"role"`
				Content string `json:"content"`
			} `json:"messages"`
		}
		refuse := func(format string, args ...any) error {
			return agl.Errorf(agl.CodeInvalid, "%s: conversation %d: "+format, append([]any{path, len(data) + 1}, args...)...)
		}
		if err := json.Unmarshal(record, &conversation); err != nil {
			return nil, refuse("must be an object with messages, each of a role and a content: %w", err)
		}
		messages := make([]chat.Message, len(conversation.Messages))
		for i, m := range conversation.Messages {
			messages[i] = chat.Message{Role: m.Role, Content: m.Content}
		}
		datum, err := demonstrator.Demonstration(messages)
		if err != nil {
			return nil, refuse("%w", err)
		}
		if n := len(datum.Input); spec.Context > 0 && n > spec.Context {
			return nil, refuse("has %d tokens, the model's context is %d", n, spec.Context)
		}
		data = append(data, datum)
	}
	if len(data) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: %w: it has no conversation", path, dataset.ErrEmpty)
	}
	return data, nil
}
