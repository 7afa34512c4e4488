package algorithm_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// able is an engine that only says what it can do.
type able struct {
	tinker.Service

	can tinker.Capabilities
}

func (a able) Capabilities(context.Context) (tinker.Capabilities, error) { return a.can, nil }

func TestCheckEngine(t *testing.T) {
	t.Parallel()
	const mean, optimizer = "the engine does not sum losses", "restores the optimizer's state together with the initial weights"
	losses := []tinker.LossName{tinker.CrossEntropy, tinker.PPO}
	for name, tc := range map[string]struct {
		can     tinker.Capabilities
		needs   []tinker.LossName
		weights string
		lacks   string
		logs    []string
	}{
		"able":             {tinker.Capabilities{Losses: losses, SummedLoss: true, OptimizerOptional: true}, losses, "tinker://m/weights/w", "", nil},
		"less able":        {tinker.Capabilities{Losses: losses}, losses, "tinker://m/weights/w", "", []string{mean, optimizer}},
		"from a new model": {tinker.Capabilities{Losses: losses, SummedLoss: true}, losses, "", "", nil},
		"lacks a loss":     {tinker.Capabilities{Losses: losses}, []tinker.LossName{tinker.PPO, tinker.DRO}, "", `the engine has no loss "dro", only ["cross_entropy" "ppo"]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			_, err := algorithm.CheckEngine(t.Context(), able{can: tc.can}, tc.needs, tc.weights, slog.New(slog.NewTextHandler(&log, nil)))
			if tc.lacks != "" && (!errors.Is(err, agl.ErrUnimplemented) || err.Error() != tc.lacks) || tc.lacks == "" && err != nil {
				t.Errorf("error %v, want %s", err, tc.lacks)
			}
			if n := strings.Count(log.String(), "\n"); n != len(tc.logs) {
				t.Errorf("%d warnings, want %d: %s", n, len(tc.logs), log.String())
			}
			for _, want := range tc.logs {
				if !strings.Contains(log.String(), want) {
					t.Errorf("no warning that it %s: %s", want, log.String())
				}
			}
		})
	}
}
