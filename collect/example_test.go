package collect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
)

// greeting is the part of a service that answers its users. Their answer to a greeting is
// its reward: these like politeness.
func greeting(_ context.Context, task agl.Task) (agl.Result, error) {
	style, _ := task.Resources.Get("style")
	if prompt, ok := style.(agl.PromptTemplate); ok && prompt.Template == "polite" {
		return agl.RewardResult(1), nil
	}
	return agl.RewardResult(0), nil
}

// A service does its work whenever its users ask and reports it; an algorithm waits until
// there is enough of it, and updates what the service works with.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		panic(err)
	}
	defer engine.Close(ctx)

	use := func(style string) (id string) {
		update, err := engine.AddResources(ctx, agl.AddResourcesParams{Resources: agl.Resources{
			{Name: "style", Resource: agl.PromptTemplate{Template: style, Engine: agl.PromptFString}},
		}})
		if err != nil {
			panic(err)
		}
		return update.ResourcesID
	}
	current := use("rude")

	// The service.
	service, err := runner.New(runner.Config{Store: engine, Agent: agl.AgentFunc(greeting), HeartbeatInterval: -1})
	if err != nil {
		panic(err)
	}
	serving, closeService := context.WithCancel(ctx)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for user := 0; serving.Err() == nil; user++ {
			_, err := service.Step(serving, runner.StepParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(fmt.Sprint(user))}})
			if err != nil && serving.Err() == nil {
				panic(err)
			}
		}
	}()

	// The algorithm.
	collector, err := collect.New(collect.Config{Store: engine})
	if err != nil {
		panic(err)
	}
	cursor := ""
	for _, next := range []string{"short", "polite", ""} {
		// What was done with an earlier style is not judged as this one.
		batch, err := collector.Collect(ctx, agl.CollectParams{
			Since: cursor, Min: 10, MaxWait: time.Minute, Filter: agl.CollectFilter{ResourcesIDIn: []string{current}},
		})
		if err != nil {
			panic(err)
		}
		cursor = batch.Next // save it with what was learned
		best := 0.0
		for _, r := range batch.Rollouts {
			best = max(best, r.Reward.V)
		}
		fmt.Printf("enough rollouts: %t, best reward %v\n", len(batch.Rollouts) >= 10, best)
		if next != "" {
			current = use(next)
		}
	}
	closeService()
	<-closed
	// Output:
	// enough rollouts: true, best reward 0
	// enough rollouts: true, best reward 0
	// enough rollouts: true, best reward 1
}
