package agl_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// An agent is a function from a task to a result. Here it is called by hand; usually
// a runner does that, with tasks from a store.
func Example() {
	agent := agl.AgentFunc(func(_ context.Context, task agl.Task) (agl.Result, error) {
		var input struct {
			Question string `json:"question"`
			Want     string `json:"want"`
		}
		if err := task.DecodeInput(&input); err != nil {
			return agl.Result{}, err
		}
		llm, err := task.LLM()
		if err != nil {
			return agl.Result{}, err
		}
		fmt.Printf("ask %s at %s: %s\n", llm.Model, llm.Endpoint, input.Question)
		answer := "84" // from the model
		if answer != input.Want {
			return agl.RewardResult(0), nil
		}
		return agl.RewardResult(1), nil
	})

	result, err := agent.Run(context.Background(), agl.Task{
		Rollout:   agl.Rollout{RolloutID: "ro-1", Input: jsontext.Value(`{"question":"12 times 7","want":"84"}`)},
		Attempt:   agl.Attempt{RolloutID: "ro-1", AttemptID: "at-1"},
		Resources: agl.Resources{{Name: "main", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: "http://proxy/v1", Model: "policy"}}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("reward", result.Rewards[0].Value)
	// Output:
	// ask policy at http://proxy/rollout/ro-1/attempt/at-1/v1: 12 times 7
	// reward 1
}

// Nouns are read and written by any JSON library. Attributes stay as they are
// spelled, and keys that agl does not know are kept.
func ExampleSpan() {
	const document = `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":3,"trace_id":"0af7","span_id":"b7ad","parent_id":null,` +
		`"name":"agentlightning.annotation","status":{"status_code":"OK","description":null},` +
		`"attributes":{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1.0},"events":[],"links":[],` +
		`"start_time":1760706315.5,"end_time":null,"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""},"ours":true}`
	var span agl.Span
	if err := json.Unmarshal([]byte(document), &span); err != nil {
		log.Fatal(err)
	}
	reward, _ := span.Attributes.GetFloat("agentlightning.reward.0.value")
	fmt.Println(span.Name, span.StartTime.V.Time().Format("15:04:05"), reward)

	again, err := json.Marshal(span)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(again) == document)

	err = json.Unmarshal([]byte(`{"rollout_id":7}`), &span)
	fmt.Println(agl.ErrorCode(err), err)
	// Output:
	// agentlightning.annotation 13:05:15 1
	// true
	// invalid /rollout_id: Input should be a valid string, got 7
}
