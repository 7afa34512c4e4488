package apo_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/trainer"
)

// editor stands for a language model: it criticises and rewrites prompts. [apo.Endpoint]
// is one over HTTP.
type editor struct{}

func (editor) Complete(_ context.Context, r apo.Request) (apo.Reply, error) {
	if strings.Contains(r.Messages[len(r.Messages)-1].Content, "too long") { // it has the critique: rewrite
		return apo.Reply{Text: "Answer {question} in one word."}, nil
	}
	return apo.Reply{Text: "The answers are too long."}, nil
}

// reply is an agent that is rewarded for short answers.
func reply(_ context.Context, task agl.Task) (agl.Result, error) {
	prompt, err := task.Resources.PromptTemplate()
	if err != nil {
		return agl.Result{}, err
	}
	answer := "well, that is a difficult question" // a real agent asks a model, with the prompt
	if strings.Contains(prompt.Template, "one word") {
		answer = "84"
	}
	return agl.RewardResult(1 / float64(len(strings.Fields(answer)))), nil
}

func Example() {
	search, err := apo.New(apo.Config{GradientModel: editor{}, Rounds: 1, BeamWidth: 1, BranchFactor: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks := agl.Tasks{[]byte(`"12 times 7"`), []byte(`"2 plus 2"`), []byte(`"8 minus 3"`), []byte(`"9 times 9"`), []byte(`"1 plus 5"`), []byte(`"6 times 3"`)}
	t, err := trainer.New(trainer.Config{
		Agent: agl.AgentFunc(reply), Algorithm: search, Train: tasks, Val: tasks, Database: "memory:",
		InitialResources: agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: "Answer {question}.", Engine: agl.PromptFString}}},
	})
	if err == nil {
		err = t.Fit(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	found := search.Report()
	prompt, err := found.Best.Resources.PromptTemplate()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q: %.2f better, improved %t\n", prompt.Template, found.Gain.Mean, found.Improved)
	// Output: "Answer {question} in one word.": 0.83 better, improved true
}
