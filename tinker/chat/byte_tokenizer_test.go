package chat

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBytes(t *testing.T) {
	t.Parallel()
	var tok Bytes
	const text = "añ😀 ▲\x00"
	ids, err := tok.Encode(text)
	if err != nil || len(ids) != len(text) || tok.Decode(ids) != text {
		t.Errorf("%v %v", ids, err)
	}
	for name, c := range map[string]struct {
		ids  []int32
		want string
	}{
		"incomplete":       {[]int32{'a', 0xc3}, "a\ufffd"},
		"none, one by one": {[]int32{0x80, 0x80, -1, 260}, "\ufffd\ufffd\ufffd\ufffd"},
		"marks":            {[]int32{256, 'x', 259}, "▲x■"},
	} {
		if got := tok.Decode(c.ids); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The tokens of a conversation in bytes only grow, whatever bytes the model writes.
func TestRoleMarksOfBytes(t *testing.T) {
	t.Parallel()
	format := NewRoleMarks(Bytes{})
	begin := []Message{{Role: "user", Content: "¿qué?"}}
	prompt, err := format.Prompt(PromptParams{Messages: begin})
	if err != nil {
		t.Fatal(err)
	}
	reply := []int32{'s', 0xc3, 0xad, 257, '!', 259}
	said := ReadAll(format.Stream(), reply)
	if said.Content != "sí▼!" {
		t.Errorf("%q", said.Content)
	}
	next, err := format.Prompt(PromptParams{Messages: append(begin, said, Message{Role: "user", Content: "no"})})
	if err != nil {
		t.Fatal(err)
	}
	want := append(append(prompt, reply...), 256, 'n', 'o', 257)
	if diff := cmp.Diff(want, next); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A stop string is found where it is complete, although an incomplete character has a longer text than the complete one.
func TestBytesStop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, stop, content string
		tokens              int
	}{
		{"né.", ".", "né", 4},
		{"né. no", ". n", "né", 6},
		{"né😀é.x.", ".", "né😀é", 10},
		{"aé", "é", "a", 3},
		{"né", ".", "né", 3},
	} {
		ids, err := Bytes{}.Encode(c.text)
		if err != nil {
			t.Fatal(err)
		}
		r := newChoice(Bytes{}, NewRoleMarks(Bytes{}).Stream(), ids, make([]float32, len(ids)), false, []string{"zzz", c.stop})
		if diff := cmp.Diff(ids[:c.tokens], r.tokens); diff != "" || r.message.Content != c.content || len(r.logprobs) != c.tokens {
			t.Errorf("%q until %q: %q, tokens (-want +got):\n%s", c.text, c.stop, r.message.Content, diff)
		}
	}
}

// Log-probabilities carry the bytes of their own token, even if it is only a part of a character.
func TestBytesOfLogprobs(t *testing.T) {
	t.Parallel()
	body, err := encodeResponse((&result{tok: Bytes{}}).logprobs([]int32{'n', 0xc3, 0xa9, 259}, make([]float32, 4)))
	if err != nil {
		t.Fatal(err)
	}
	got := string(body)
	for _, want := range []string{`"token":"n","logprob":0,"bytes":[110]`, `"bytes":[195]`, `"bytes":[169]`, `"token":"■","logprob":0,"bytes":[226,150,160]`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s: no %s", got, want)
		}
	}
}

// A reply whose text does not determine its tokens continues as it was sampled, but only in its own conversation.
func TestRoleMarksRememberReplies(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string][]int32{
		"no character":     {'a', 0xc3, 'b', 259},
		"the bound":        {'a', 0xf0, 0x9f},
		"a mark in bytes":  {0xe2, 0x96, 0xbc, '!', 259},
		"U+FFFD in bytes":  {0xef, 0xbf, 0xbd, 259},
		"no id":            {'a', 300, 259},
		"a mark":           {'a', 257, 259},
		"an end, then one": {'a', 259, 259},
	} {
		format := NewRoleMarks(Bytes{})
		begin := []Message{{Role: "user", Content: "go"}}
		prompt, err := format.Prompt(PromptParams{Messages: begin})
		if err != nil {
			t.Fatal(err)
		}
		format.Remember(slices.Clone(prompt), slices.Clone(reply))
		more := []Message{begin[0], ReadAll(format.Stream(), reply), {Role: "user", Content: "on"}}
		next, err := format.Prompt(PromptParams{Messages: more})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(prompt, reply)
		if want[len(want)-1] != 259 {
			want = append(want, 259)
		}
		want = append(want, 256, 'o', 'n', 257)
		if diff := cmp.Diff(want, next); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		more[0].Content = "no"
		other, err := format.Prompt(PromptParams{Messages: more})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Bytes{}.encodeWithMarks(ReadAll(format.Stream(), reply).Content)
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat([]int32{256, 'n', 'o', 257}, again, []int32{259, 256, 'o', 'n', 257}); !slices.Equal(want, other) {
			t.Errorf("%s: in another conversation %v, want %v", name, other, want)
		}
	}
}

// The number of remembered replies is bounded.
func TestRoleMarksForget(t *testing.T) {
	t.Parallel()
	format := NewRoleMarks(Bytes{})
	for i := range maxSampledReplies + 10 {
		format.Remember([]int32{256, int32(i % 256), int32(i / 256), 257}, []int32{0x80, 259})
	}
	format.Remember([]int32{256, 'x', 257}, []int32{'o', 'k', 259})
	if len(format.sampled.ids) != maxSampledReplies || len(format.sampled.order) != maxSampledReplies {
		t.Errorf("%d replies, %d in order, want %d", len(format.sampled.ids), len(format.sampled.order), maxSampledReplies)
	}
}
