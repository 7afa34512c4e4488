// Package grpo trains a model by group relative policy optimization on the rollouts of any agent.
//
// Each step draws tasks, runs GroupSize rollouts of each through the store, turns their spans into sequences of tokens,
// gives every rollout the advantage that it has over the others of its group, and takes one step of the optimizer along the
// policy gradient. The method is that of DeepSeekMath (Shao et al. 2024, arXiv:2402.03300, §4.1): the objective is its eq. 3
// without the KL term, with the outcome supervision of §4.1.2,
//
//	J = Σᵢ wᵢ · Σₜ rᵢₜ·Âᵢ,   rᵢₜ = π(oᵢₜ)/π_sampler(oᵢₜ),   Âᵢ = (Rᵢ − mean R)/(std R + 1e-4)
//
// over the rollouts i of all groups, with the mean and std of i's group (see [Baseline] and Config.PlainAdvantage for
// others). [KL] adds the KL term again, as a part of the reward. All tokens of a step have the same weight, wᵢ = 1/Σⱼ|oⱼ|,
// as in DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 8): DeepSeekMath's wᵢ = 1/(N·|oᵢ|) favours long wrong answers (Dr. GRPO,
// Liu et al. 2025, arXiv:2503.20783, §3). See Config.LengthNormalization and Config.PlainAdvantage for these two papers'
// forms. With the ppo loss the ratio is clipped as in eq. 3; the other losses are cispo and dro. With [CreditTurn] each
// call has an advantage of its own, by the rewards that follow it. Only tokens that the model sampled count. Turns of a
// rollout whose prompts extend each other are one sequence.
//
// A rollout that failed through no fault of the agent is masked: it is left out of the loss and the rewards, and counted by
// its reason. A group whose rewards are all equal has no advantage and is skipped. The divisor stays that of a full batch,
// including skipped groups and masked rollouts, so that a step with few useful groups is a small step.
//
// # Repeating a run
//
// Tasks, their order, the seeds in the rollouts' metadata (algorithm.MetadataSeed) and the order of the data in a batch are
// functions of Config and the dataset, never of timing. So if the engine is deterministic, the agent samples with the seed
// that it is given, and no rollout is masked, every run gives the same weights and the same metrics (except times and ids),
// even if it was killed and resumed from a checkpoint.
//
// # Scope
//
// The package knows the store, spans, and the training protocol of package tinker. It must not know what serves the model,
// how agents run, or text: it swaps the served model and waits for its records through the interfaces [algorithm.Publisher]
// and [algorithm.Flusher].
package grpo
