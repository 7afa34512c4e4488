package engines

import (
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// The names of the engines in the table.
const (
	// Policy is the embedded policy behind agl policy serve.
	Policy = "policy"
	// SkyRLJAX is SkyRL 0.3.0 with its JAX backend, as measured (test/skyrl).
	SkyRLJAX = "skyrl-jax"
	// SkyRL is SkyRL 0.3.0 with its FSDP or Megatron backend, from its source and documentation.
	SkyRL = "skyrl"
	// TuFT is TuFT 0.2.2, from its source.
	TuFT = "tuft"
	// OpenRL is Google's Open-RL, known only from its description.
	OpenRL = "open-rl"
	// Tinker is the service of Thinking Machines, from the documentation of its SDK.
	Tinker = "tinker"
)

// All returns the table. What is not known of an engine is the zero value, the least capable.
func All() []Engine {
	const (
		crossEntropy       = tinker.CrossEntropy
		importanceSampling = tinker.ImportanceSampling
	)
	return []Engine{
		{
			Name: Policy, Title: "the embedded policy", Encoding: Auto, SelfDescribing: true,
			Losses: tinker.LossNames(), Normalization: Sum, ImmutableSnapshots: true, OptimizerOptional: true,
			Deterministic: true, Idempotent: true, LoadDiscardsGradient: true, WideSeeds: true,
		},
		{
			// The same bits come from the same calls on a CPU; on a GPU they came from forward passes and seeded samples. Snapshots
			// are loaded into the place where the model is trained, so that only the newest can be sampled, and only until the next
			// gradient.
			Name: SkyRLJAX, Title: "SkyRL, JAX backend", Encoding: JSON, Order: Ignored,
			Losses:        []tinker.LossName{crossEntropy, importanceSampling, tinker.PPO, tinker.CISPO},
			Normalization: DatumMean, Deterministic: true,
		},
		{
			// It accepts ppo and cispo, which its makers have not validated.
			Name: SkyRL, Title: "SkyRL, FSDP and Megatron backends", Encoding: JSON, Order: Ignored,
			Losses: []tinker.LossName{crossEntropy, importanceSampling}, Normalization: Sum,
		},
		{Name: TuFT, Title: "TuFT", Encoding: Protobuf, Order: Strict, Normalization: Sum},
		{Name: OpenRL, Title: "Open-RL", Encoding: Auto},
		{
			// Older SDKs speak JSON to it. Its documentation gives importance_sampling and ppo the inputs target_tokens, logprobs and
			// advantages (tinker-docs.thinkingmachines.ai/losses).
			Name: Tinker, Title: "Tinker", Encoding: Protobuf, Losses: tinker.LossNames(), Normalization: Sum,
			ImmutableSnapshots: true, OptimizerOptional: true, AdvantagesOnly: true,
		},
	}
}

// Names are the names of all engines, in the order of the table.
func Names() []string {
	var names []string
	for _, e := range All() {
		names = append(names, e.Name)
	}
	return names
}

// Find returns the engine of a name. An unknown one is agl.ErrNotFound.
func Find(name string) (Engine, error) {
	all := All()
	i := slices.IndexFunc(all, func(e Engine) bool { return e.Name == name })
	if i < 0 {
		return Engine{}, agl.Errorf(agl.CodeNotFound, "engine: %q is unknown; known are %q", name, Names())
	}
	return all[i], nil
}
