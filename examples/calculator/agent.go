package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/examples/calculator/arithmetic"
	"github.com/agl-go/agl/examples/calculator/recipe"
	"github.com/agl-go/agl/tracer"
)

// calculator is the agent: it shows the model the question, runs the tool if the model calls it, and rewards an exact
// answer. It reaches the model as any agent does, over OpenAI chat completions at the URL in its resources.
type calculator struct {
	client *http.Client
	// perQuestion emits the reward of each question of a sheet when it is answered. Otherwise the reward of a sheet is the
	// mean over its questions.
	perQuestion bool
	// toolLatency is the median time that the tool takes; 0 is none.
	toolLatency time.Duration
}

// useTool waits as long as the tool takes.
func (c calculator) useTool(ctx context.Context, seed int64) error {
	if c.toolLatency == 0 {
		return nil
	}
	return pause(ctx, time.Duration(float64(c.toolLatency)*recipe.ToolLatency(seed)))
}

// sheet is a task: a question, and maybe more, each of which is a conversation of its own.
type sheet struct {
	arithmetic.Question

	More []arithmetic.Question `json:"more,omitempty"`
}

// Run answers the questions of a sheet.
func (c calculator) Run(ctx context.Context, task agl.Task) (agl.Result, error) {
	var s sheet
	if err := task.DecodeInput(&s); err != nil {
		return agl.Result{}, err
	}
	llm, err := task.LLM()
	if err != nil {
		return agl.Result{}, err
	}
	seed, _ := agl.Attributes(task.Rollout.Metadata).GetInt(algorithm.MetadataSeed)
	questions := append([]arithmetic.Question{s.Question}, s.More...)
	sum := 0.0
	for _, q := range questions {
		chat, err := arithmetic.Converse(q.Question, func(chat []arithmetic.Message) (string, error) {
			seed++ // each call has a random stream of its own
			if chat[len(chat)-1].Role == "tool" {
				if err := c.useTool(ctx, seed); err != nil {
					return "", err
				}
			}
			return c.complete(ctx, llm, chat, seed)
		})
		if err != nil {
			return agl.Result{}, err
		}
		reward := q.Reward(chat)
		sum += reward
		if c.perQuestion {
			if _, err := tracer.EmitReward(ctx, reward); err != nil {
				return agl.Result{}, err
			}
		}
	}
	if c.perQuestion {
		return agl.Result{}, nil
	}
	return agl.RewardResult(sum / float64(len(questions))), nil
}

// sheets joins n questions of a task file to each task.
func sheets(lines []byte, n int) ([]byte, error) {
	if n == 1 {
		return lines, nil
	}
	var questions []arithmetic.Question
	for line := range bytes.Lines(lines) {
		var q arithmetic.Question
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, err
		}
		questions = append(questions, q)
	}
	var out []byte
	for part := range slices.Chunk(questions, n) {
		doc, err := json.Marshal(sheet{part[0], part[1:]})
		if err != nil {
			return nil, err
		}
		out = append(append(out, doc...), '\n')
	}
	return out, nil
}

// complete makes one call of the model.
func (c calculator) complete(ctx context.Context, llm agl.LLM, chat []arithmetic.Message, seed int64) (string, error) {
	temperature, set := agl.Attributes(llm.SamplingParameters).GetFloat("temperature")
	if !set {
		temperature = 1
	}
	body, err := json.Marshal(struct {
		Model       string               `json:"model"`
		Messages    []arithmetic.Message `json:"messages"`
		MaxTokens   int                  `json:"max_tokens"`
		Temperature float64              `json:"temperature"`
		Seed        int64                `json:"seed"`
	}{llm.Model, chat, arithmetic.MaxReplyTokens, temperature, seed})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, llm.Endpoint+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("chat completion: %s: %.300s", resp.Status, reply)
	}
	var completion struct {
		Choices []struct {
			Message arithmetic.Message `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(reply, &completion); err != nil {
		return "", fmt.Errorf("chat completion: %w in %.300s", err, reply)
	}
	if len(completion.Choices) == 0 {
		return "", fmt.Errorf("chat completion: no choice in %.300s", reply)
	}
	return completion.Choices[0].Message.Content, nil
}
