package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// WarmStart is supervised training on conversations before reinforcement learning.
// The model learns the messages of the assistant.
type WarmStart struct {
	// Path is a JSONL file of {"messages": [{"role": …, "content": …}, …]}. Required.
	Path string
	// Steps and Batch, in conversations; zero means DefaultWarmSteps and 32.
	Steps, Batch int
	// Schedule is the learning rate; a zero Peak means 3e-3, falling to 0, after a
	// warm-up of a tenth of the steps, at most 100.
	Schedule algorithm.Schedule
	// Model describes the model to create.
	Model tinker.CreateModelParams
	// Seed decides the order of the conversations.
	Seed uint64
	// OutDir holds checkpoints, from which a later run with the same settings resumes;
	// empty keeps none.
	OutDir string
	// OnStep is called after each step; nil does nothing.
	OnStep func(sft.StepReport)
	// Logger gets information for people; nil discards it.
	Logger *slog.Logger
}

// DefaultWarmSteps is the number of steps of a [WarmStart] that names none.
const DefaultWarmSteps = 1200

func (w WarmStart) withDefaults() WarmStart {
	const batch, peak, rise = 32, 3e-3, 100
	w.Steps = cmp.Or(w.Steps, DefaultWarmSteps)
	w.Batch = cmp.Or(w.Batch, batch)
	if w.Schedule.Peak == 0 {
		w.Schedule = algorithm.Schedule{Peak: peak, Warmup: min(rise, w.Steps/10)}
	}
	return w
}

// Demonstrator is a chat format that makes training data of conversations.
type Demonstrator interface {
	// Demonstration gives the tokens of the assistant's messages weight 1, all others 0.
	Demonstration(messages []chat.Message) (tinker.Datum, error)
}

var _ Demonstrator = (*chat.RoleMarks)(nil)

// WarmStart trains and returns the path of the weights. A conversation that the model cannot read, because of its characters, roles, tool
// calls or length, or with a message that has no content, is agl.ErrInvalid. A
// chat format that is no [Demonstrator] is agl.ErrUnimplemented.
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
		return nil, agl.Errorf(agl.CodeUnimplemented, "the chat format of the model cannot make training data of conversations")
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
			Messages []chat.Message `json:"messages"`
		}
		refuse := func(format string, args ...any) error {
			return agl.Errorf(agl.CodeInvalid, "%s: conversation %d: "+format, append([]any{path, len(data) + 1}, args...)...)
		}
		if err := json.Unmarshal(record, &conversation); err != nil {
			return nil, refuse("must be an object with messages, each with a role and a content: %w", err)
		}
		for i, m := range conversation.Messages {
			if content, there := rawjson.Get(m.Raw, "content"); len(m.ToolCalls) == 0 && (!there || content.Kind() == 'n') {
				return nil, refuse("messages[%d] has no content", i)
			}
		}
		datum, err := demonstrator.Demonstration(conversation.Messages)
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
