package grpo_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// loaded is an engine that cannot unload.
type loaded struct{ tinker.Service }

func (l loaded) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	client, err := l.Service.CreateModel(ctx, p)
	return loadedModel{client}, err
}

type loadedModel struct{ tinker.TrainingClient }

func (loadedModel) Unload(context.Context) error { return agl.Errorf(agl.CodeNotFound, "no such call") }

// TestEngineThatCannotUnload: a run that has done its steps has not failed because the engine keeps the models.
func TestEngineThatCannotUnload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	var log bytes.Buffer
	cfg := w.config("")
	cfg.Service, cfg.Steps, cfg.KL.Coefficient, cfg.Logger = loaded{w.service}, 1, 0.1, slog.New(slog.NewTextHandler(&log, nil))
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Digit: 1})}); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the engine has not unloaded a model"); n != 2 {
		t.Errorf("%d warnings, want those of the model and its reference: %s", n, log.String())
	}
}
