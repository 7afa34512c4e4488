package algorithms

import (
	"testing"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
)

// A round that keeps no rollout does not say that those it keeps have the reward 0.
func TestSelectedText(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]sft.Selected{
		"12 of 64 rollouts, of 9 tasks: mean reward 0.250 of all, 1.000 of those": {Rollouts: 64, Kept: 12, Tasks: 9, Rejected: 52, RewardMean: 0.25, KeptMean: 1},
		"none of 64 rollouts, of which 60 are rejected and 4 are masked: mean reward 0.250": {
			Rollouts: 64, Rejected: 60, RewardMean: 0.25, Masked: map[algorithm.Mask]int{algorithm.MaskTooLong: 3, algorithm.MaskMalformed: 1},
		},
	} {
		if got := selectedText(&s); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
