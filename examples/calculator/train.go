package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/examples/calculator/arithmetic"
	"github.com/agl-go/agl/examples/calculator/recipe"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/tracker"
)

// training is the algorithm of the run: it serves the policy as a chat model behind the
// proxy, warm-starts it, and trains it by GRPO.
type training struct {
	opt     options
	engine  *engine.Engine
	proxy   *trainer.Proxy
	display display.Display
	log     *slog.Logger

	closeEngine func(context.Context) error

	grpo      *grpo.GRPO
	passRates []float64 // of the steps of this process
	samples   []sample
}

// sample is one conversation of the agent, for a person to read.
type sample struct {
	title    string
	passed   bool
	messages []arithmetic.Message
}

// newTraining makes the engine and the proxy; the trainer starts the proxy.
func newTraining(ctx context.Context, opt options, log *slog.Logger) (*training, error) {
	policy, closeEngine, err := newEngine(ctx, opt, log)
	if err != nil {
		return nil, err
	}
	return &training{
		opt: opt, engine: policy, closeEngine: closeEngine, log: log,
		proxy: trainer.NewProxy(trainer.ProxyConfig{
			Config: proxy.Config{Models: []proxy.Model{policy.Model()}, Transport: policy.Transport(nil), Logger: log},
		}),
	}, nil
}

// Run implements agl.Algorithm.
func (t *training) Run(ctx context.Context, in agl.AlgorithmInput) (failed error) {
	run, err := tracker.NewRun(ctx, in.Runs, agl.StartRunParams{RunID: t.runID(), Name: "calculator", Algorithm: "grpo"})
	if err != nil {
		return err
	}
	metrics := tracker.NewSet(t.log, run)
	defer func() { metrics.Close(context.WithoutCancel(ctx), failed) }()
	weights, err := recipe.WarmStart{
		Engine: t.engine, Seed: t.opt.Seed, Steps: t.opt.WarmStart, OutDir: subdir(t.opt.Out, "warmstart"), OnStep: algorithms.ShowWarmStart(t.display), Logger: t.log,
	}.Train(ctx)
	if err != nil {
		return err
	}
	config := grpo.Config{
		RunConfig: algorithm.RunConfig{Flusher: t.proxy, Seed: t.opt.Seed, RunID: run.ID(), OutDir: subdir(t.opt.Out, "grpo"), OnMetrics: metrics.Line, Logger: t.log},
		TrainingConfig: algorithm.TrainingConfig{
			Service: slowTrainer{t.engine.Service, t.opt.Trainer}, Model: recipe.Model(t.opt.Seed), InitialWeights: weights,
			Publisher: t.engine.Publisher(t.proxy), Schedule: recipe.Schedule(t.opt.Steps), Form: formOf,
			Validation: algorithm.Validation{Sampling: jsontext.Value(fmt.Sprintf(`{"temperature":%d}`, recipe.ValidationTemperature))},
		},
		Steps: t.opt.Steps, PromptsPerStep: recipe.PromptsPerStep / t.opt.Questions, GroupSize: recipe.GroupSize,
		Credit: grpo.Credit(t.opt.Credit), Discount: t.opt.discount(), ValidateEvery: t.opt.Validate,
		Async: grpo.Async{MaxStaleness: t.opt.Staleness},
	}
	algorithms.ShowGRPO(&config, t.display, func(string) {})
	show := config.OnStep
	config.OnStep = func(r grpo.StepReport) {
		t.passRates = append(t.passRates, r.PassRate)
		show(r)
	}
	if t.grpo, err = grpo.New(config); err != nil {
		return err
	}
	if err := t.grpo.Run(ctx, in); err != nil {
		return err
	}
	return t.collectSamples(ctx, in.Store)
}

// runID is the id of the run in its store: that of the folder, if it has one to be resumed from; empty makes one.
func (t *training) runID() string {
	if t.opt.Out == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(t.opt.Out)) // an absolute path
	return "ru-" + hex.EncodeToString(sum[:6])
}

func formOf(task jsontext.Value) string {
	form, _ := agl.Attributes(task).GetString("form")
	return form
}

// collectSamples reads the conversations, before and after training, about one question
// that only the trained model got right.
func (t *training) collectSamples(ctx context.Context, store agl.Store) error {
	s := t.grpo.Summary()
	if s.Before == nil || s.After == nil {
		return nil
	}
	for i, before := range s.Before.Results {
		if before.Passed || before.Mask != "" || !s.After.Results[i].Passed {
			continue
		}
		for _, one := range []struct {
			title  string
			result algorithm.Result
		}{{"before", before}, {"after", s.After.Results[i]}} {
			messages, err := conversation(ctx, store, one.result.RolloutID)
			if err != nil {
				return err
			}
			t.samples = append(t.samples, sample{one.title, one.result.Passed, messages})
		}
		return nil
	}
	return nil
}

// conversation reads the messages of an attempt's last model call. The agent's tool calls do not have the form of OpenAI's
// API, which adapter.Messages requires, so this reads the attributes.
func conversation(ctx context.Context, store agl.Store, rolloutID string) ([]arithmetic.Message, error) {
	page, err := store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: rolloutID, AttemptID: agl.LatestAttempt, Name: agl.SpanLiteLLMRequest})
	if err != nil || len(page.Items) == 0 {
		return nil, err
	}
	attributes := page.Items[len(page.Items)-1].Attributes
	message := func(prefix string, i int) (m arithmetic.Message, ok bool) {
		m.Role, ok = attributes.GetString(fmt.Sprintf("%s.%d.role", prefix, i))
		m.Content, _ = attributes.GetString(fmt.Sprintf("%s.%d.content", prefix, i))
		return m, ok
	}
	var messages []arithmetic.Message
	for i := 0; ; i++ {
		m, ok := message(agl.AttrGenAIPrompt, i)
		if !ok {
			break
		}
		messages = append(messages, m)
	}
	if m, ok := message(agl.AttrGenAICompletion, 0); ok {
		messages = append(messages, m)
	}
	return messages, nil
}

func subdir(out, name string) string {
	if out == "" {
		return ""
	}
	return filepath.Join(out, name)
}
