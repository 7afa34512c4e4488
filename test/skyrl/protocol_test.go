//go:build skyrl

package skyrl_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// sentence returns a datum of n tokens whose last half was written by the model.
func sentence(n, first int) tinker.Datum {
	d := tinker.Datum{Weights: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n)}
	for i := range n {
		d.Input = append(d.Input, int32((first+7*i)%vocab))
		d.Targets = append(d.Targets, int32((first+7*i+7)%vocab))
		if i >= n/2 {
			d.Weights[i], d.Logprobs[i], d.Advantages[i] = 1, -5.5, 1
		}
	}
	return d
}

func sum(losses [][]float32) (total float64) {
	for _, l := range losses {
		for _, v := range l {
			total += float64(v)
		}
	}
	return total
}

// session is a client with a model, and calls that end the test where they fail.
type session struct {
	*testing.T
	service tinker.Service
	model   tinker.TrainingClient
}

func (s session) forward(backward bool, loss tinker.LossName, data ...tinker.Datum) tinker.ForwardResult {
	s.Helper()
	call := s.model.Forward
	if backward {
		call = s.model.ForwardBackward
	}
	res, err := call(s.Context(), tinker.ForwardParams{Data: data, Loss: tinker.Loss{Name: loss}})
	if err != nil {
		s.Fatal(err)
	}
	return res
}

func (s session) step(rate float64) tinker.OptimStepResult {
	s.Helper()
	res, err := s.model.OptimStep(s.Context(), tinker.AdamParams{LearningRate: rate})
	if err != nil {
		s.Fatal(err)
	}
	return res
}

// publish returns a sampler of the model's current weights, and their path.
func (s session) publish(name string) (tinker.SamplingClient, string) {
	s.Helper()
	path, err := s.model.SaveWeightsForSampler(s.Context(), tinker.SaveWeightsParams{Name: name})
	if err != nil {
		s.Fatal(err)
	}
	sampler, err := s.service.NewSamplingClient(s.Context(), tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		s.Fatal(err)
	}
	return sampler, path
}

func (s session) sample(sampler tinker.SamplingClient, p tinker.SampleParams) []tinker.Sequence {
	s.Helper()
	res, err := sampler.Sample(s.Context(), p)
	if err != nil {
		s.Fatal(err)
	}
	return res.Sequences
}

// TestProtocol makes every call of the protocol, and checks that the capabilities that agl declares for this engine are true.
func TestProtocol(t *testing.T) {
	t.Parallel()
	skyrl := start(t)
	service := skyrl.connect(t)
	can, err := service.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(can.Models) != 1 || can.Models[0].Name != environment(t, "AGL_SKYRL_MODEL") {
		t.Fatalf("models: %v", can.Models)
	}
	model, err := service.CreateModel(t.Context(), tinker.CreateModelParams{LoRARank: 8, Seed: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	s := session{t, service, model}

	// Supervised training.
	batch := make([]tinker.Datum, 16)
	for k := range batch {
		batch[k] = sentence(16, 3*k)
	}
	first := s.forward(false, tinker.CrossEntropy, batch...)
	for range 30 {
		s.forward(true, tinker.CrossEntropy, batch...)
		s.step(0.01)
	}
	trained := s.forward(false, tinker.CrossEntropy, batch...)
	tokens := float64(len(batch) * 8)
	t.Logf("30 steps of cross_entropy: %.3f to %.3f a token", first.Loss/tokens, trained.Loss/tokens)
	if first.Loss/tokens < 4 || trained.Loss/tokens > 1 {
		t.Error("the model did not learn its sentences")
	}
	if again := s.forward(false, tinker.CrossEntropy, batch...); !cmp.Equal(again, trained) {
		t.Error("the same forward gave something else: not deterministic")
	}

	// Losses are sums, whatever this engine makes of a batch.
	for _, loss := range []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling, tinker.PPO, tinker.CISPO} {
		// Ratios within the clip bounds, so that all of them have a gradient.
		short, long := sentence(8, 1), sentence(16, 1)
		for _, d := range []*tinker.Datum{&short, &long} {
			copy(d.Logprobs, s.forward(false, loss, *d).Logprobs[0])
		}
		norm := func(data ...tinker.Datum) (float64, tinker.ForwardResult) {
			res := s.forward(true, loss, data...)
			return s.step(0).GradNorm, res
		}
		one, alone := norm(long)
		three, repeated := norm(long, long, long)
		if math.Abs(three/one-3) > 1e-3 {
			t.Errorf("%s: the gradient of three equal data is %.5f of one's", loss, three/one)
		}
		if math.Abs(repeated.Loss/alone.Loss-3) > 1e-5 || math.Abs(sum(repeated.Losses)-repeated.Loss) > 1e-5 {
			t.Errorf("%s: the loss of three equal data is %v, of one %v", loss, repeated.Loss, alone.Loss)
		}
		halved := long
		halved.Weights = slices.Clone(long.Weights)
		for i := range halved.Weights {
			halved.Weights[i] /= 2
		}
		half, _ := norm(halved)
		if math.Abs(half/one-0.5) > 1e-3 {
			t.Errorf("%s: the gradient with half the weights is %.5f of the whole", loss, half/one)
		}
		if _, err := model.ForwardBackward(t.Context(), tinker.ForwardParams{Data: []tinker.Datum{short, long}, Loss: tinker.Loss{Name: loss}}); err != nil {
			t.Fatal(err)
		}
		s.step(0)
	}

	// Samples are repeatable, and their log-probabilities are the trainer's.
	saved, err := model.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "trained"})
	if err != nil {
		t.Fatal(err)
	}
	before := s.forward(false, tinker.CrossEntropy, batch...)
	sampler, _ := s.publish("trained")
	ask := tinker.SampleParams{Prompt: batch[0].Input, MaxTokens: 8, NumSamples: 4, Temperature: 1, Seed: new(uint64(9007199254740993))}
	drawn := s.sample(sampler, ask)
	if again := s.sample(sampler, ask); !cmp.Equal(again, drawn) {
		t.Error("the same seed drew something else")
	}
	if len(drawn) != ask.NumSamples {
		t.Fatalf("%d samples, want %d", len(drawn), ask.NumSamples)
	}
	for _, seq := range drawn {
		d := tinker.Datum{Input: slices.Concat(ask.Prompt, seq.Tokens[:len(seq.Tokens)-1]), Weights: make([]float32, len(ask.Prompt)+len(seq.Tokens)-1)}
		d.Targets = slices.Concat(ask.Prompt[1:], seq.Tokens)
		got := s.forward(false, tinker.CrossEntropy, d).Logprobs[0][len(ask.Prompt)-1:]
		for i, lp := range seq.Logprobs {
			if math.Abs(float64(lp-got[i])) > 1e-3 {
				t.Errorf("token %d was sampled with %v and is trained with %v", i, lp, got[i])
			}
		}
	}
	greedy := s.sample(sampler, tinker.SampleParams{Prompt: batch[0].Input, MaxTokens: 8, Stop: []int32{batch[0].Targets[15]}})[0]
	if len(greedy.Tokens) != 1 || greedy.StopReason != tinker.StopToken {
		t.Errorf("the learned sentence goes on with %v, stopped for %q", greedy.Tokens, greedy.StopReason)
	}

	// A snapshot that no longer has the model's weights must be refused, and not sampled as if it had.
	s.forward(true, tinker.CrossEntropy, batch...)
	s.step(0.01)
	if _, err := sampler.Sample(t.Context(), ask); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("sampling an old snapshot: %v", err)
	}

	// The client must refuse requests that this engine would accept although they damage its state.
	for name, d := range map[string]tinker.Datum{"beyond the vocabulary": {Input: []int32{vocab}, Targets: []int32{0}}, "empty": {}} {
		if _, err := model.ForwardBackward(t.Context(), tinker.ForwardParams{Data: []tinker.Datum{d}, Loss: tinker.Loss{Name: tinker.CrossEntropy}}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Loading restores the weights and the optimizer, and an unstepped gradient is gone; with the model, too.
	s.forward(true, tinker.CrossEntropy, batch...)
	if err := model.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: saved, WithOptimizer: true}); err != nil {
		t.Fatal(err)
	}
	if after := s.forward(false, tinker.CrossEntropy, batch...); !cmp.Equal(after, before) {
		t.Error("the loaded weights are not those that were saved")
	}
	if norm := s.step(0).GradNorm; norm != 0 {
		t.Errorf("a gradient of %v outlived the load", norm)
	}
	s.forward(true, tinker.CrossEntropy, batch...)
	if err := model.Unload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.model, err = service.CreateModel(t.Context(), tinker.CreateModelParams{LoRARank: 8, Seed: 2}); err != nil {
		t.Fatal(err)
	}
	if norm := s.step(0).GradNorm; norm != 0 {
		t.Errorf("a new model begins with a gradient of %v", norm)
	}

	// Checkpoints outlive the server, models and snapshots do not.
	skyrl.kill(t)
	skyrl.restart(t)
	fresh := skyrl.connect(t)
	if s.model, err = fresh.CreateModel(t.Context(), tinker.CreateModelParams{LoRARank: 8, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	if err := s.model.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: saved, WithOptimizer: true}); err != nil {
		t.Fatal(err)
	}
	if after := s.forward(false, tinker.CrossEntropy, batch...); !cmp.Equal(after, before) {
		t.Error("the weights that were loaded after a restart are not those that were saved")
	}
	if _, err := model.OptimStep(t.Context(), tinker.AdamParams{}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("a model of before the restart: %v", err)
	}
	s.step(0)
}
