// Command agent is the smallest agent: it answers tasks with the prompt that is
// being tuned, and rewards short answers. It runs offline.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
	"github.com/agl-go/agl/trainer"
)

// shout does one task: it fills the prompt, answers, and says how good that was.
func shout(ctx context.Context, task agl.Task) (agl.Result, error) {
	var question string
	if err := task.DecodeInput(&question); err != nil {
		return agl.Result{}, err
	}
	prompt, err := task.Resources.PromptTemplate()
	if err != nil {
		return agl.Result{}, err
	}
	// A real agent asks a model here: task.LLM() names the endpoint to call.
	answer := strings.ToUpper(strings.ReplaceAll(prompt.Template, "{question}", question))
	if _, err := tracer.EmitMessage(ctx, answer); err != nil {
		return agl.Result{}, err
	}
	return agl.RewardResult(1 - float64(len(answer))/100), nil
}

func main() {
	t, err := trainer.New(trainer.Config{
		Agent:            agl.AgentFunc(shout),
		Train:            agl.Tasks{[]byte(`"what is 12 times 7?"`), []byte(`"and 3 plus 4?"`)},
		InitialResources: agl.Resources{{Name: "greeting", Resource: agl.PromptTemplate{Template: "hey! {question}", Engine: agl.PromptFString}}},
		Logger:           slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err == nil {
		_, err = t.Dev(context.Background()) // try the agent before anything is trained
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}
