package grpo

import (
	"errors"
	"math"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
)

func demonstrations(n int) []tinker.Datum {
	data := make([]tinker.Datum, n)
	for i := range data {
		data[i] = tinker.Datum{Input: []int32{int32(i), 1, 2}, Targets: []int32{1, 2, 3}, Weights: []float32{0, 1, 1}}
	}
	return data
}

// The demonstrations of a step weigh what is set, whatever their length; all come in turn, the same ones after a restart, and the
// caller's stay as they are.
func TestAnchorDraws(t *testing.T) {
	t.Parallel()
	a := &Anchor{Data: demonstrations(5), PerStep: 2, Weight: 0.3}
	seen := map[int32]int{}
	for step := 1; step <= 5; step++ {
		batch, sum := a.of(step, 7), 0.0
		for i, d := range batch {
			seen[d.Input[0]]++
			if again := a.of(step, 7); again[i].Input[0] != d.Input[0] {
				t.Errorf("step %d draws another demonstration the second time", step)
			}
			for _, w := range d.Weights {
				sum += float64(w)
			}
		}
		if len(batch) != 2 || math.Abs(sum-0.3) > 1e-6 {
			t.Errorf("step %d has %d demonstrations of the weight %v, want 2 and 0.3", step, len(batch), sum)
		}
	}
	for i := range int32(5) {
		if seen[i] != 2 {
			t.Errorf("demonstration %d was drawn %d times in five steps of two, want twice", i, seen[i])
		}
	}
	if a.Data[0].Weights[1] != 1 {
		t.Error("the caller's weights have changed")
	}
	if other := a.of(1, 8); other[0].Input[0] == a.of(1, 7)[0].Input[0] && other[1].Input[0] == a.of(1, 7)[1].Input[0] {
		t.Error("the order does not depend on the seed")
	}
	if got := (&Anchor{Data: demonstrations(2), PerStep: 8, Weight: 1}).of(3, 1); len(got) != 2 {
		t.Errorf("%d demonstrations of 2", len(got))
	}
}

// With an anchor the weights move towards the demonstrations although nothing else pulls them there.
func TestAnchorTeaches(t *testing.T) {
	t.Parallel()
	service, err := policy.NewService(policy.Config{Vocab: 8, Context: 8, Layers: 1, Dim: 16, Heads: 1, FF: 16})
	if err != nil {
		t.Fatal(err)
	}
	client, err := service.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{TrainingConfig: algorithm.TrainingConfig{Service: service, Schedule: algorithm.Schedule{Peak: 0.02, Floor: 0.02}}, Steps: 100, Anchor: &Anchor{Data: demonstrations(4)}}.withDefaults()
	u := updater{cfg: cfg, client: client}
	var losses []float64
	for step := 1; step <= 30; step++ {
		report := StepReport{Step: step}
		reward := tinker.Datum{Input: []int32{7, 7, 7}, Targets: []int32{7, 7, 7}, Weights: []float32{1, 1, 1}, Logprobs: []float32{-2, -2, -2}, Advantages: []float32{0, 0, 0}}
		update := u.begin(&report)
		if err := update.train(t.Context(), t.Context(), []tinker.Datum{reward}); err != nil {
			t.Fatal(err)
		}
		update.end()
		losses = append(losses, report.AnchorLoss)
	}
	if first, last := losses[0], losses[len(losses)-1]; math.Abs(first-math.Log(8)) > 1 || last > first/4 {
		t.Errorf("−log π of the demonstrations went from %v to %v, want from about log 8 to less than a quarter", first, last)
	}
}

func TestAnchorSettings(t *testing.T) {
	t.Parallel()
	service, err := policy.NewService(policy.Config{Vocab: 8})
	if err != nil {
		t.Fatal(err)
	}
	broken := demonstrations(2)
	broken[1].Weights = broken[1].Weights[:1]
	for name, anchor := range map[string]*Anchor{
		"no data": {}, "per step": {Data: demonstrations(1), PerStep: -1}, "weight": {Data: demonstrations(1), Weight: math.Inf(1)}, "broken": {Data: broken},
	} {
		if _, err := New(Config{TrainingConfig: algorithm.TrainingConfig{Service: service}, Steps: 1, Anchor: anchor}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
