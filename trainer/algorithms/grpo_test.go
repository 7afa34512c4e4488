package algorithms

import (
	"testing"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/tinker"
)

// The engine's defaults hold where the run file is silent.
func TestGRPODefaultsOfTheEngine(t *testing.T) {
	t.Parallel()
	pretrained := Parts{Training: algorithm.TrainingConfig{Schedule: PretrainedSchedule(), Adam: tinker.AdamParams{Beta2: PretrainedBeta2}}}
	own := algorithm.TrainingConfig{Schedule: algorithm.Schedule{Peak: 1e-2, Floor: 1e-3}, Adam: tinker.AdamParams{Beta2: 0.9}}
	for name, test := range map[string]struct {
		file        algorithm.TrainingConfig
		parts       Parts
		peak, beta2 float64
	}{
		"embedded":   {algorithm.TrainingConfig{}, Parts{}, 0, 0}, // those of algorithm.TrainingConfig
		"pretrained": {algorithm.TrainingConfig{}, pretrained, 4e-5, 0.95},
		"named":      {own, pretrained, 1e-2, 0.9},
	} {
		a := GRPO{Config: grpo.Config{TrainingConfig: test.file}}
		if c := a.configure(test.parts); c.Schedule.Peak != test.peak || c.Adam.Beta2 != test.beta2 {
			t.Errorf("%s: learning rate %v and beta2 %v, want %v and %v", name, c.Schedule.Peak, c.Adam.Beta2, test.peak, test.beta2)
		}
	}
}

// Without a learning rate in the run file a live run has a constant one, whether it has an end or not.
func TestOnlineDefaultRate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps int
		parts Parts
		want  float64
	}{
		"with an end":    {steps: 10, want: 1e-3},
		"without an end": {want: 1e-3},
		"pretrained":     {steps: 10, parts: Parts{Training: algorithm.TrainingConfig{Schedule: PretrainedSchedule()}}, want: 4e-5},
	} {
		var a Online
		a.Steps = test.steps
		run, err := a.New(test.parts)
		if err != nil {
			t.Fatal(err)
		}
		schedule := run.(*onlineRun).config.TrainingConfig.WithDefaults().Schedule //nolint:forcetypeassert // New makes no other
		if first, last := schedule.Rate(0, 10), schedule.Rate(9, 10); first != test.want || last != test.want {
			t.Errorf("%s: the learning rate goes from %v to %v, want %v", name, first, last, test.want)
		}
	}
}
