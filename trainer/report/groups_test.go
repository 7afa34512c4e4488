package report

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// The report and the dashboard give the same reasons in the same words.
func TestReasonsAreThoseOfTheDashboard(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../dashboard/ui/lib/group.js")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "const recorded = {\n")
	list, _, _ = strings.Cut(list, "};")
	var want strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(reasons())) {
		want.WriteString("  " + reason + ": \"" + inWords(reason) + "\",\n")
	}
	lines := slices.Sorted(strings.Lines(list))
	if got := strings.Join(lines, ""); got != want.String() {
		t.Errorf("the dashboard has\n%s\nthe report\n%s", got, want.String())
	}
}

// A group that teaches nothing says why.
func TestWhatGroupsTeach(t *testing.T) {
	t.Parallel()
	rollout := func(metadata string, status agl.RolloutStatus, reward float64, outcome string) agl.AttemptedRollout {
		r := agl.AttemptedRollout{Rollout: agl.Rollout{Input: jsontext.Value("1"), Status: status, Metadata: jsontext.Value(metadata)}, Attempt: &agl.Attempt{}}
		if reward >= 0 {
			r.Attempt.Reward = agl.Some(agl.AttemptReward{Value: reward})
		}
		if outcome != "" {
			r.Attempt.Metadata = jsontext.Value(`{"agentlightning.outcome":{"kind":"` + outcome + `"}}`)
		}
		return r
	}
	const succeeded, failed = agl.RolloutSucceeded, agl.RolloutFailed
	groups := grouped([]agl.AttemptedRollout{
		rollout(`{"sample":0}`, succeeded, 1, ""), rollout(`{"sample":1}`, failed, -1, "agent_error"),
		rollout(`{"group":1,"sample":0,"dropped":"stale"}`, succeeded, 1, ""), rollout(`{"group":1,"sample":1,"dropped":"stale"}`, succeeded, 0, ""),
		rollout(`{"group":1,"sample":0}`, succeeded, 1, ""), rollout(`{"group":1,"sample":1,"dropped":"truncated"}`, succeeded, 0, ""),
		rollout(`{"group":2,"sample":0}`, succeeded, 0.5, ""), rollout(`{"group":2,"sample":1}`, succeeded, 0.5, ""), rollout(`{"group":2,"sample":2,"dropped":"oversampled"}`, agl.RolloutCancelled, -1, ""),
		rollout(`{"group":3,"sample":0}`, succeeded, 1, ""), rollout(`{"group":3,"sample":1}`, failed, -1, "timeout"), rollout(`{"group":3,"sample":2,"dropped":"sampling"}`, succeeded, 0, ""),
		rollout(`{"group":4}`, succeeded, -1, ""), rollout(`{"group":4}`, succeeded, -1, ""),
		rollout(`{"group":5}`, agl.RolloutRunning, -1, ""), rollout(`{"group":5}`, succeeded, 1, ""),
		rollout(`{"group":6,"dropped":"of mine"}`, succeeded, 1, ""),
		rollout(`{"group":7,"index":1}`, succeeded, 1, ""), rollout(`{"group":7,"index":2}`, succeeded, 0, ""),
	})
	const alone = "it has one rollout, which has no other to be compared with"
	want := [][2]string{
		{"0", ""},
		{"1", "grpo left it out, because its weights had become too old (max_staleness)"},
		{"1-2", ""},
		{"2", "all rewards that count are equal"},
		{"3", "only one rollout counts, the others do not: it ran out of time; a call was sampled with settings that change its log-probabilities"},
		{"4", "no rollout counts: it has no reward"},
		{"5", "1 of its rollouts have not finished"},
		{"6", "no rollout counts: the run dropped it: of mine"},
		{"7", alone}, {"7-2", alone},
	}
	for i := range max(len(want), len(groups)) {
		if i >= len(want) || i >= len(groups) || groups[i].name != want[i][0] || groups[i].uselessReason() != want[i][1] {
			t.Fatalf("got %d groups, of which the one at %d is not %q", len(groups), i, want[min(i, len(want)-1)])
		}
	}
	// Programs that number no groups have them by their tasks.
	if by := grouped([]agl.AttemptedRollout{rollout(`{"index":7}`, succeeded, 1, ""), rollout(`{"index":8}`, succeeded, 1, ""), rollout(`{"index":7}`, succeeded, 0, "")}); len(by) != 2 || by[0].uselessReason() != "" || by[1].uselessReason() != alone {
		t.Errorf("groups by task are %+v", by)
	}
}
