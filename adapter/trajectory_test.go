package adapter

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
)

func triplet(id string, prompt, response []int32) Triplet {
	return Triplet{
		Prompt: Prompt{TokenIDs: prompt}, Response: Response{TokenIDs: response},
		Metadata: Metadata{ResponseID: agl.Some("id-" + id)}, Call: Call{SpanID: id},
	}
}

func (t Triplet) with(edit func(*Triplet)) Triplet {
	edit(&t)
	return t
}

func TestMergeConversation(t *testing.T) {
	t.Parallel()
	merged := Merge([]Triplet{
		triplet("a", []int32{1, 2}, []int32{3, 4}).with(func(t *Triplet) {
			t.Call.Logprobs = []float32{-0.5, -0.25}
			t.Call.Version, t.Call.VersionEnd = "rs-1", "rs-1"
		}),
		triplet("b", []int32{1, 2, 3, 4, 5, 6}, []int32{7}).with(func(t *Triplet) {
			t.Call.Logprobs = []float32{-1}
			t.Call.Version, t.Call.VersionEnd = "rs-1", "rs-2"
			t.Reward = agl.Some(0.5)
		}),
		triplet("c", []int32{1, 2, 3, 4, 5, 6, 7}, []int32{8}), // nothing between the replies
	})
	if len(merged.Trajectories) != 1 {
		t.Fatalf("got %d trajectories, want 1", len(merged.Trajectories))
	}
	got := merged.Trajectories[0]
	if want := []int32{1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(got.TokenIDs, want) {
		t.Errorf("tokens: got %v, want %v", got.TokenIDs, want)
	}
	if want := []bool{false, false, true, true, false, false, true, true}; !slices.Equal(got.Mask, want) {
		t.Errorf("mask: got %v, want %v", got.Mask, want)
	}
	if want := []float32{0, 0, -0.5, -0.25, 0, 0, -1, 0}; !slices.Equal(got.Logprobs, want) {
		t.Errorf("logprobs: got %v, want %v", got.Logprobs, want)
	}
	if want := []string{"rs-1", "rs-2"}; !slices.Equal(got.Versions(), want) {
		t.Errorf("versions: got %v, want %v", got.Versions(), want)
	}
	if got.Reward != agl.Some(0.5) {
		t.Errorf("reward: got %v, want 0.5", got.Reward)
	}
	ranges := [][2]int{}
	for _, reply := range got.Replies {
		ranges = append(ranges, [2]int{reply.Start, reply.End})
	}
	if diff := cmp.Diff([][2]int{{2, 4}, {6, 7}, {7, 8}}, ranges); diff != "" {
		t.Errorf("replies: (-want +got)\n%s", diff)
	}
	want := Report{Calls: 3, Continued: 2, WithoutLogprobs: []Call{{SpanID: "c"}}}
	if diff := cmp.Diff(want, merged.Report); diff != "" {
		t.Errorf("report: (-want +got)\n%s", diff)
	}
}

func TestMergeMismatch(t *testing.T) {
	t.Parallel()
	first := triplet("a", []int32{1, 2}, []int32{3, 4})
	for _, c := range []struct {
		name   string
		prompt []int32
		at     int
	}{
		{"other prompt", []int32{9}, 0},
		{"part of the prompt", []int32{1}, 1},
		{"the prompt again", []int32{1, 2}, 2},
		{"in the prompt", []int32{1, 9, 3, 4}, 1},
		{"in the reply", []int32{1, 2, 3, 9, 5}, 3},
		{"part of the reply", []int32{1, 2, 3}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			second := triplet("b", c.prompt, []int32{5})
			merged := Merge([]Triplet{first, second})
			if len(merged.Trajectories) != 2 || !slices.Equal(merged.Trajectories[1].TokenIDs, append(slices.Clone(c.prompt), 5)) {
				t.Errorf("trajectories: got %+v", merged.Trajectories)
			}
			want := []Mismatch{{Call: second.Call, Previous: first.Call, At: c.at, PreviousTokens: 4}}
			if diff := cmp.Diff(want, merged.Report.Mismatches); diff != "" {
				t.Errorf("mismatches: (-want +got)\n%s", diff)
			}
		})
	}
}

func TestMergeInterleaved(t *testing.T) {
	t.Parallel()
	agent := func(name string) func(*Triplet) {
		return func(t *Triplet) { t.Metadata.AgentName = agl.Some(name) }
	}
	merged := Merge([]Triplet{
		triplet("a1", []int32{1}, []int32{2}).with(agent("writer")),
		triplet("b1", []int32{5}, []int32{6}).with(agent("critic")),
		triplet("a2", []int32{1, 2, 3}, []int32{4}).with(agent("writer")),
		triplet("b2", []int32{5, 6, 7}, []int32{8}).with(agent("critic")),
		triplet("a3", []int32{1, 2, 9}, []int32{4}).with(agent("writer")), // branches off a1
	})
	var tokens [][]int32
	for _, trajectory := range merged.Trajectories {
		tokens = append(tokens, trajectory.TokenIDs)
	}
	want := [][]int32{{1, 2, 3, 4}, {5, 6, 7, 8}, {1, 2, 9, 4}}
	if diff := cmp.Diff(want, tokens); diff != "" {
		t.Errorf("trajectories: (-want +got)\n%s", diff)
	}
	report := merged.Report
	if report.Continued != 2 || len(report.Mismatches) != 1 || report.Mismatches[0].Previous.SpanID != "a2" || report.Mismatches[0].At != 2 {
		t.Errorf("report: got %+v", report)
	}
}

func TestMergeCallsThatCannotBeTrainedOn(t *testing.T) {
	t.Parallel()
	merged := Merge([]Triplet{
		triplet("text", nil, nil),
		triplet("no reply", []int32{1}, nil),
		triplet("failed", []int32{1}, []int32{2}).with(func(t *Triplet) { t.Call.Failed = true }),
		triplet("left", []int32{1}, []int32{2}).with(func(t *Triplet) { t.Call.Undelivered = true }),
	})
	names := func(calls []Call) []string {
		var list []string
		for _, call := range calls {
			list = append(list, call.SpanID)
		}
		return list
	}
	if len(merged.Trajectories) != 0 || merged.Report.Calls != 4 || len(merged.Report.Mismatches) != 0 {
		t.Errorf("got %+v", merged)
	}
	if diff := cmp.Diff([]string{"text", "no reply"}, names(merged.Report.WithoutTokens)); diff != "" {
		t.Errorf("without tokens: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"failed", "left"}, names(merged.Report.Lost)); diff != "" {
		t.Errorf("lost: (-want +got)\n%s", diff)
	}
}

func TestTrajectoriesOfAProxy(t *testing.T) {
	t.Parallel()
	merged, err := Trajectories{}.Adapt(goldenSpans(t, "proxy_gateway"))
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Trajectories) != 1 || len(merged.Report.Mismatches) != 0 {
		t.Fatalf("got %+v", merged)
	}
	got := merged.Trajectories[0]
	if want := []int32{5, 6, 7, 20, 30, 40, 21, 31, 41, 22, 32}; !slices.Equal(got.TokenIDs, want) {
		t.Errorf("tokens: got %v, want %v", got.TokenIDs, want)
	}
	if want := []float32{0, 0, 0, -0.5, -0.5, 0, -1.5, -1.5, 0, -2.5, -2.5}; !slices.Equal(got.Logprobs, want) {
		t.Errorf("logprobs: got %v, want %v", got.Logprobs, want)
	}
	if want := []string{"rs-1", "rs-2"}; !slices.Equal(got.Versions(), want) {
		t.Errorf("versions: got %v, want %v", got.Versions(), want)
	}
	if got.Replies[0].FinishReason != "stop" || got.Replies[2].VersionEnd != "rs-2" || got.Replies[1].SequenceID != 2 {
		t.Errorf("replies: got %+v", got.Replies)
	}
	if merged.Reward != agl.Some(1.0) || got.Reward != agl.Some(1.0) {
		t.Errorf("rewards: got %v and %v, want 1", merged.Reward, got.Reward)
	}
}

func TestTrajectoriesOfATracer(t *testing.T) {
	t.Parallel()
	merged, err := Trajectories{Source: TracerTriplets{}}.Adapt(goldenSpans(t, "nested_agents"))
	if err != nil {
		t.Fatal(err)
	}
	// The writer's second call continues its first one, all others are alone.
	if len(merged.Trajectories) != 3 || merged.Report.Continued != 1 || len(merged.Report.Mismatches) != 0 {
		t.Errorf("got %+v", merged)
	}
}

func TestTrajectoriesPassErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	source := agl.AdapterFunc[[]Triplet](func([]agl.Span) ([]Triplet, error) { return nil, broken })
	if _, err := (Trajectories{Source: source}).Adapt(nil); !errors.Is(err, broken) {
		t.Errorf("got %v, want the source's error", err)
	}
	if _, err := (Trajectories{}).Adapt(goldenSpans(t, "malformed_reward_map")); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("got %v, want an invalid reward", err)
	}
}

// TestMergeKeepsEveryReply draws calls over few tokens, so that prompts often
// extend one another, and checks what must hold of any merge.
func TestMergeKeepsEveryReply(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(1, 2), 1, 4)
		var triplets []Triplet
		for i := range rapid.IntRange(1, 20).Draw(t, "calls") {
			prompt := ids.Draw(t, "prompt")
			if i > 0 && rapid.Bool().Draw(t, "extends") {
				earlier := triplets[rapid.IntRange(0, i-1).Draw(t, "earlier")]
				prompt = slices.Concat(earlier.Prompt.TokenIDs, earlier.Response.TokenIDs, prompt[1:])
			}
			triplets = append(triplets, triplet("x", prompt, ids.Draw(t, "reply")))
		}
		merged := Merge(triplets)
		replies, trained := 0, 0
		for _, trajectory := range merged.Trajectories {
			replies += len(trajectory.Replies)
			end := 0
			for _, reply := range trajectory.Replies {
				if reply.Start < end || reply.End <= reply.Start || reply.End > len(trajectory.TokenIDs) {
					t.Fatalf("reply from %d to %d after %d of %d", reply.Start, reply.End, end, len(trajectory.TokenIDs))
				}
				end = reply.End
			}
			if end != len(trajectory.TokenIDs) || len(trajectory.Mask) != end || len(trajectory.Logprobs) != end {
				t.Fatalf("lengths: %+v", trajectory)
			}
			for _, wrote := range trajectory.Mask {
				if wrote {
					trained++
				}
			}
		}
		tokens := 0
		for _, one := range triplets {
			tokens += len(one.Response.TokenIDs)
		}
		followers := merged.Report.Continued + len(merged.Report.Mismatches)
		if replies != len(triplets) || trained != tokens || followers != len(triplets)-1 ||
			len(merged.Trajectories) != len(triplets)-merged.Report.Continued {
			t.Fatalf("%d calls and %d tokens became %d replies and %d trained tokens: %+v", len(triplets), tokens, replies, trained, merged.Report)
		}
	})
}
