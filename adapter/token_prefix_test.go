package adapter

import (
	"cmp"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
)

// drawPrompts draws the prompts and replies of calls that continue, branch from, edit and cut earlier ones.
func drawPrompts(t *rapid.T) (prompts, replies [][]int32) {
	tokens := func(most int) []int32 {
		return rapid.SliceOfN(rapid.SampledFrom([]int32{0, 1, 2, 12, 120, 123456, -7}), 1, most).Draw(t, "tokens")
	}
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		prompt := tokens(3)
		if n := len(prompts); n > 0 {
			from := rapid.IntRange(max(0, n-12), n-1).Draw(t, "from")
			said := slices.Concat(prompts[from], replies[from])
			switch rapid.IntRange(0, 5).Draw(t, "history") {
			case 0:
				prompt = said[:rapid.IntRange(1, len(said)).Draw(t, "cut")]
			case 1:
				prompt = slices.Concat(said[:rapid.IntRange(0, len(said)).Draw(t, "until")], prompt)
			case 2:
				prompt = slices.Concat(prompt, said)
			case 3:
				prompt = slices.Clone(prompts[from])
			default:
				prompt = slices.Concat(said, prompt)
			}
		}
		prompts, replies = append(prompts, prompt), append(replies, tokens(3))
	}
	return prompts, replies
}

func spell(ids []int32, separator string) []byte {
	list := []byte("[")
	for i, id := range ids {
		if i > 0 {
			list = append(list, separator...)
		}
		list = strconv.AppendInt(list, int64(id), 10)
	}
	return append(list, ']')
}

// TestPromptReader reads lists that begin with earlier ones as the lists that they are, and changes none that it gave out.
func TestPromptReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r promptReader
		prompts, _ := drawPrompts(t)
		separators := rapid.SliceOfN(rapid.SampledFrom([]string{",", ",", ",", ", ", " ,"}), len(prompts), len(prompts)).Draw(t, "separators")
		read := make([][]int32, len(prompts))
		for i, prompt := range prompts {
			list := spell(prompt, separators[i])
			if rapid.IntRange(0, 9).Draw(t, "damage") == 0 {
				damaged := slices.Concat(list[:rapid.IntRange(1, len(list)-1).Draw(t, "place")], []byte("x,3]"))
				want, wantOK := tokenIDs(damaged)
				if got, ok := r.tokenIDs(damaged); ok != wantOK || !slices.Equal(got, want) {
					t.Fatalf("%s is read as %v, %v, want %v, %v", damaged, got, ok, want, wantOK)
				}
			}
			got, ok := r.tokenIDs(list)
			if !ok {
				t.Fatalf("%s is refused", list)
			}
			_ = append(got, 99) // as callers may
			read[i] = got
		}
		for i := range prompts {
			if !slices.Equal(read[i], prompts[i]) {
				t.Fatalf("prompt %d is %v, want %v", i, read[i], prompts[i])
			}
		}
	})
}

// TestPromptMemory has a conversation whose prompts take the memory of the last one.
func TestPromptMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and it has one goroutine")
	}
	var r promptReader
	var prompt []int32
	arrays := map[*int32]int{} // bytes are those of the longest slice
	for i := range 500 {
		for range 100 {
			prompt = append(prompt, int32(i))
		}
		ids, ok := r.tokenIDs(spell(prompt, ","))
		if !ok {
			t.Fatal("refused")
		}
		arrays[&ids[0]] = len(ids)
	}
	total := 0
	for _, n := range arrays {
		total += n
	}
	if total > 3*len(prompt) {
		t.Errorf("%d arrays hold %d ids for a last prompt of %d", len(arrays), total, len(prompt))
	}
}

// mergeSimply is Merge by comparing each prompt with each trajectory.
func mergeSimply(triplets []Triplet) Merged {
	var m Merged
	m.Report.Calls = len(triplets)
	latest := map[agl.Null[string]]*Triplet{}
	var grown []int // the last call of each trajectory
	for i := range triplets {
		t := &triplets[i]
		best := -1
		for at := range m.Trajectories {
			tokens := m.Trajectories[at].TokenIDs
			if len(tokens) <= len(t.Prompt.TokenIDs) && slices.Equal(tokens, t.Prompt.TokenIDs[:len(tokens)]) &&
				(best < 0 || cmp.Or(len(tokens)-len(m.Trajectories[best].TokenIDs), grown[at]-grown[best]) > 0) {
				best = at
			}
		}
		if best >= 0 {
			m.Report.Continued++
		} else {
			if previous := latest[t.Metadata.AgentName]; previous != nil {
				said := slices.Concat(previous.Prompt.TokenIDs, previous.Response.TokenIDs)
				at := 0
				for at < min(len(said), len(t.Prompt.TokenIDs)) && said[at] == t.Prompt.TokenIDs[at] {
					at++
				}
				m.Report.Mismatches = append(m.Report.Mismatches, Mismatch{Call: t.Call, Previous: previous.Call, At: at, PreviousTokens: len(said)})
			}
			best = len(m.Trajectories)
			m.Trajectories, grown = append(m.Trajectories, Trajectory{}), append(grown, 0)
		}
		grown[best] = i
		latest[t.Metadata.AgentName] = t
		if reply := m.Trajectories[best].append(t); !reply.HasLogprobs() {
			m.Report.WithoutLogprobs = append(m.Report.WithoutLogprobs, t.Call)
		}
	}
	return m
}

// TestMergeAnyHistory merges calls whose prompts share memory, and the same without, as the simple way does.
func TestMergeAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r promptReader
		prompts, replies := drawPrompts(t)
		var apart, sharing []Triplet
		for i := range prompts {
			one := triplet(strconv.Itoa(i), prompts[i], replies[i])
			one.Metadata.AgentName = agl.Some(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "agent"))
			apart = append(apart, one)
			one.Prompt.TokenIDs, _ = r.tokenIDs(spell(prompts[i], ","))
			sharing = append(sharing, one)
		}
		want := mergeSimply(apart)
		for what, triplets := range map[string][]Triplet{"apart": apart, "sharing": sharing} {
			if diff := gocmp.Diff(want, Merge(triplets)); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", what, diff)
			}
		}
	})
}
