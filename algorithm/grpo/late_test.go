package grpo

import (
	"strings"
	"testing"
)

// TestLateRewards: a step that read sessions before their rewards says what to set.
func TestLateRewards(t *testing.T) {
	t.Parallel()
	for _, w := range warnings(StepReport{Step: 2, Rollouts: 8, GroupsUsed: 8, Late: 3}, false) {
		if w.Kind == WarnLate && strings.Contains(w.Message, "3 sessions") && strings.Contains(w.Message, "proxy.sessions.reward_window") {
			return
		}
	}
	t.Error("rewards that come too late are not told")
}
