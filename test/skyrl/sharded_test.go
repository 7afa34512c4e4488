//go:build skyrl

package skyrl_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker"
)

// learned is the result of the training on one engine.
type learned struct {
	losses, norms []float64
	reply         []int32
}

// learn trains a model, first on sentences and then by a policy gradient, and samples from it.
func learn(t *testing.T, skyrl *server) (l learned) {
	t.Helper()
	service := skyrl.connect(t)
	model, err := service.CreateModel(t.Context(), tinker.CreateModelParams{LoRARank: 8, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	s := session{t, service, model}
	batch := make([]tinker.Datum, 16)
	for k := range batch {
		batch[k] = sentence(16, 3*k)
	}
	for i := range 20 {
		loss := tinker.CrossEntropy
		if i >= 15 {
			loss = tinker.ImportanceSampling
			for k, logprobs := range s.forward(false, loss, batch...).Logprobs {
				copy(batch[k].Logprobs, logprobs)
			}
		}
		l.losses = append(l.losses, s.forward(true, loss, batch...).Loss)
		l.norms = append(l.norms, s.step(0.01).GradNorm)
	}
	saved, err := model.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "learned"})
	if err != nil {
		t.Fatal(err)
	}
	before := s.forward(false, tinker.CrossEntropy, batch...)
	s.forward(true, tinker.CrossEntropy, batch...)
	s.step(0.01)
	if err := model.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: saved, WithOptimizer: true}); err != nil {
		t.Fatal(err)
	}
	if after := s.forward(false, tinker.CrossEntropy, batch...); !cmp.Equal(after, before) {
		t.Error("the loaded weights are not those that were saved")
	}
	sampler, _ := s.publish("learned")
	l.reply = s.sample(sampler, tinker.SampleParams{Prompt: batch[0].Input[:12], MaxTokens: 4})[0].Tokens
	return l
}

// TestShardedOptimizer trains a model whose weights and optimizer are sharded over two devices (FSDP), and compares the result
// with that of one device.
func TestShardedOptimizer(t *testing.T) {
	t.Parallel()
	if os.Getenv("AGL_SKYRL_GPUS") == "1" {
		t.Skip("two devices are needed, and there is one GPU")
	}
	one, two := learn(t, startSharded(t, 1)), learn(t, startSharded(t, 2))
	const tolerance = 2e-2 // sums have another order, and each step goes on from the one before
	for name, pair := range map[string][2][]float64{"loss": {one.losses, two.losses}, "norm of the gradient": {one.norms, two.norms}} {
		for i, want := range pair[0] {
			if got := pair[1][i]; math.Abs(got-want) > tolerance*math.Max(1, math.Abs(want)) {
				t.Errorf("step %d: the %s is %v, on one device %v", i+1, name, got, want)
			}
		}
	}
	if first, last := two.losses[0], two.losses[14]; last > first/3 {
		t.Errorf("the loss went from %v to %v in 15 steps", first, last)
	}
	if fmt.Sprint(one.reply) != fmt.Sprint(two.reply) {
		t.Errorf("the reply is %v, on one device %v", two.reply, one.reply)
	}
	t.Logf("losses on one device and on two: %.3f %.3f", one.losses, two.losses)
}
