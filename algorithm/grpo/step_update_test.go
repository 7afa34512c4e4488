package grpo

import (
	"context"
	"slices"
	"testing"

	"github.com/agl-go/agl/tinker"
)

// ledger is a model whose losses are 3 and 5, and whose gradients are 1 and 2 long.
type ledger struct {
	tinker.TrainingClient

	steps int
}

func (l *ledger) ForwardBackward(_ context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res := tinker.ForwardResult{Loss: float64(3 + 2*l.steps)}
	for _, d := range p.Data {
		res.Logprobs = append(res.Logprobs, d.Logprobs)
	}
	return res, nil
}

func (l *ledger) OptimStep(context.Context, tinker.AdamParams) (tinker.OptimStepResult, error) {
	l.steps++
	return tinker.OptimStepResult{GradNorm: float64(l.steps)}, nil
}

// Forward finds each token half a nat less likely than the sampler did.
func (*ledger) Forward(_ context.Context, p tinker.ForwardParams) (res tinker.ForwardResult, err error) {
	for _, d := range p.Data {
		logprobs := slices.Clone(d.Logprobs)
		for i := range logprobs {
			logprobs[i] -= 0.5
		}
		res.Logprobs = append(res.Logprobs, logprobs)
	}
	return res, nil
}

// A correction that changes the denominator of the ratio does not hide how far sampler and trainer are apart.
func TestGapWithCorrection(t *testing.T) {
	t.Parallel()
	for _, rule := range correctionRules {
		d, _ := datum(trajectory(), 1, []float32{1, 1})
		cfg := Config{Steps: 1, Correction: Correction{Kind: rule.kind, Low: rule.low / 2, High: 2}}.withDefaults()
		u := updater{cfg: cfg, client: &ledger{}}
		report := StepReport{Step: 1}
		step := u.begin(&report)
		if err := step.train(t.Context(), t.Context(), []tinker.Datum{d}); err != nil {
			t.Fatal(err)
		}
		step.end()
		want := 0.0 // ledger's trainer has what it is given
		if rule.weighs {
			want = 0.5
		}
		if report.Updates != 1 || report.LogprobGap != (Gap{Mean: want, Max: want}) {
			t.Errorf("%s: %d updates, gap %v; want 1, and %v", rule.kind, report.Updates, report.LogprobGap, want)
		}
	}
}

// A step reports the mean loss and the mean norm of its updates, however many there are.
func TestMeanOfMinibatches(t *testing.T) {
	t.Parallel()
	d, _ := datum(trajectory(), 1, []float32{1, 1})
	u := updater{cfg: Config{Minibatches: 2, Steps: 1}.withDefaults(), client: &ledger{}}
	report := StepReport{Step: 1}
	step := u.begin(&report)
	if err := step.train(t.Context(), t.Context(), []tinker.Datum{d, d, d}); err != nil {
		t.Fatal(err)
	}
	step.end()
	if report.Updates != 2 || report.Loss != 4 || report.GradNorm != 1.5 {
		t.Errorf("%d updates of loss %v and norm %v, want 2 of 4 and 1.5", report.Updates, report.Loss, report.GradNorm)
	}
}

// An optimizer step follows its last part, with data or without, unless none of its parts has any.
func TestParts(t *testing.T) {
	t.Parallel()
	d, _ := datum(trajectory(), 1, []float32{1, 1})
	engine := &ledger{}
	u := updater{cfg: Config{Minibatches: 2, Steps: 1, Async: Async{Minibatches: 4}}.withDefaults(), client: engine}
	for name, tc := range map[string]struct {
		parts [4][]tinker.Datum
		want  int
	}{
		"all": {[4][]tinker.Datum{{d}, {d}, {d}, {d}}, 2}, "first": {[4][]tinker.Datum{{d}, nil, nil, nil}, 1},
		"last": {[4][]tinker.Datum{nil, nil, nil, {d}}, 1}, "none": {[4][]tinker.Datum{}, 0},
	} {
		engine.steps = 0
		report := StepReport{Step: 1}
		step := u.begin(&report)
		for _, data := range tc.parts {
			if err := step.train(t.Context(), t.Context(), data); err != nil {
				t.Fatal(err)
			}
		}
		step.end()
		if report.Updates != tc.want || engine.steps != tc.want || (report.Drift != nil) != (tc.want > 0) {
			t.Errorf("%s: %d updates, and %d in the report %+v; want %d", name, engine.steps, report.Updates, report, tc.want)
		}
	}
}
