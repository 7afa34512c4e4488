// Package recipe defines how the calculator's model is trained: the engine, the chat format, the warm start and the settings of
// the reinforcement learning. The example uses it with the whole system, the overhead benchmark without.
package recipe

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/examples/calculator/arithmetic"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/trainer/engine"
)

// The settings of the warm start and of the reinforcement learning.
const (
	WarmStartSteps = 2000 // copying is learned here, if at all: rewards hardly improve it (docs/benchmarks.md)
	warmStartBatch = 32
	warmStartPeak  = 2e-3 // at 3e-3 some seeds never learn to copy a result of four digits (docs/benchmarks.md)
	warmStartRise  = 100

	Steps          = 60
	PromptsPerStep = 16
	GroupSize      = 8
	learningRate   = 1e-3

	// ValidationTemperature is that of the held-out questions: each gets the most likely answer. Training samples at 1.
	ValidationTemperature = 0
)

// NewEngine makes an engine that keeps its checkpoints in dir; empty keeps them in memory.
func NewEngine(dir string, log *slog.Logger) (*engine.Engine, error) {
	return engine.NewPolicy(engine.PolicyConfig{Policy: policy.Config{Dir: dir}, Logger: log})
}

// Schedule returns the learning rate of the reinforcement learning: full for a quarter of the steps, then falling to a tenth. A
// constant rate learns as fast, but sometimes leaves one of the five forms of questions unlearned.
func Schedule(steps int) algorithm.Schedule {
	return algorithm.Schedule{Peak: learningRate, Hold: steps / 4, Floor: learningRate / 10}
}

// Model describes the model of a run.
func Model(seed uint64) tinker.CreateModelParams { return tinker.CreateModelParams{Seed: seed} }

// WarmStart is the supervised training that comes first.
type WarmStart struct {
	Engine *engine.Engine
	Seed   uint64
	Steps  int    // 0 means WarmStartSteps
	OutDir string // for checkpoints; empty means none
	OnStep func(sft.StepReport)
	Logger *slog.Logger
}

// Train returns the path of the weights.
func (w WarmStart) Train(ctx context.Context) (weights string, err error) {
	if w.Steps == 0 {
		w.Steps = WarmStartSteps
	}
	format, ok := w.Engine.Renderer.(engine.Demonstrator)
	if !ok {
		return "", agl.Errorf(agl.CodeUnimplemented, "the chat format makes no demonstrations")
	}
	pairs, _ := arithmetic.SplitPairs()
	result, err := sft.Train(ctx, sft.TrainConfig{
		Service:  w.Engine.Service,
		Model:    Model(w.Seed),
		Source:   demonstrations{format, pairs, w.Seed},
		Steps:    w.Steps,
		Schedule: algorithm.Schedule{Peak: warmStartPeak, Warmup: min(warmStartRise, w.Steps/10)},
		OutDir:   w.OutDir,
		OnStep:   w.OnStep,
		Logger:   w.Logger,
	})
	return result.Weights, err
}

// demonstrations draws new ones for every step.
type demonstrations struct {
	format engine.Demonstrator
	pairs  []arithmetic.Pair
	seed   uint64
}

// Batch implements sft.Source.
func (d demonstrations) Batch(step int) ([]tinker.Datum, error) {
	rng := rand.New(rand.NewPCG(d.seed, uint64(step)))
	batch := make([]tinker.Datum, warmStartBatch)
	for i := range batch {
		var err error
		if batch[i], err = d.format.Demonstration(ChatMessages(arithmetic.Demonstration(rng, d.pairs))); err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// Fingerprint implements sft.Source.
func (d demonstrations) Fingerprint() string {
	return fmt.Sprintf("calculator demonstrations, seed %d, %d a step", d.seed, warmStartBatch)
}

// ChatMessages converts messages to the chat format's.
func ChatMessages(messages []arithmetic.Message) []chat.Message {
	out := make([]chat.Message, len(messages))
	for i, m := range messages {
		out[i] = chat.Message{Role: m.Role, Content: m.Content}
	}
	return out
}

// ToolSigma is the standard deviation of the logarithm of the tool's latency.
const ToolSigma = 1.2

// ToolLatency returns the time that a call of the tool takes, in units of the median. It is log-normal with ToolSigma, so that one in a hundred
// is over 16. It depends only on the seed of the model call that follows: for the first call of the tool that is the rollout's seed plus 2.
func ToolLatency(seed int64) float64 {
	return math.Exp(ToolSigma * rand.New(rand.NewPCG(uint64(seed), 1)).NormFloat64())
}
