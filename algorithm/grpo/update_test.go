package grpo

import (
	"context"
	"testing"

	"github.com/agl-go/agl/tinker"
)

// ledger is a model whose losses are 3 and 5, and whose gradients are 1 and 2 long.
type ledger struct {
	tinker.TrainingClient

	steps int
}

func (l *ledger) ForwardBackward(context.Context, tinker.ForwardParams) (tinker.ForwardResult, error) {
	return tinker.ForwardResult{Loss: float64(3 + 2*l.steps)}, nil
}

func (l *ledger) OptimStep(context.Context, tinker.AdamParams) (tinker.OptimStepResult, error) {
	l.steps++
	return tinker.OptimStepResult{GradNorm: float64(l.steps)}, nil
}

// A step reports the mean loss and the mean norm of its updates, however many there are.
func TestMeanOfMinibatches(t *testing.T) {
	t.Parallel()
	d, _ := datum(trajectory(), 1, []float32{1, 1})
	u := updater{cfg: Config{Minibatches: 2, Steps: 1}.withDefaults(), client: &ledger{}}
	report := StepReport{Step: 1}
	if err := u.update(t.Context(), []tinker.Datum{d, d, d}, &report); err != nil {
		t.Fatal(err)
	}
	if report.Updates != 2 || report.Loss != 4 || report.GradNorm != 1.5 {
		t.Errorf("%d updates of loss %v and norm %v, want 2 of 4 and 1.5", report.Updates, report.Loss, report.GradNorm)
	}
}
