package grpo

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

func rewardSpan(t *testing.T, sequence int64, value float64) agl.Span {
	t.Helper()
	attrs, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: value})
	if err != nil {
		t.Fatal(err)
	}
	attributes, err := agl.NewAttributes(attrs...)
	if err != nil {
		t.Fatal(err)
	}
	return agl.Span{SpanID: strconv.FormatInt(sequence, 10), SequenceID: sequence, Name: agl.SpanAnnotation, Attributes: attributes}
}

func replyAt(sequence int64, start, end int) adapter.Reply {
	return adapter.Reply{Call: adapter.Call{SequenceID: sequence}, Start: start, End: end}
}

// Rewards go to the last call before them, in the order of the attempt and not of the
// sequences, and calls before them get them discounted.
func TestTurns(t *testing.T) {
	t.Parallel()
	sequences := []adapter.Trajectory{
		{Replies: []adapter.Reply{replyAt(2, 1, 2), replyAt(6, 3, 4)}},
		{Replies: []adapter.Reply{replyAt(4, 1, 2)}},
	}
	spans := []agl.Span{
		rewardSpan(t, 1, 100),                       // before all calls
		rewardSpan(t, 3, 1), rewardSpan(t, 4, 0.25), // the latter came late: its id is that of the next call
		rewardSpan(t, 7, 4), rewardSpan(t, 8, 4),
	}
	for discount, want := range map[float64][]turn{
		1:   {{0, 0, 2, 9.25}, {1, 0, 4, 8}, {0, 1, 6, 8}},
		0.5: {{0, 0, 2, 3.25}, {1, 0, 4, 4}, {0, 1, 6, 8}},
	} {
		got, err := turnsOf(spans, sequences, discount, "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(turn{})); diff != "" {
			t.Errorf("discount %v (-want +got):\n%s", discount, diff)
		}
	}
}

// A reward that names a call belongs to that call, whenever it comes, and to none if the call is not one of the model in training.
func TestTurnsOfNamedCalls(t *testing.T) {
	t.Parallel()
	named := func(attribute, id string, value float64) agl.Span {
		s := rewardSpan(t, 9, value)
		s.Attributes = agl.Attributes(strings.TrimSuffix(string(s.Attributes), "}") + `,"` + attribute + `":"` + id + `"}`)
		return s
	}
	first, second := replyAt(2, 1, 2), replyAt(6, 3, 4)
	first.ResponseID, first.SpanID, second.Turn = agl.Some("a"), "s", "t"
	spans := []agl.Span{
		named(agl.AttrRewardCall, "a", 1), named(agl.AttrRewardSpan, "s", 2), named(agl.AttrRewardTurn, "t", 4),
		named(agl.AttrRewardCall, "of a judge", 100), rewardSpan(t, 9, 8),
		{SpanID: "other", SequenceID: 2}, named(agl.AttrRewardSpan, "other", 16), // the second span of the first call
		{SpanID: "tool", SequenceID: 3}, named(agl.AttrRewardSpan, "tool", 200),
	}
	got, err := turnsOf(spans, []adapter.Trajectory{{Replies: []adapter.Reply{first, second}}}, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]turn{{0, 0, 2, 31}, {0, 1, 6, 12}}, got, cmp.AllowUnexported(turn{})); diff != "" {
		t.Error(diff)
	}
}

// Of several rewards that were added for a call, or for the whole rollout, the one with the highest priority counts, and among these the
// last. It comes on top of what the agent emitted.
func TestTurnsOfAddedRewards(t *testing.T) {
	t.Parallel()
	added := func(value float64, priority, call string) agl.Span {
		s := rewardSpan(t, 9, value)
		s.Attributes = agl.Attributes(strings.TrimSuffix(string(s.Attributes), "}") + `,"` + agl.AttrRewardPriority + `":` + priority + call + `}`)
		return s
	}
	const ofFirst = `,"` + agl.AttrRewardCall + `":"a"`
	first, second := replyAt(2, 1, 2), replyAt(6, 3, 4)
	first.ResponseID = agl.Some("a")
	spans := []agl.Span{
		rewardSpan(t, 3, 0.5),
		added(1, "30", ofFirst), added(0.25, "30", ofFirst), added(-1, "0", ofFirst), // a user has changed the verdict; a judge comes late
		added(-1, "40", ""), added(8, "40", ""), added(4, "30", ""),
	}
	got, err := turnsOf(spans, []adapter.Trajectory{{Replies: []adapter.Reply{first, second}}}, 0.5, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]turn{{0, 0, 2, 4.75}, {0, 1, 6, 8}}, got, cmp.AllowUnexported(turn{})); diff != "" {
		t.Error(diff)
	}
}

// Calls are compared with those at their position in the rollouts that got so far.
func TestCreditTurns(t *testing.T) {
	t.Parallel()
	rollout := func(togo ...float64) sample {
		s := sample{sequences: []adapter.Trajectory{{}}}
		for i, g := range togo {
			s.sequences[0].Replies = append(s.sequences[0].Replies, adapter.Reply{})
			s.turns = append(s.turns, turn{reply: i, togo: g})
		}
		return s
	}
	g := taskGroup{rollout(1, 1, 5), rollout(0, 1), rollout(2)}
	std := math.Sqrt(2.0 / 3)
	for name, tt := range map[string]struct {
		cfg  Config
		want groupAdvantages
	}{
		"group mean":    {Config{Credit: CreditTurn}, groupAdvantages{{{0, 0, 0}}, {{float32(-1 / std), 0}}, {{float32(1 / std)}}}},
		"plain":         {Config{Credit: CreditTurn, PlainAdvantage: true}, groupAdvantages{{{0, 0, 0}}, {{-1, 0}}, {{1}}}},
		"leave one out": {Config{Credit: CreditTurn, Baseline: LeaveOneOut}, groupAdvantages{{{0, 0, 0}}, {{-1.5, 0}}, {{1.5}}}},
	} {
		cfg := tt.cfg.withDefaults()
		got, ok := credit(cfg.Credit, cfg.Baseline, cfg.PlainAdvantage, g)
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0, 1e-3)); !ok || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, ok, diff)
		}
	}
	if _, ok := credit(CreditTurn, GroupMean, false, taskGroup{rollout(1, 0), rollout(1, 0)}); ok {
		t.Error("equal rewards-to-go have an advantage")
	}
	// The final rewards are equal, but not what followed the calls.
	same := taskGroup{rollout(1, 0), rollout(1, 1)}
	if _, ok := credit(CreditTrajectory, GroupMean, false, same); ok {
		t.Error("equal final rewards have an advantage")
	}
	if _, ok := credit(CreditTurn, GroupMean, false, same); !ok {
		t.Error("turns with other rewards have no advantage")
	}
}

// The tokens of each reply get the advantage of the reply.
func TestDatumOfTurns(t *testing.T) {
	t.Parallel()
	d, ok := datum(trajectory(), 1, []float32{0.5, -2})
	if want := []float32{0, 0.5, 0, -2, -2}; !ok || !cmp.Equal(d.Advantages, want) {
		t.Errorf("advantages: got %v, want %v", d.Advantages, want)
	}
}

// The calls of a reward are not looked for where there is none: with as many large spans as here that would take longer than a test may.
func TestTurnsOfManyCalls(t *testing.T) {
	t.Parallel()
	const calls = 10_000
	large := agl.Attributes(`{"logprobs.content":[` + strings.Repeat(`{"token":"a","logprob":-0.5},`, 100) + `null]}`)
	var spans []agl.Span
	var replies []adapter.Reply
	for i := range calls {
		replies = append(replies, replyAt(int64(i), i, i+1))
		spans = append(spans, agl.Span{SpanID: "call " + strconv.Itoa(i), SequenceID: int64(i), Name: agl.SpanRawRequest, Attributes: large})
	}
	spans = append(spans, rewardSpan(t, calls, 1))
	turns, err := turnsOf(spans, []adapter.Trajectory{{Replies: replies}}, 1, "")
	if err != nil || len(turns) != calls || turns[0].togo != 1 {
		t.Errorf("%d turns, error %v", len(turns), err)
	}
}

// A rollout without a group is compared with what was expected: over the standard deviation, except where groups are not divided by it.
func TestCreditOfSingleRollout(t *testing.T) {
	t.Parallel()
	g := taskGroup{{reward: 3, expected: &expectation{N: 8, Mean: 1, Variance: 4}, sequences: []adapter.Trajectory{{Replies: []adapter.Reply{replyAt(1, 1, 2)}}}}}
	for _, test := range []struct {
		baseline Baseline
		plain    bool
		want     float64
	}{{GroupMean, false, 2 / (2 + advantageEpsilon)}, {GroupMean, true, 2}, {LeaveOneOut, false, 2}} {
		if all, ok := credit(CreditTrajectory, test.baseline, test.plain, g); !ok || math.Abs(float64(all[0][0][0])-test.want) > 1e-6 {
			t.Errorf("%s, plain %v: got %v, want %v", test.baseline, test.plain, all, test.want)
		}
	}
}
