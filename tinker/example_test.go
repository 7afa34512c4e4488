package tinker_test

import (
	"context"
	"fmt"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
)

// Train a model to continue 1 with 2, 3, 4, publish its weights, and sample them. Any [tinker.Service] will do; the
// embedded policy needs no server.
func Example() {
	ctx := context.Background()
	service, err := policy.NewService(policy.Config{Vocab: 8, Context: 8, Layers: 1, Dim: 16, Heads: 1, FF: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := service.CreateModel(ctx, tinker.CreateModelParams{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	sequence := []int32{1, 2, 3, 4}
	batch := []tinker.Datum{{Input: sequence[:3], Targets: sequence[1:]}}
	for range 40 {
		if _, err := model.ForwardBackward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.CrossEntropy}}); err != nil {
			fmt.Println(err)
			return
		}
		if _, err := model.OptimStep(ctx, tinker.AdamParams{LearningRate: 0.02}); err != nil {
			fmt.Println(err)
			return
		}
	}
	path, err := model.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "step-40"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(path)
	sampler, err := service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		fmt.Println(err)
		return
	}
	sampled, err := sampler.Sample(ctx, tinker.SampleParams{Prompt: sequence[:1], MaxTokens: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sampled.Sequences[0].Tokens, sampled.Sequences[0].StopReason)
	// Output:
	// tinker://agl-policy-1/sampler_weights/step-40
	// [2 3 4] length
}
