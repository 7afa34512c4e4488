package trainer_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer"
)

// shout is an agent that answers in capitals and rewards short answers.
func shout(_ context.Context, task agl.Task) (agl.Result, error) {
	var question string
	if err := task.DecodeInput(&question); err != nil {
		return agl.Result{}, err
	}
	prompt, err := task.Resources.PromptTemplate()
	if err != nil {
		return agl.Result{}, err
	}
	answer := strings.ToUpper(strings.ReplaceAll(prompt.Template, "{question}", question))
	return agl.RewardResult(1 - float64(len(answer))/100), nil
}

// A program tries its agent before anything is trained.
func ExampleTrainer_Dev() {
	t, err := trainer.New(trainer.Config{
		Agent:            agl.AgentFunc(shout),
		Train:            agl.Tasks{[]byte(`"what is 12 times 7?"`), []byte(`"and 3 plus 4?"`)},
		InitialResources: agl.Resources{{Name: "greeting", Resource: agl.PromptTemplate{Template: "hey! {question}", Engine: agl.PromptFString}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := t.Dev(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d tasks, mean reward %.2f\n", report.Train.Rollouts, report.Train.RewardMean)
	// Output: 2 tasks, mean reward 0.79
}

// An algorithm enqueues rollouts, waits for them, and learns from their spans. This
// one only counts what succeeded.
func ExampleTrainer_Fit() {
	count := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		task, err := in.Train.Task(0)
		if err != nil {
			return err
		}
		queued, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: task}}})
		if err != nil {
			return err
		}
		done, err := in.Store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{queued[0].RolloutID}})
		if err != nil {
			return err
		}
		fmt.Println(done[0].Status)
		return nil
	})
	t, err := trainer.New(trainer.Config{
		Agent: agl.AgentFunc(shout), Algorithm: count, Train: agl.Tasks{[]byte(`"what is 12 times 7?"`)}, Database: "memory:",
		InitialResources: agl.Resources{{Name: "greeting", Resource: agl.PromptTemplate{Template: "hey! {question}", Engine: agl.PromptFString}}},
	})
	if err == nil {
		err = t.Fit(context.Background())
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output: succeeded
}
