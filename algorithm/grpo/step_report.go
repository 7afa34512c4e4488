package grpo

import (
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
)

// StepReport is the report of a step: one line of metrics.jsonl. The line of step 0 has the validation before training.
type StepReport struct {
	Step  int `json:"step"`  // from 1
	Steps int `json:"steps"` // of the run; 0 if it has no end
	// ResourcesID names the version of the model that sampled the rollouts.
	ResourcesID string `json:"resources_id"`

	// RewardMean and PassRate are means over the rollouts that are not masked.
	RewardMean float64                   `json:"reward_mean"`
	PassRate   float64                   `json:"pass_rate"`
	Forms      map[string]algorithm.Rate `json:"forms,omitzero"`
	// Overlong is the mean penalty of Config.Overlong, at most 0. RewardMean does not include it.
	Overlong float64 `json:"overlong,omitzero"`
	// Failed rollouts are those whose agent ended with an error. They count, with reward 0 unless they have another.
	Failed int `json:"failed,omitzero"`
	// Rollouts includes masked ones.
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked"`
	Groups   int                    `json:"groups"`
	// GroupsUsed had an advantage; GroupsSkipped had equal rewards, or fewer than two that count.
	GroupsUsed    int `json:"groups_used"`
	GroupsSkipped int `json:"groups_skipped"`

	// Sequences were trained on: one per rollout whose prompts all extend each other.
	Sequences      int `json:"sequences"`
	PromptTokens   int `json:"prompt_tokens"`   // of the first prompt, and between replies
	ResponseTokens int `json:"response_tokens"` // sampled by the model
	// Calls to the model. ContinuedCalls extend an earlier call and share its sequence;
	// PrefixMismatches follow a call without extending it.
	Calls            int `json:"calls"`
	ContinuedCalls   int `json:"continued_calls"`
	PrefixMismatches int `json:"prefix_mismatches"`
	// OtherCalls went to models that are not trained.
	OtherCalls int `json:"other_calls,omitzero"`
	Spans      int `json:"spans"`
	// Truncated rollouts have a reply that ended at its token limit or that of the context.
	Truncated int `json:"truncated,omitzero"`

	// Staleness is how old the weights were that sampled the tokens; 0 in a synchronous run.
	Staleness Staleness `json:"staleness,omitzero"`
	// Learned are the rollouts of a live run that count, by id.
	Learned []string `json:"learned,omitempty"`
	// Replayed are those that it learned from again (Live.Replay), with the mean of their rewards and the tokens of their replies.
	// Otherwise they count only in Sequences, Staleness and the figures of the updates.
	Replayed       []string `json:"replayed,omitempty"`
	ReplayedReward float64  `json:"replayed_reward,omitzero"`
	ReplayedTokens int      `json:"replayed_tokens,omitzero"`
	// Late counts the rollouts whose first reward came after a live run had read them without one. Nothing was learned from them.
	Late int `json:"late,omitzero"`
	// Stale counts the rollouts that a live run has skipped since the step before, because weights that were too old had
	// answered. Otherwise they count only in UnusedTokens.
	Stale int `json:"stale,omitzero"`
	// Crowded counts those that it has skipped because their user already had Live.PerUser in the step.
	Crowded int `json:"crowded,omitzero"`
	// Candidate is the version that was tried on a share of the users when the step began, if Live.Releaser tries any.
	Candidate string `json:"candidate,omitzero"`
	// Withheld counts the rollouts that Live.Allow rejected.
	Withheld int `json:"withheld,omitzero"`
	// Dropped counts the groups that were replaced by others since the step before, by reason. Otherwise they count only
	// in UnusedTokens.
	Dropped map[admission.Reason]int `json:"dropped,omitempty"`
	// Stopped counts the rollouts that were cancelled because their group was complete without them (Async.Oversample), since the
	// step before. Otherwise they count only in UnusedTokens.
	Stopped int `json:"stopped,omitzero"`
	// UnusedTokens were sampled in dropped groups, and in masked and stopped rollouts.
	UnusedTokens int `json:"unused_tokens,omitzero"`

	// KL is how much likelier the tokens are under the policy than under the reference, in nats, mean over the tokens that
	// were trained on; 0 without Config.KL.
	KL float64 `json:"kl,omitzero"`

	// AnchorLoss is the mean of −log π over the tokens of the demonstrations of Config.Anchor.
	AnchorLoss float64 `json:"anchor_loss,omitzero"`

	Updates      int     `json:"updates"`   // optimizer steps
	Loss         float64 `json:"loss"`      // mean over the updates
	GradNorm     float64 `json:"grad_norm"` // before clipping, mean over the updates
	LearningRate float64 `json:"learning_rate"`
	// LogprobGap compares the log-probabilities of sampler and trainer for the same weights; it is 0 for a perfect engine in a
	// synchronous run.
	LogprobGap Gap `json:"logprob_gap"`

	// Drift compares the weights at the beginning of the step with those that sampled: over the first update or, with a correction,
	// over all data. Null if there was nothing to train on.
	Drift *Drift `json:"drift,omitzero"`

	// Roles has the figures of rewards, calls and updates for each of Config.Roles after the first, by name. All other figures
	// are those of the first role, whose name is Role.
	Role  string                `json:"role,omitzero"`
	Roles map[string]StepReport `json:"roles,omitempty"`

	Seconds         Seconds `json:"seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"` // sampled tokens of all roles per second of rollouts

	// Validation is the one made after this step, if any.
	Validation *algorithm.Report `json:"validation,omitzero"`
	// Beside is the validation of an earlier step that ran beside training and has ended, if any.
	Beside *algorithm.Validated `json:"beside,omitzero"`
}

// Staleness is the number of versions between the weights that sampled a token and those that trained on it.
type Staleness struct {
	Mean float64 `json:"mean"` // over the tokens
	Max  int     `json:"max"`
}

// Gap is the absolute difference of log-probabilities over the sampled tokens of the first update, in nats.
type Gap struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Seconds is the wall time of the phases of a step.
type Seconds struct {
	Rollouts   float64 `json:"rollouts"` // waiting for them; without asynchrony from enqueueing to the last span read
	Train      float64 `json:"train"`
	Publish    float64 `json:"publish"`
	Validate   float64 `json:"validate"`   // waiting for validations
	Checkpoint float64 `json:"checkpoint"` // saving the weights
	Total      float64 `json:"total"`
}

// masked is the number of masked rollouts.
func (r *StepReport) masked() int {
	n := 0
	for _, count := range r.Masked {
		n += count
	}
	return n
}

func shareOf(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
