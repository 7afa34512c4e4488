package sft

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// rolled is a rollout of a task whose only call wrote the token 1.
func rolled(t *testing.T, task string, n int, reward float64, kind agl.OutcomeKind) *algorithm.Episode {
	t.Helper()
	call, err := agl.NewAttributes(
		agl.Attr{Key: agl.AttrGenAIResponseID, Value: "call"},
		agl.Attr{Key: agl.AttrPromptTokenIDs, Value: []int{2}}, agl.Attr{Key: agl.AttrResponseTokenIDs, Value: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	e := &algorithm.Episode{
		Rollout: agl.Rollout{RolloutID: fmt.Sprint(n), Input: jsontext.Value(task)}, Outcome: agl.Outcome{Kind: kind},
		Spans: []agl.Span{{SpanID: "1", Name: agl.SpanLiteLLMRequest, SequenceID: 1, Attributes: call}},
	}
	if kind == agl.OutcomeAgentError {
		return e // it had no time for a reward
	}
	attrs, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: reward})
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := agl.NewAttributes(attrs...)
	if err != nil {
		t.Fatal(err)
	}
	e.Spans = append(e.Spans, agl.Span{SpanID: "2", Name: agl.SpanAnnotation, SequenceID: 2, Attributes: verdict})
	return e
}

// The best of a task are better than something, and what failed is never among them.
func TestBest(t *testing.T) {
	t.Parallel()
	const failed = -1
	for name, tc := range map[string]struct {
		filter  Filter
		rewards map[string][]float64 // by task; failed is an agent that did
		kept    map[string]int       // by task
	}{
		"varied":              {Filter{Best: 2}, map[string][]float64{"1": {0, 0.2, 1, 0.1}}, map[string]int{"1": 2}},
		"all failures":        {Filter{Best: 1}, map[string][]float64{"1": {0, 0, 0}, "2": {0, 1}}, map[string]int{"2": 1}},
		"one alone":           {Filter{Best: 1}, map[string][]float64{"1": {0}}, map[string]int{}},
		"all agents failed":   {Filter{Best: 1}, map[string][]float64{"1": {failed, failed}}, map[string]int{}},
		"failed and bad":      {Filter{Best: 1}, map[string][]float64{"1": {failed, 0}}, map[string]int{}},
		"failed and good":     {Filter{Best: 2}, map[string][]float64{"1": {failed, 1}}, map[string]int{"1": 1}},
		"failed beats":        {Filter{Best: 2}, map[string][]float64{"1": {failed, -3}}, map[string]int{"1": 1}},
		"failed, 0 is enough": {Filter{MinReward: agl.Some(0.0)}, map[string][]float64{"1": {failed, 0, -3}}, map[string]int{"1": 1}},
		"all good enough":     {Filter{Best: 1, MinReward: agl.Some(1.0)}, map[string][]float64{"1": {1, 1}, "2": {1}, "3": {0}}, map[string]int{"1": 1, "2": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := selector{filter: tc.filter, adapters: []agl.Adapter[adapter.Merged]{adapter.Trajectories{}}, context: 16, vocab: 4}
			kept, n := 0, 0
			for task, rewards := range tc.rewards {
				for _, reward := range rewards {
					kind := agl.OutcomeOK
					if reward == failed {
						kind = agl.OutcomeAgentError
					}
					n++
					p.add(rolled(t, task, n, reward, kind))
				}
				kept += tc.kept[task]
			}
			_, data, selected := p.data()
			if len(data) != kept || selected.Kept != kept || selected.Rejected != n-kept || selected.Rollouts != n || selected.Tasks != len(tc.kept) || len(selected.Masked) > 0 {
				t.Errorf("%d data of %+v, want %d kept of %d", len(data), selected, kept, n)
			}
			if slices.ContainsFunc(p.list, func(c candidate) bool { return !c.reward.Valid }) {
				t.Error("an agent that failed has the reward 0")
			}
		})
	}
}
