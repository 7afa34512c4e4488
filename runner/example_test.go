package runner_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/tracer"
)

// An agent is a function from a task to a reward. What it does on the way is
// recorded through its context.
func shout(ctx context.Context, task agl.Task) (agl.Result, error) {
	var question string
	if err := task.DecodeInput(&question); err != nil {
		return agl.Result{}, err
	}
	prompt, err := task.Resources.PromptTemplate()
	if err != nil {
		return agl.Result{}, err
	}
	// A real agent asks a model here, through an HTTP client with a tracer.Transport.
	answer := strings.ToUpper(strings.ReplaceAll(prompt.Template, "{question}", question))
	if _, err := tracer.EmitMessage(ctx, answer); err != nil {
		return agl.Result{}, err
	}
	return agl.RewardResult(float64(len(answer)) / 100), nil
}

func Example() {
	ctx := context.Background()
	db, err := openMemory(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	r, err := runner.New(runner.Config{Store: db, Agent: agl.AgentFunc(shout)})
	if err != nil {
		fmt.Println(err)
		return
	}
	rollout, err := r.Step(ctx, runner.StepParams{
		EnqueueRollout: agl.EnqueueRollout{Input: []byte(`"what is 12 times 7?"`)},
		Resources:      agl.Resources{{Name: "p", Resource: agl.PromptTemplate{Template: "hey! {question}", Engine: agl.PromptFString}}},
	})
	fmt.Println(rollout.Status, err)
	spans, err := db.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: rollout.RolloutID})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, span := range spans.Items[:2] {
		fmt.Println(span.SequenceID, span.Name, string(span.Attributes))
	}
	// Output:
	// succeeded <nil>
	// 1 agentlightning.message {"agentlightning.message.body":"HEY! WHAT IS 12 TIMES 7?"}
	// 2 agentlightning.annotation {"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.24}
}

func openMemory(ctx context.Context) (*store.Store, error) {
	driver, err := memory.New(memory.Config{})
	if err != nil {
		return nil, err
	}
	return store.New(ctx, store.Config{Driver: driver})
}
