package adapter_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// postedSpans are two calls, a reward of the agent, and the given rewards after them.
func postedSpans(t *testing.T, rewards ...[]agl.Attr) []agl.Span {
	t.Helper()
	call := func(id string) []agl.Attr {
		return []agl.Attr{
			{Key: agl.AttrGenAIResponseID, Value: id}, {Key: agl.AttrPromptTokenIDs, Value: []int{1}}, {Key: agl.AttrResponseTokenIDs, Value: []int{2}}, {Key: agl.AttrTurn, Value: "t"},
		}
	}
	own, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	all := append([][]agl.Attr{call("first"), call("second"), own}, rewards...)
	spans := make([]agl.Span, len(all))
	for i, attrs := range all {
		attributes, err := agl.NewAttributes(attrs...)
		if err != nil {
			t.Fatal(err)
		}
		name := agl.SpanLiteLLMRequest
		if i > 1 {
			name = agl.SpanAnnotation
		}
		spans[i] = agl.Span{SpanID: string(rune('a' + i)), SequenceID: int64(i + 1), Name: name, Attributes: attributes}
	}
	return spans
}

func posted(value float64, priority int, more ...agl.Attr) []agl.Attr {
	return append([]agl.Attr{
		{Key: agl.AttrReward + ".0.name", Value: "primary"}, {Key: agl.AttrReward + ".0.value", Value: value},
		{Key: agl.AttrRewardPriority, Value: priority},
	}, more...)
}

// A posted reward counts by its priority and for what it names, wherever it stands.
func TestPostedRewards(t *testing.T) {
	t.Parallel()
	call := func(id string) agl.Attr { return agl.Attr{Key: agl.AttrRewardCall, Value: id} }
	turn := func(name string) agl.Attr { return agl.Attr{Key: agl.AttrRewardTurn, Value: name} }
	none := agl.Null[float64]{}
	for name, c := range map[string]struct {
		rewards              [][]agl.Attr
		final, first, second agl.Null[float64]
	}{
		"none":                     {nil, agl.Some(0.25), none, agl.Some(0.25)},
		"later of equals":          {[][]agl.Attr{posted(1, 0), posted(2, 0)}, agl.Some(2.0), none, agl.Some(2.0)},
		"higher before lower":      {[][]agl.Attr{posted(1, 30), posted(2, 10)}, agl.Some(1.0), none, agl.Some(1.0)},
		"lower than the agent's":   {[][]agl.Attr{posted(1, -1)}, agl.Some(0.25), none, agl.Some(0.25)},
		"of a call":                {[][]agl.Attr{posted(1, 30, call("first"))}, agl.Some(0.25), agl.Some(1.0), agl.Some(0.25)},
		"of a call by a span":      {[][]agl.Attr{posted(1, 30, agl.Attr{Key: agl.AttrRewardSpan, Value: "a"})}, agl.Some(0.25), agl.Some(1.0), agl.Some(0.25)},
		"of a call and of the all": {[][]agl.Attr{posted(1, 30, call("first")), posted(2, 20)}, agl.Some(2.0), agl.Some(1.0), agl.Some(2.0)},
		"of a turn":                {[][]agl.Attr{posted(1, 30, turn("t"))}, agl.Some(0.25), none, agl.Some(1.0)},
		"of an unknown turn":       {[][]agl.Attr{posted(1, 30, turn("u"))}, agl.Some(0.25), none, agl.Some(0.25)},
		"of an unknown call":       {[][]agl.Attr{posted(1, 30, call("third"))}, agl.Some(0.25), none, agl.Some(0.25)},
	} {
		spans := postedSpans(t, c.rewards...)
		final, err := adapter.FinalReward(spans)
		if err != nil || final != c.final {
			t.Errorf("%s: the final reward is %v, %v, want %v", name, final, err, c.final)
		}
		triplets, err := adapter.ProxyTriplets{}.Adapt(spans)
		if err != nil || len(triplets) != 2 || triplets[0].Reward != c.first || triplets[1].Reward != c.second {
			t.Errorf("%s: got %+v, %v, want rewards %v and %v", name, triplets, err, c.first, c.second)
		}
	}
	onlyCalls := slices.Delete(postedSpans(t, posted(1, 0, call("first")), posted(2, 0, call("second"))), 2, 3)
	if final, err := adapter.FinalReward(onlyCalls); err != nil || final != agl.Some(2.0) {
		t.Errorf("only calls are rewarded: got %v, %v, want 2", final, err)
	}
}

// A reward is found however its name or its text is spelled.
func TestSpanRewardIsFound(t *testing.T) {
	t.Parallel()
	for attributes, want := range map[string]float64{
		`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":3}`:                      3,
		`{"agentlightning.rew\u0061rd.0.name":"primary","agentlightning.\u0072eward.0.value":4}`:            4,
		`{"agentops.task.output":"{\"type\":\"reward\",\"value\":5}"}`:                                      5,
		`{"agentops.task.\u006futput":"{\"type\":\"rew\\u0061rd\",\"value\":6}","reward_priority":"high"}`:  6,
		`{"agentops.entity.output":"{\"\\u0074ype\":\"\\u0072\\u0065ward\",\"value\":\"7\"}","other":null}`: 7,
		`{"\u0072eward":8}`: 8,
	} {
		span := agl.Span{Name: agl.SpanAnnotation, SequenceID: 2, Attributes: agl.Attributes(attributes)}
		if got, _ := adapter.SpanReward(&span); !got.Valid || got.V.Value != want {
			t.Errorf("%s: SpanReward is %v, want %g", attributes, got, want)
		}
		if got, err := adapter.FinalReward([]agl.Span{span}); err != nil || got != agl.Some(want) {
			t.Errorf("%s: FinalReward is %v, %v, want %g", attributes, got, err, want)
		}
	}
}

// A posted reward of the whole rollout is for a call that can be learned from, not for a later one without token ids, such as of a model
// that does not give them.
func TestPostedRewardSkipsCallsWithoutTokens(t *testing.T) {
	t.Parallel()
	spans := postedSpans(t, posted(1, 30))
	silent, err := agl.NewAttributes(agl.Attr{Key: agl.AttrGenAIResponseID, Value: "silent"})
	if err != nil {
		t.Fatal(err)
	}
	spans = append(spans, agl.Span{SpanID: "s", SequenceID: 9, Name: agl.SpanLiteLLMRequest, Attributes: silent})
	rewards := func(spans []agl.Span) (list []agl.Null[float64]) {
		triplets, err := adapter.ProxyTriplets{KeepWithoutTokens: true}.Adapt(spans)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range triplets {
			list = append(list, one.Reward)
		}
		return list
	}
	none := agl.Null[float64]{}
	if got := rewards(spans); !slices.Equal(got, []agl.Null[float64]{none, agl.Some(1.0), none}) {
		t.Errorf("got %v, want the second call's", got)
	}
	if got := rewards(spans[2:]); !slices.Equal(got, []agl.Null[float64]{agl.Some(1.0)}) {
		t.Errorf("no call has token ids: got %v, want the reward", got)
	}
	merged, err := adapter.Trajectories{}.Adapt(spans)
	if err != nil || len(merged.Trajectories) == 0 || merged.Trajectories[len(merged.Trajectories)-1].Reward != agl.Some(1.0) {
		t.Errorf("got %+v, %v, want the reward in the last trajectory", merged.Trajectories, err)
	}
}

// Kept one by one, the rewards of spans yield their final reward, in every form and however their names are spelled.
func TestSpanRewardYieldsFinalReward(t *testing.T) {
	t.Parallel()
	const one = `"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":`
	members := []string{
		one + `0.5`, one + `"2"`, one + `true`, one + `1e300`, `"agentlightning.rew\u0061rd.0.name":"primary","agentlightning.rew\u0061rd.0.value":3`,
		`"agentlightning.reward_priority":10`, `"agentlightning.reward_priority":-1`, `"agentlightning.rew\u0061rd_priority":20`, `"agentlightning.reward_priority":"high"`,
		`"agentlightning.reward_call":"c"`, `"agentlightning.reward_turn":"t"`, `"agentops.task.output":"{\"type\":\"reward\",\"value\":4}"`,
		`"agentops.entity.output":"{\"type\":\"rew\\u0061rd\",\"value\":5}"`, `"reward":6`, `"reward":null`, `"gen_ai.prompt.0.content":"no reward"`,
	}
	rapid.Check(t, func(t *rapid.T) {
		spans := make([]agl.Span, rapid.IntRange(0, 5).Draw(t, "spans"))
		var kept agl.Null[agl.AttemptReward]
		for i := range spans {
			list := rapid.SliceOfN(rapid.SampledFrom(members), 0, 5).Draw(t, "attributes")
			spans[i] = agl.Span{
				SequenceID: int64(i + 1), Name: rapid.SampledFrom([]string{agl.SpanAnnotation, agl.SpanLiteLLMRequest}).Draw(t, "name"),
				Attributes: agl.Attributes("{" + strings.Join(list, ",") + "}"),
			}
			reward, isPosted := adapter.SpanReward(&spans[i])
			if want := adapter.IsPosted(&spans[i]); isPosted != want {
				t.Errorf("%s: posted %v, want %v", spans[i].Attributes, isPosted, want)
			}
			if reward.Valid && reward.V.Replaces(kept) {
				kept = reward
			}
		}
		final, err := adapter.FinalReward(spans)
		if err != nil {
			return // SpanReward takes a malformed reward as none
		}
		if final.Valid != kept.Valid || final.V != kept.V.Value {
			t.Errorf("the final reward is %v, kept one by one %v", final, kept)
		}
	})
}
