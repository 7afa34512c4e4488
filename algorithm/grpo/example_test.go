package grpo_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/engine"
)

// say asks the model for one character, and rewards an a.
func say(ctx context.Context, task agl.Task) (agl.Result, error) {
	reply, err := ask(ctx, task)
	if err != nil || reply != "a" {
		return agl.RewardResult(0), err
	}
	return agl.RewardResult(1), nil
}

// ask asks the model that the task names.
func ask(ctx context.Context, task agl.Task) (string, error) {
	model, err := task.LLM()
	if err != nil {
		return "", err
	}
	seed, _ := agl.Attributes(task.Rollout.Metadata).GetInt(algorithm.MetadataSeed)
	body := fmt.Sprintf(`{"model":%q,"seed":%d,"max_tokens":1,"messages":[{"role":"user","content":"say"}]}`, model.Model, seed)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, model.Endpoint+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+model.APIKey.V)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var reply struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(text, &reply); err != nil || len(reply.Choices) == 0 {
		return "", fmt.Errorf("%s: %s", response.Status, text)
	}
	return reply.Choices[0].Message.Content, nil
}

// A model with random weights learns to say a. The engine trains it and serves it, the
// proxy records the agent's calls with their tokens, and the trainer runs all of it.
func Example() {
	ctx := context.Background()
	model, err := engine.NewPolicy(engine.PolicyConfig{Policy: policy.Config{Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16}, Characters: "abcdefgsy "})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close(ctx)
	llm := trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Models: []proxy.Model{model.Model()}, Transport: model.Transport(nil)}})
	config := grpo.Config{Steps: 20, PromptsPerStep: 1, GroupSize: 16}
	config.Seed, config.Flusher = 1, llm
	var rate float64
	config.OnStep = func(r grpo.StepReport) { rate = r.PassRate }
	config.Service, config.Publisher, config.Schedule.Peak = model.Service, model.Publisher(llm), 0.02
	learn, err := grpo.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := trainer.New(trainer.Config{
		Agent: agl.AgentFunc(say), Algorithm: learn, Train: agl.Tasks{[]byte(`{}`)}, Proxy: llm, Database: "memory:", Runners: 4,
	})
	if err == nil {
		err = t.Fit(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("nearly always a:", rate > 0.9)
	// Output: nearly always a: true
}
