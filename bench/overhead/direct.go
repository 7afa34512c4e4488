package main

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/examples/calculator/arithmetic"
	"github.com/agl-go/agl/examples/calculator/recipe"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/trainer/engine"
)

// episode is one rollout: the tokens of the whole conversation, which of them
// the model wrote with which log-probability, and the reward.
type episode struct {
	tokens   []int32
	written  []bool
	logprobs []float32
	reward   float64
}

// direct trains like the example, but by function calls only.
type direct struct {
	engine  *engine.Engine
	client  tinker.TrainingClient
	sampler tinker.SamplingClient
	opt     options
}

// train returns the pass rate on the held-out questions.
func train(ctx context.Context, opt options) (float64, error) {
	engine, err := recipe.NewEngine("", nil)
	if err != nil {
		return 0, err
	}
	weights, err := recipe.WarmStart{Engine: engine, Seed: opt.Seed}.Train(ctx)
	if err != nil {
		return 0, err
	}
	client, err := engine.Service.CreateModel(ctx, recipe.Model(opt.Seed))
	if err != nil {
		return 0, err
	}
	if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: weights}); err != nil {
		return 0, err
	}
	d := &direct{engine: engine, client: client, opt: opt}
	return d.run(ctx)
}

func (d *direct) run(ctx context.Context) (float64, error) {
	data, err := dataset.Read(bytes.NewReader(arithmetic.Train), "train.jsonl")
	if err != nil {
		return 0, err
	}
	heldOut, err := dataset.Read(bytes.NewReader(arithmetic.HeldOut), "heldout.jsonl")
	if err != nil {
		return 0, err
	}
	source, err := grpo.NewDatasetSource(data, d.opt.Seed)
	if err != nil {
		return 0, err
	}
	if err := d.publish(ctx, 0); err != nil {
		return 0, err
	}
	if _, err := d.evaluate(ctx, heldOut); err != nil {
		return 0, err
	}
	for step := 1; step <= d.opt.Steps; step++ {
		tasks, err := source.Next(ctx, recipe.PromptsPerStep)
		if err != nil {
			return 0, err
		}
		if err := d.step(ctx, step, tasks); err != nil {
			return 0, fmt.Errorf("step %d: %w", step, err)
		}
	}
	return d.evaluate(ctx, heldOut)
}

func (d *direct) step(ctx context.Context, step int, tasks []grpo.Task) error {
	var all agl.Tasks
	for _, t := range tasks {
		for range recipe.GroupSize {
			all = append(all, t.Input)
		}
	}
	episodes, err := d.rollouts(ctx, all, fmt.Sprint("train", step), 1)
	if err != nil {
		return err
	}
	sampled := 0
	for _, e := range episodes {
		for _, w := range e.written {
			if w {
				sampled++
			}
		}
	}
	var batch []tinker.Datum
	for g := range tasks {
		batch = append(batch, datums(episodes[g*recipe.GroupSize:(g+1)*recipe.GroupSize], 1/float32(sampled))...)
	}
	if len(batch) > 0 {
		if _, err := d.client.ForwardBackward(ctx, tinker.ForwardParams{Data: batch, Loss: tinker.Loss{Name: tinker.ImportanceSampling}}); err != nil {
			return err
		}
		rate := recipe.Schedule(d.opt.Steps).Rate(step-1, d.opt.Steps)
		if _, err := d.client.OptimStep(ctx, tinker.AdamParams{LearningRate: rate, Beta2: 0.98, GradClipNorm: 1}); err != nil {
			return err
		}
	}
	return d.publish(ctx, step)
}

func (d *direct) publish(ctx context.Context, step int) error {
	path, err := d.client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("step-%d", step)})
	if err != nil {
		return err
	}
	d.sampler, err = d.engine.Service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
	return err
}

func (d *direct) evaluate(ctx context.Context, tasks agl.Tasks) (float64, error) {
	episodes, err := d.rollouts(ctx, tasks, "evaluate", recipe.ValidationTemperature)
	if err != nil {
		return 0, err
	}
	passed := 0.0
	for _, e := range episodes {
		passed += e.reward
	}
	return passed / float64(len(episodes)), nil
}

// rollouts runs the tasks on as many goroutines as there are runners.
func (d *direct) rollouts(ctx context.Context, tasks agl.Tasks, label string, temperature float64) ([]episode, error) {
	episodes := make([]episode, len(tasks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(d.opt.Runners)
	for i, task := range tasks {
		group.Go(func() (err error) {
			episodes[i], err = d.rollout(ctx, task, algorithm.DeriveSeed(d.opt.Seed, label, i), temperature)
			return err
		})
	}
	return episodes, group.Wait()
}

func (d *direct) rollout(ctx context.Context, input []byte, seed uint64, temperature float64) (episode, error) {
	var q arithmetic.Question
	if err := rawjson.Unmarshal(input, &q); err != nil {
		return episode{}, err
	}
	var e episode
	messages, err := arithmetic.Converse(q.Question, func(messages []arithmetic.Message) (string, error) {
		seed++
		return d.complete(ctx, &e, messages, seed, temperature)
	})
	if err != nil {
		return episode{}, err
	}
	e.reward = q.Reward(messages)
	return e, nil
}

// complete samples a reply and appends the new tokens to the episode.
func (d *direct) complete(ctx context.Context, e *episode, messages []arithmetic.Message, seed uint64, temperature float64) (string, error) {
	prompt, err := d.engine.Renderer.Prompt(chat.PromptParams{Messages: recipe.ChatMessages(messages)})
	if err != nil {
		return "", err
	}
	res, err := d.sampler.Sample(ctx, tinker.SampleParams{
		Prompt: prompt, NumSamples: 1, MaxTokens: arithmetic.MaxReplyTokens, Temperature: temperature, Stop: d.engine.Renderer.Stop(), Seed: &seed,
	})
	if err != nil {
		return "", err
	}
	reply := res.Sequences[0]
	for _, id := range prompt[len(e.tokens):] {
		e.add(id, false, 0)
	}
	for i, id := range reply.Tokens {
		e.add(id, true, reply.Logprobs[i])
	}
	return chat.ReadAll(d.engine.Renderer.Stream(), reply.Tokens).Content, nil
}

func (e *episode) add(id int32, written bool, logprob float32) {
	e.tokens = append(e.tokens, id)
	e.written = append(e.written, written)
	e.logprobs = append(e.logprobs, logprob)
}

// datums gives a group's episodes their advantages, and the tokens that the
// model wrote the weight; a group of equal rewards gives none.
func datums(group []episode, weight float32) []tinker.Datum {
	mean, square := 0.0, 0.0
	for _, e := range group {
		mean += e.reward / float64(len(group))
	}
	for _, e := range group {
		square += (e.reward - mean) * (e.reward - mean) / float64(len(group))
	}
	if square == 0 {
		return nil
	}
	batch := make([]tinker.Datum, len(group))
	for i, e := range group {
		n := len(e.tokens) - 1
		d := tinker.Datum{
			Input: e.tokens[:n], Targets: e.tokens[1:], Logprobs: e.logprobs[1:],
			Weights: make([]float32, n), Advantages: make([]float32, n),
		}
		advantage := float32((e.reward - mean) / (math.Sqrt(square) + 1e-4))
		for j := range n {
			if e.written[j+1] {
				d.Weights[j], d.Advantages[j] = weight, advantage
			}
		}
		batch[i] = d
	}
	return batch
}
