package runner_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/tracer"
)

// An agent is a function from a task to a reward. What it does on the way is
// recorded through its context.
func Example() {
	agent := agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
		var question string
		if err := task.DecodeInput(&question); err != nil {
			return agl.Result{}, err
		}
		prompt, err := task.Resources.PromptTemplate()
		if err != nil {
			return agl.Result{}, err
		}
		answer := strings.ReplaceAll(prompt.Template, "{question}", question) // a real agent asks a model
		if _, err := tracer.EmitMessage(ctx, answer); err != nil {
			return agl.Result{}, err
		}
		return agl.RewardResult(float64(len(answer)) / 100), nil
	})

	ctx := context.Background()
	driver, err := memory.New(memory.Config{})
	if err != nil {
		log.Fatal(err)
	}
	db, err := store.New(ctx, store.Config{Driver: driver})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	r, err := runner.New(runner.Config{Store: db, Agent: agent})
	if err != nil {
		log.Fatal(err)
	}
	rollout, err := r.Step(ctx, runner.StepParams{
		EnqueueRollout: agl.EnqueueRollout{Input: []byte(`"what is 12 times 7?"`)},
		Resources:      agl.Resources{{Name: "p", Resource: agl.PromptTemplate{Template: "Think, then answer: {question}", Engine: agl.PromptFString}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	spans, err := db.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: rollout.RolloutID})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rollout.Status)
	for _, span := range spans.Items[:2] {
		fmt.Println(span.SequenceID, span.Name, string(span.Attributes))
	}
	// Output:
	// succeeded
	// 1 agentlightning.message {"agentlightning.message.body":"Think, then answer: what is 12 times 7?"}
	// 2 agentlightning.annotation {"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.39}
}
