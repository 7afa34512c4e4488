package grpo

import "github.com/agl-go/agl/algorithm"

// StepReport is what a step did: one line of metrics.jsonl. The line of step 0
// holds the validation before training.
type StepReport struct {
	Step  int `json:"step"` // counted from 1
	Steps int `json:"steps"`
	// ResourcesID names the version of the model that the rollouts were sampled with.
	ResourcesID string `json:"resources_id"`

	// RewardMean and PassRate are over the rollouts that are not masked.
	RewardMean float64                   `json:"reward_mean"`
	PassRate   float64                   `json:"pass_rate"`
	Forms      map[string]algorithm.Rate `json:"forms,omitzero"`
	// Rollouts counts all, masked ones included.
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked"`
	Groups   int                    `json:"groups"`
	// GroupsUsed of them had an advantage; GroupsSkipped had equal rewards, or
	// fewer than two that count.
	GroupsUsed    int `json:"groups_used"`
	GroupsSkipped int `json:"groups_skipped"`

	// Sequences are what was trained on: one per rollout whose prompts all extend
	// each other.
	Sequences      int `json:"sequences"`
	PromptTokens   int `json:"prompt_tokens"`   // of the first prompt and of what was put between replies
	ResponseTokens int `json:"response_tokens"` // sampled by the model
	// Calls to the model: ContinuedCalls of them extend an earlier one and share
	// its sequence, PrefixMismatches should have and do not.
	Calls            int `json:"calls"`
	ContinuedCalls   int `json:"continued_calls"`
	PrefixMismatches int `json:"prefix_mismatches"`
	Spans            int `json:"spans"`
	// Truncated rollouts have a reply that was cut because it, or the context, was
	// full.
	Truncated int `json:"truncated,omitzero"`

	// KL is the mean over the tokens that were trained on of how much likelier, in
	// nats, they are under the policy than under the reference; 0 without Config.KL.
	KL float64 `json:"kl,omitzero"`

	Updates      int     `json:"updates"` // optimizer steps
	Loss         float64 `json:"loss"`
	GradNorm     float64 `json:"grad_norm"` // before clipping, mean over the updates
	LearningRate float64 `json:"learning_rate"`
	// LogprobGap is between the sampler's log-probabilities and the trainer's for
	// the same weights: 0 for a perfect engine.
	LogprobGap Gap `json:"logprob_gap"`

	Seconds         Seconds `json:"seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"` // ResponseTokens per second of rollouts

	// Validation is the one made after this step, if any.
	Validation *algorithm.Report `json:"validation,omitzero"`
}

// Gap is the absolute difference of log-probabilities over the sampled tokens
// of the first update, in nats.
type Gap struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Seconds is the wall time of the phases of a step.
type Seconds struct {
	Rollouts   float64 `json:"rollouts"` // enqueueing to the last span read
	Train      float64 `json:"train"`
	Publish    float64 `json:"publish"`
	Validate   float64 `json:"validate"`
	Checkpoint float64 `json:"checkpoint"` // saving the weights
	Total      float64 `json:"total"`
}

// Totals adds up a run, steps before a resumption included.
type Totals struct {
	Rollouts int                    `json:"rollouts"` // validations included
	Spans    int                    `json:"spans"`    // of training
	Tokens   int                    `json:"tokens"`   // sampled in training
	Masked   map[algorithm.Mask]int `json:"masked"`   // validations included
}

func (t *Totals) addMasked(masked map[algorithm.Mask]int) {
	if t.Masked == nil {
		t.Masked = map[algorithm.Mask]int{}
	}
	for mask, n := range masked {
		t.Masked[mask] += n
	}
}

// Summary is what a run came to.
type Summary struct {
	// Step is the number of steps done, those of the runs that were resumed included.
	Step    int
	Resumed bool // a checkpoint was gone on from
	Totals  Totals
	// Before and After are the validations before the first step and after the
	// last; nil when there is no validation dataset, or After when the run was cut
	// short. Those of an earlier process have no Results.
	Before, After *algorithm.Report
	// Weights is the path of the last checkpoint's weights, empty when there is
	// none; Snapshot is that of the last sampler snapshot published, with its
	// ResourcesID.
	Weights     string
	Snapshot    string
	ResourcesID string
}
