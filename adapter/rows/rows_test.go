package rows_test

import (
	"slices"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter/rows"
)

// A call whose reply never reached the agent is in no row, whatever a row is.
func TestSequencesOfLostCalls(t *testing.T) {
	t.Parallel()
	call := func(id string, sequence int64, delivered bool, status agl.StatusCode) agl.Span {
		attributes, err := agl.NewAttributes(
			agl.Attr{Key: agl.AttrGenAIResponseID, Value: id}, agl.Attr{Key: agl.AttrPromptTokenIDs, Value: []int{1, 2}},
			agl.Attr{Key: agl.AttrResponseTokenIDs, Value: []int{int(sequence)}}, agl.Attr{Key: "agentlightning.proxy.delivered", Value: delivered},
		)
		if err != nil {
			t.Fatal(err)
		}
		return agl.Span{RolloutID: "ro", AttemptID: "at", SpanID: id, SequenceID: sequence, Name: agl.SpanLiteLLMRequest, Attributes: attributes, Status: agl.SpanStatus{Code: status}}
	}
	reward, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: 1})
	if err != nil {
		t.Fatal(err)
	}
	attributes, err := agl.NewAttributes(reward...)
	if err != nil {
		t.Fatal(err)
	}
	spans := agl.ShortSpans{Spans: []agl.Span{
		call("left", 3, false, agl.StatusOK), call("failed", 4, true, agl.StatusError), call("told", 5, true, agl.StatusOK),
		{RolloutID: "ro", AttemptID: "at", SpanID: "reward", SequenceID: 6, Name: agl.SpanAnnotation, Attributes: attributes},
	}}
	r := &agl.AttemptedRollout{Rollout: agl.Rollout{RolloutID: "ro"}, Attempt: &agl.Attempt{AttemptID: "at"}}
	for _, level := range []rows.Level{rows.TrajectoryLevel, rows.TransitionLevel} {
		got, err := rows.Sequences(r, spans, rows.Proxy, level)
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Response, []int32{5}) || got[0].Turn != 0 || got[0].Score != 1 {
			t.Errorf("%s: got %+v, %v", level, got, err)
		}
	}
}
