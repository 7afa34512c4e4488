// Command go trains a model inside an agent that is a function of this program.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/trainer/job"
)

// answer does one task: it asks the model, and says how good the reply was.
func answer(ctx context.Context, task agl.Task) (agl.Result, error) {
	var line struct {
		Question string `json:"question"`
		Answer   string `json:"answer"`
	}
	if err := task.DecodeInput(&line); err != nil {
		return agl.Result{}, err
	}
	model, err := task.LLM()
	if err != nil {
		return agl.Result{}, err
	}
	client := openai.NewClient(option.WithBaseURL(model.Endpoint), option.WithAPIKey(model.APIKey.V))
	reply, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: model.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(line.Question)}, MaxTokens: openai.Int(4),
	})
	if err != nil {
		return agl.Result{}, err
	}
	if strings.TrimSpace(reply.Choices[0].Message.Content) == line.Answer {
		return agl.RewardResult(1), nil
	}
	return agl.RewardResult(0), nil
}

func main() {
	ctx, stop := execution.NotifyContext(context.Background())
	_, err := job.Train(ctx, "agl.yaml", agl.AgentFunc(answer))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(execution.ExitCode(err))
}
