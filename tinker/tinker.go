package tinker

import (
	"cmp"
	"context"
)

// Service is an engine: it makes models and opens published weights for sampling.
type Service interface {
	// Capabilities says what the engine can do. The zero value of each field is the least capable.
	Capabilities(ctx context.Context) (Capabilities, error)
	// CreateModel makes a new model and returns when it can train. Unknown base models are
	// agl.CodeNotFound.
	CreateModel(ctx context.Context, p CreateModelParams) (TrainingClient, error)
	// NewSamplingClient opens published weights. An unknown path is agl.CodeNotFound.
	NewSamplingClient(ctx context.Context, p NewSamplingClientParams) (SamplingClient, error)
	// DeleteWeights forgets a checkpoint or snapshot. Sampling clients that were opened from it go on. An
	// unknown path is agl.CodeNotFound.
	DeleteWeights(ctx context.Context, p DeleteWeightsParams) error
}

// Capabilities describes an engine.
type Capabilities struct {
	// Models are the base models that CreateModel accepts.
	Models []ModelSpec
	// Losses are the losses that ForwardBackward accepts.
	Losses []LossName
	// ImmutableSnapshots is true when a sampler snapshot never changes after it was published, so that old
	// snapshots can be sampled at any time. Where it is false, sample only from the newest snapshot and
	// finish sampling before the next ForwardBackward.
	ImmutableSnapshots bool
	// SummedLoss is true when the gradient is that of the plain sum over positions and data of the elementwise
	// losses, if there is one ForwardBackward for each OptimStep. Otherwise the engine normalises in a way of
	// its own.
	SummedLoss bool
	// OptimizerOptional is true when LoadWeights honours WithOptimizer = false.
	OptimizerOptional bool
	// Deterministic is true when the same calls give bit-identical results.
	Deterministic bool
}

// ModelSpec describes a base model.
type ModelSpec struct {
	Name string
	// Vocab is the number of token ids, Context the longest sequence (prompt and completion) in tokens;
	// 0 means unknown.
	Vocab, Context int
}

// CreateModelParams are the arguments of [Service.CreateModel].
type CreateModelParams struct {
	// BaseModel names the weights to start from; empty means the engine's only or first model.
	BaseModel string
	// Seed initialises whatever the engine draws at random for the model.
	Seed uint64
	// LoRARank is the rank of the LoRA adapter for engines that train one; 0 means the engine's default.
	// Engines that train all weights ignore it.
	LoRARank int
	// UserMetadata is kept with the model.
	UserMetadata map[string]string
}

// NewSamplingClientParams are the arguments of [Service.NewSamplingClient].
type NewSamplingClientParams struct {
	// Path is what SaveWeightsForSampler (or SaveWeights, where the engine allows it) returned.
	Path string
	// BaseModel opens a base model where Path is empty. An unknown one is agl.CodeNotFound; engines that do not
	// sample base models say agl.CodeInvalid.
	BaseModel string
}

// DeleteWeightsParams are the arguments of [Service.DeleteWeights].
type DeleteWeightsParams struct {
	// Path is what SaveWeights or SaveWeightsForSampler returned.
	Path string
}

// TrainingClient drives one model. Its methods are safe for concurrent use; they run one at a time.
//
// Errors: bad arguments are agl.CodeInvalid and change nothing; a name that is taken is agl.CodeConflict;
// an unknown path is agl.CodeNotFound; after Unload every call is agl.CodeNotFound. A cancelled context
// ends a call with its error; a cancelled ForwardBackward leaves no part of its gradient behind.
type TrainingClient interface {
	// Info describes the model.
	Info(ctx context.Context) (Info, error)
	// Forward computes what ForwardBackward does, but no gradient.
	Forward(ctx context.Context, p ForwardParams) (ForwardResult, error)
	// ForwardBackward adds the gradient of the batch's loss to the model's accumulated gradient. An empty
	// batch is an error (some engines never finish one).
	ForwardBackward(ctx context.Context, p ForwardParams) (ForwardResult, error)
	// OptimStep takes one Adam step along the accumulated gradient and clears it.
	OptimStep(ctx context.Context, p AdamParams) (OptimStepResult, error)
	// SaveWeights writes a checkpoint (weights, optimizer state, step count; not an unstepped gradient) and
	// returns its path, tinker://<model>/weights/<name>, when it is durable.
	SaveWeights(ctx context.Context, p SaveWeightsParams) (path string, err error)
	// LoadWeights replaces the model's state by a checkpoint of a model of the same shape and discards an
	// unstepped gradient. An unknown path is agl.CodeNotFound; engines that notice damage say [ErrDamaged].
	LoadWeights(ctx context.Context, p LoadWeightsParams) error
	// SaveWeightsForSampler publishes the current weights and returns their path,
	// tinker://<model>/sampler_weights/<name>.
	SaveWeightsForSampler(ctx context.Context, p SaveWeightsParams) (path string, err error)
	// Unload gives the model's memory back. Its saved checkpoints remain.
	Unload(ctx context.Context) error
}

// Info describes a model.
type Info struct {
	// ModelID is the host part of the model's paths.
	ModelID string
	// Spec is the base model.
	Spec ModelSpec
	// Step is the number of optimizer steps behind the current weights since the optimizer was last reset.
	Step int64
	// Parameters is the number of trained scalars; 0 means unknown.
	Parameters int
}

// ForwardParams are the arguments of [TrainingClient.Forward] and [TrainingClient.ForwardBackward].
type ForwardParams struct {
	// Data is the batch, at least one datum. It is not kept after the call returns.
	Data []Datum
	// Loss is applied to every datum.
	Loss Loss
}

// ForwardResult is what a forward pass gives. The slices belong to the caller.
type ForwardResult struct {
	// Logprobs[k][i] is the log-probability of Data[k].Targets[i] under the current weights.
	Logprobs [][]float32
	// Losses[k][i] is the weighted elementwise loss of that position.
	Losses [][]float32
	// Loss is the sum of Losses.
	Loss float64
	// Metrics are the engine's own measurements; may be nil.
	Metrics map[string]float64
}

// AdamParams are the arguments of [TrainingClient.OptimStep]: Adam (Kingma & Ba 2015, arXiv:1412.6980,
// algorithm 1) with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101) and clipping of the
// gradient's global L2 norm.
type AdamParams struct {
	// LearningRate is the step size; 0 changes no weight but advances the moments.
	LearningRate float64
	// Beta1 and Beta2 are the decay rates of the moments; zero means 0.9 and 0.95, the protocol's defaults.
	Beta1, Beta2 float64
	// Eps is added to the root of the second moment; zero means 1e-12.
	Eps float64
	// WeightDecay is multiplied with LearningRate and the weight.
	WeightDecay float64
	// GradClipNorm is the largest global norm of the gradient; a larger gradient is scaled down to it. Zero
	// means no clipping.
	GradClipNorm float64
}

// WithDefaults returns p with its documented zero values replaced.
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

// SaveWeightsParams are the arguments of [TrainingClient.SaveWeights] and
// [TrainingClient.SaveWeightsForSampler].
type SaveWeightsParams struct {
	// Name is the last part of the path, [A-Za-z0-9_-]+ (see [ValidateName]); each name can be used once per
	// model and kind.
	Name string
	// Overwrite takes the place of weights that have the name, which stay whole until the new ones are durable.
	// Sampling clients keep what they opened. Engines that cannot replace weights say agl.CodeInvalid.
	Overwrite bool
	// Transient says of a snapshot that it need not outlive the process, which may spare a write to disk. Its name is
	// for no other.
	Transient bool
}

// LoadWeightsParams are the arguments of [TrainingClient.LoadWeights].
type LoadWeightsParams struct {
	// Path is what SaveWeights returned, of this model or another one.
	Path string
	// WithOptimizer restores the Adam moments and the step count; otherwise they are reset to zero, which
	// engines without [Capabilities.OptimizerOptional] do not do.
	WithOptimizer bool
}

// SamplingClient samples from one set of published weights. It is safe for concurrent use.
type SamplingClient interface {
	// Sample draws completions of a prompt. Bad arguments, and a prompt that leaves no room for a token in
	// the context, are agl.CodeInvalid.
	Sample(ctx context.Context, p SampleParams) (SampleResult, error)
	// Spec describes the model that is sampled; fields may be unknown (zero).
	Spec() ModelSpec
}

// SampleParams are the arguments of [SamplingClient.Sample].
type SampleParams struct {
	// Prompt is the tokens to continue, at least one.
	Prompt []int32
	// NumSamples is the number of completions; zero means 1.
	NumSamples int
	// MaxTokens bounds each completion, at least 1. A completion also ends where the context is full.
	MaxTokens int
	// Temperature divides the logits; zero means greedy. It is not defaulted: RL samples at 1.
	Temperature float64
	// TopK keeps only the k most likely tokens; zero or less means all.
	TopK int
	// TopP keeps the smallest set of most likely tokens whose probability reaches p; zero means 1, all.
	TopP float64
	// Stop ends a completion when one of these tokens is drawn.
	Stop []int32
	// Seed makes the draw repeatable: sample i is a function of weights, prompt, parameters and (Seed, i).
	// nil draws a seed.
	Seed *uint64
	// PromptLogprobs asks for the log-probabilities of the prompt too, which not every engine has.
	PromptLogprobs bool
}

// Validate reports the first argument out of range for a model, with code agl.CodeInvalid. Unknown (zero)
// fields of spec are not checked.
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
	// PromptLogprobs[i] is the log-probability of Prompt[i+1]: nothing comes before the first token. It is nil
	// unless asked for.
	PromptLogprobs []float32
}

// Sequence is one completion.
type Sequence struct {
	// Tokens are the drawn tokens. A stop token that ended the completion is its last element.
	Tokens []int32
	// Logprobs[i] is the log-probability of Tokens[i] under the raw softmax (temperature 1, no truncation),
	// so that it compares with the trainer's whatever the sampling parameters were.
	Logprobs []float32
	// StopReason says why the completion ended.
	StopReason StopReason
}
