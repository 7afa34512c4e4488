package tinker

import (
	"cmp"
	"context"
	"fmt"
)

// Service is an engine: it creates models and opens published weights for sampling.
type Service interface {
	// Capabilities says what the engine can do. The zero value of each field is the least capable.
	Capabilities(ctx context.Context) (Capabilities, error)
	// CreateModel creates a model and returns when it can train. An unknown base model is agl.ErrNotFound.
	CreateModel(ctx context.Context, p CreateModelParams) (TrainingClient, error)
	// NewSamplingClient opens published weights. An unknown path is agl.ErrNotFound.
	NewSamplingClient(ctx context.Context, p NewSamplingClientParams) (SamplingClient, error)
	// DeleteWeights deletes a checkpoint or snapshot. Open sampling clients keep its weights. An unknown path is
	// agl.ErrNotFound.
	DeleteWeights(ctx context.Context, p DeleteWeightsParams) error
}

// Capabilities says what an engine can do. The zero value of each field is the least capable.
type Capabilities struct {
	// Models are the base models that CreateModel accepts.
	Models []ModelSpec
	// Losses are the losses that ForwardBackward accepts.
	Losses []LossName
	// ImmutableSnapshots is true when a published snapshot never changes, so that old snapshots can be sampled at any time.
	// Where it is false, sample only the newest snapshot, and finish sampling before the next ForwardBackward.
	ImmutableSnapshots bool
	// SummedLoss is true when the gradient of a ForwardBackward is that of the sum of the elementwise losses over positions
	// and data, if there is one ForwardBackward for each OptimStep. Otherwise the engine normalizes in its own way.
	SummedLoss bool
	// SingleGradient is true when there must be one ForwardBackward for each OptimStep: the engine averages over all data since the
	// last step.
	SingleGradient bool
	// OptimizerOptional is true when LoadWeights can load weights without the optimizer's state.
	OptimizerOptional bool
	// Deterministic is true when the same calls give bit-identical results.
	Deterministic bool
}

// ModelSpec describes a base model.
type ModelSpec struct {
	Name string
	// Vocab is the number of token ids, Context the longest sequence (prompt and completion) in tokens; 0 is unknown.
	Vocab, Context int
}

// CreateModelParams are the arguments of [Service.CreateModel].
type CreateModelParams struct {
	// BaseModel names the weights to start from; empty means the engine's first model.
	BaseModel string
	// Seed seeds whatever the engine draws at random for the model.
	Seed uint64
	// LoRARank is the rank of the LoRA adapter, on engines that train one; 0 means the engine's default.
	LoRARank int
	// UserMetadata is kept with the model.
	UserMetadata map[string]string
}

// NewSamplingClientParams are the arguments of [Service.NewSamplingClient].
type NewSamplingClientParams struct {
	// Path is the path that SaveWeightsForSampler returned, or SaveWeights where the engine can sample checkpoints.
	Path string
	// BaseModel is the base model to open if Path is empty. An unknown one is agl.ErrNotFound; on engines that do not sample
	// base models it is agl.ErrInvalid.
	BaseModel string
}

// DeleteWeightsParams are the arguments of [Service.DeleteWeights].
type DeleteWeightsParams struct {
	// Path is the path that SaveWeights or SaveWeightsForSampler returned.
	Path string
}

// TrainingClient drives one model. Its methods are safe for concurrent use, and run one at a time.
//
// Bad arguments are agl.ErrInvalid and change nothing; a name that is taken is agl.ErrConflict; an unknown path is
// agl.ErrNotFound, and so is every call after Unload. A call whose context ends returns the context's error; a
// ForwardBackward that ends so leaves no part of its gradient behind.
type TrainingClient interface {
	// Info describes the model.
	Info(ctx context.Context) (Info, error)
	// Forward returns what ForwardBackward does, but computes no gradient.
	Forward(ctx context.Context, p ForwardParams) (ForwardResult, error)
	// ForwardBackward adds the gradient of the batch's loss to the model's gradient. An empty batch is agl.ErrInvalid: some
	// engines never finish one.
	ForwardBackward(ctx context.Context, p ForwardParams) (ForwardResult, error)
	// OptimStep takes one Adam step along the gradient and clears it.
	OptimStep(ctx context.Context, p AdamParams) (OptimStepResult, error)
	// SaveWeights writes a checkpoint and returns its path, tinker://<model>/weights/<name>, when it is durable. A checkpoint
	// holds weights, optimizer state and step count, but not the gradient.
	SaveWeights(ctx context.Context, p SaveWeightsParams) (path string, err error)
	// LoadWeights replaces the model's state by a checkpoint of a model of the same shape, and discards the gradient. Damage
	// is [ErrDamaged] on engines that notice it.
	LoadWeights(ctx context.Context, p LoadWeightsParams) error
	// SaveWeightsForSampler publishes the weights as a snapshot and returns its path, tinker://<model>/sampler_weights/<name>.
	SaveWeightsForSampler(ctx context.Context, p SaveWeightsParams) (path string, err error)
	// Unload frees the model's memory. Its checkpoints remain.
	Unload(ctx context.Context) error
}

// Stepper is a [TrainingClient] that queues a ForwardBackward and the OptimStep after it together. If Step fails, the model may have
// made the step, or a part of it: load a checkpoint.
type Stepper interface {
	Step(ctx context.Context, p ForwardParams, adam AdamParams) (ForwardResult, OptimStepResult, error)
}

// Step makes a ForwardBackward and an OptimStep, queued together if the client is a [Stepper]: then an engine at the other end of a
// network does not wait for a round trip in between.
func Step(ctx context.Context, client TrainingClient, p ForwardParams, adam AdamParams) (res ForwardResult, step OptimStepResult, err error) {
	if s, ok := client.(Stepper); ok {
		if res, step, err = s.Step(ctx, p, adam); err != nil {
			return res, step, fmt.Errorf("optimizer step: %w", err)
		}
		return res, step, nil
	}
	if res, err = client.ForwardBackward(ctx, p); err != nil {
		return res, step, fmt.Errorf("forward and backward: %w", err)
	}
	if step, err = client.OptimStep(ctx, adam); err != nil {
		return res, step, fmt.Errorf("optimizer: %w", err)
	}
	return res, step, nil
}

// Info describes a model.
type Info struct {
	// ModelID is the model part of the paths of the model's weights.
	ModelID string
	// Spec is the base model.
	Spec ModelSpec
	// Step is the number of optimizer steps since the optimizer was last reset.
	Step int64
	// Parameters is the number of trained scalars; 0 means unknown.
	Parameters int
}

// ForwardParams are the arguments of [TrainingClient.Forward] and [TrainingClient.ForwardBackward].
type ForwardParams struct {
	// Data is the batch, at least one datum. The engine keeps no reference to it after the call.
	Data []Datum
	// Loss is applied to every datum.
	Loss Loss
}

// Validate reports the first thing that is wrong for a model, with code agl.CodeInvalid. It ignores unknown (zero) fields of
// spec.
func (p ForwardParams) Validate(spec ModelSpec) error {
	if err := p.Loss.Validate(); err != nil {
		return err
	}
	if len(p.Data) == 0 {
		return invalid("data: the batch is empty; at least 1 datum is needed")
	}
	for i := range p.Data {
		d := &p.Data[i]
		if err := d.Validate(p.Loss.Name, spec.Vocab); err != nil {
			return invalid("data[%d]: %w", i, err)
		}
		if spec.Context > 0 && len(d.Input) > spec.Context {
			return invalid("data[%d]: input: %d tokens; the context has %d", i, len(d.Input), spec.Context)
		}
	}
	return nil
}

// ForwardResult is the result of a forward pass. The slices belong to the caller.
type ForwardResult struct {
	// Logprobs[k][i] is the log-probability of Data[k].Targets[i] under the current weights.
	Logprobs [][]float32
	// Losses[k][i] is the weighted loss of that position.
	Losses [][]float32
	// Loss is the sum of Losses.
	Loss float64
	// Metrics are the engine's own measurements; may be nil.
	Metrics map[string]float64
}

// AdamParams are the arguments of [TrainingClient.OptimStep]: Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1) with
// decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101) and clipping of the gradient's global L2 norm.
type AdamParams struct {
	// LearningRate is the step size; 0 changes no weight, but advances the moments.
	LearningRate float64
	// Beta1 and Beta2 are the decay rates of the moments; zero means 0.9 and 0.95, the protocol's defaults.
	Beta1, Beta2 float64
	// Eps is added to the root of the second moment; zero means 1e-12.
	Eps float64
	// WeightDecay is multiplied with LearningRate and the weight.
	WeightDecay float64
	// GradClipNorm is the largest global norm of the gradient, to which a larger one is scaled down; zero means no clipping.
	GradClipNorm float64
}

// WithDefaults returns p with defaults in place of zero values.
func (p AdamParams) WithDefaults() AdamParams {
	p.Beta1 = cmp.Or(p.Beta1, 0.9)
	p.Beta2 = cmp.Or(p.Beta2, 0.95)
	p.Eps = cmp.Or(p.Eps, 1e-12)
	return p
}

// Validate reports the first parameter out of range, with code agl.CodeInvalid.
func (p AdamParams) Validate() error {
	p = p.WithDefaults()
	for _, f := range []struct {
		name  string
		value float64
		limit float64 // exclusive upper bound; 0 means none
	}{
		{"learning_rate", p.LearningRate, 0},
		{"beta1", p.Beta1, 1},
		{"beta2", p.Beta2, 1},
		{"eps", p.Eps, 0},
		{"weight_decay", p.WeightDecay, 0},
		{"grad_clip_norm", p.GradClipNorm, 0},
	} {
		switch {
		case !isFinite(f.value) || f.value < 0:
			return invalid("%s: %v is not a finite number ≥ 0", f.name, f.value)
		case f.limit > 0 && f.value >= f.limit:
			return invalid("%s: %v is not below %v", f.name, f.value, f.limit)
		}
	}
	return nil
}

// OptimStepResult describes an optimizer step.
type OptimStepResult struct {
	// Step is the model's step count after this step.
	Step int64
	// GradNorm is the global L2 norm of the gradient before clipping.
	GradNorm float64
	// Metrics are the engine's own measurements; may be nil.
	Metrics map[string]float64
}

// SaveWeightsParams are the arguments of [TrainingClient.SaveWeights] and [TrainingClient.SaveWeightsForSampler].
type SaveWeightsParams struct {
	// Name is the last part of the path, [A-Za-z0-9_-]+. Each model can use it once for checkpoints and once for snapshots.
	Name string
	// Overwrite replaces weights of the same name, which stay intact until the new ones are durable. Open sampling clients
	// keep their weights. On engines that cannot replace weights it is agl.ErrInvalid.
	Overwrite bool
	// Transient says that a snapshot need not outlive the process, which may save a write to disk. Its name is not used again.
	Transient bool
}

// LoadWeightsParams are the arguments of [TrainingClient.LoadWeights].
type LoadWeightsParams struct {
	// Path is the path that SaveWeights returned, of this model or another one.
	Path string
	// WithOptimizer restores the Adam moments and the step count. Otherwise they are reset to zero, except on engines without
	// [Capabilities.OptimizerOptional].
	WithOptimizer bool
}

// Checkpoint returns the parsed Path. A path that cannot be parsed, or that is a snapshot's, is agl.ErrInvalid.
func (p LoadWeightsParams) Checkpoint() (Path, error) {
	path, err := ParsePath(p.Path)
	if err == nil && path.Kind != KindCheckpoint {
		err = invalid("path: %q is a sampler snapshot; only %s paths can be loaded for training", p.Path, KindCheckpoint)
	}
	return path, err
}

// SamplingClient samples one set of published weights. It is safe for concurrent use.
type SamplingClient interface {
	// Sample draws completions of a prompt. Bad arguments, and a prompt that leaves no room for a token in the context, are
	// agl.ErrInvalid.
	Sample(ctx context.Context, p SampleParams) (SampleResult, error)
	// Spec describes the model; unknown fields are zero.
	Spec() ModelSpec
}

// SampleParams are the arguments of [SamplingClient.Sample].
type SampleParams struct {
	// Prompt is the tokens to continue, at least one.
	Prompt []int32
	// NumSamples is the number of completions; zero means 1.
	NumSamples int
	// MaxTokens is the length of the longest completion, at least 1. A completion also ends where the context does.
	MaxTokens int
	// Temperature divides the logits; zero means greedy. There is no default: RL samples at 1.
	Temperature float64
	// TopK restricts sampling to the k most likely tokens; zero or less means all.
	TopK int
	// TopP restricts sampling to the smallest set of most likely tokens whose probability reaches p; zero means 1, all.
	TopP float64
	// Stop ends a completion when one of these tokens is drawn.
	Stop []int32
	// Seed makes samples repeatable: sample i is a function of weights, prompt, parameters and (Seed, i). Nil means a random
	// seed.
	Seed *uint64
	// PromptLogprobs asks for the log-probabilities of the prompt, too, which not every engine has.
	PromptLogprobs bool
}

// Validate reports the first argument that is out of range for a model, with code agl.CodeInvalid. It ignores unknown (zero)
// fields of spec.
func (p SampleParams) Validate(spec ModelSpec) error {
	switch {
	case len(p.Prompt) == 0:
		return invalid("prompt: no tokens; at least 1 is needed")
	case p.NumSamples < 0:
		return invalid("num_samples: %d is negative", p.NumSamples)
	case p.MaxTokens < 1:
		return invalid("max_tokens: %d is below 1", p.MaxTokens)
	case !isFinite(p.Temperature) || p.Temperature < 0:
		return invalid("temperature: %v is not a finite number ≥ 0", p.Temperature)
	case !(p.TopP >= 0 && p.TopP <= 1):
		return invalid("top_p: %v is outside [0, 1]", p.TopP)
	case spec.Context > 0 && len(p.Prompt) >= spec.Context:
		return invalid("prompt: %d tokens leave no room for a completion in a context of %d", len(p.Prompt), spec.Context)
	}
	if err := checkTokens("prompt", p.Prompt, spec.Vocab); err != nil {
		return err
	}
	return checkTokens("stop", p.Stop, spec.Vocab)
}

// StopReason says why a completion ended.
type StopReason string

// The stop reasons of the protocol.
const (
	// StopToken: a token of Stop was drawn.
	StopToken StopReason = "stop"
	// StopLength: MaxTokens or the context was reached.
	StopLength StopReason = "length"
)

// SampleResult holds the completions in order of sample index. It belongs to the caller.
type SampleResult struct {
	Sequences []Sequence
	// PromptLogprobs[i] is the log-probability of Prompt[i+1], as nothing precedes the first token; nil unless asked for.
	PromptLogprobs []float32
}

// Sequence is one completion.
type Sequence struct {
	// Tokens are the sampled tokens, including the stop token that ended the completion.
	Tokens []int32
	// Logprobs[i] is the log-probability of Tokens[i] under the raw softmax (temperature 1, no truncation), which compares
	// with the trainer's whatever the sampling parameters were.
	Logprobs []float32
	// StopReason says why the completion ended.
	StopReason StopReason
}
