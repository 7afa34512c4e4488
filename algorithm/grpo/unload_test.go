package grpo_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// TestEngineThatCannotUnload: a run that has done its steps has not failed because the engine keeps the models.
func TestEngineThatCannotUnload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	var log bytes.Buffer
	cfg := w.config("")
	cfg.Service, cfg.Steps, cfg.KL.Coefficient, cfg.Logger = tinkertest.Keeper{Service: w.service}, 1, 0.1, slog.New(slog.NewTextHandler(&log, nil))
	if err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t, task{Digit: 1})}); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the engine has not unloaded a model"); n != 2 {
		t.Errorf("%d warnings, want those of the model and its reference: %s", n, log.String())
	}
}
