package policy_test

import (
	"context"
	"fmt"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
)

// A model learns to count to 6. The numbers are the same on every machine.
func Example() {
	if err := learnToCount(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 0: loss 10.074
	// step 20: loss 0.034
	// step 40: loss 0.004
	// tinker://agl-policy-1/sampler_weights/final [3 4 5 6]
}

func learnToCount(ctx context.Context) error {
	service, err := policy.NewService(policy.Config{Vocab: 8, Context: 8, Layers: 1, Dim: 16, Heads: 1, FF: 16})
	if err != nil {
		return err
	}
	model, err := service.CreateModel(ctx, tinker.CreateModelParams{Seed: 1})
	if err != nil {
		return err
	}
	batch := tinker.ForwardParams{
		Loss: tinker.Loss{Name: tinker.CrossEntropy},
		Data: []tinker.Datum{{Input: []int32{1, 2, 3, 4, 5}, Targets: []int32{2, 3, 4, 5, 6}}},
	}
	for step := range 41 {
		result, err := model.ForwardBackward(ctx, batch)
		if err != nil {
			return err
		}
		if step%20 == 0 {
			fmt.Printf("step %d: loss %.3f\n", step, result.Loss)
		}
		if _, err := model.OptimStep(ctx, tinker.AdamParams{LearningRate: 0.02}); err != nil {
			return err
		}
	}
	path, err := model.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "final"})
	if err != nil {
		return err
	}
	sampler, err := service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		return err
	}
	sampled, err := sampler.Sample(ctx, tinker.SampleParams{Prompt: []int32{1, 2}, MaxTokens: 5, Stop: []int32{6}})
	if err != nil {
		return err
	}
	fmt.Println(path, sampled.Sequences[0].Tokens)
	return nil
}
