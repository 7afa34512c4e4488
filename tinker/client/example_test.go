package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/server"
)

// Serve an engine over HTTP and train on it: a [client.Client] is a [tinker.Service] like the engine itself.
func Example() {
	ctx := context.Background()
	engine, err := policy.NewService(policy.Config{Vocab: 8, Context: 8, Layers: 1, Dim: 16, Heads: 1, FF: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := server.New(server.Config{Service: engine})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	web := httptest.NewServer(handler)
	defer web.Close()

	c, err := client.New(client.Config{URL: web.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	can, err := c.Capabilities(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(can.Models[0].Name, can.Losses)
	model, err := c.CreateModel(ctx, tinker.CreateModelParams{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := []tinker.Datum{{Input: []int32{1, 2, 3}, Targets: []int32{2, 3, 4}}}
	var first, last float64
	for range 20 {
		forward, err := model.ForwardBackward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.CrossEntropy}})
		if err != nil {
			fmt.Println(err)
			return
		}
		step, err := model.OptimStep(ctx, tinker.AdamParams{LearningRate: 0.02})
		if err != nil {
			fmt.Println(err)
			return
		}
		if last = forward.Loss; step.Step == 1 {
			first = last
		}
	}
	fmt.Println("the loss is a tenth:", last < first/10)
	// Output:
	// agl-policy [cross_entropy importance_sampling ppo cispo dro]
	// the loss is a tenth: true
}
