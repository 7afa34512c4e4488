package chat

import (
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

// A conversation in bytes extends its tokens, whatever the model writes between its marks.
func TestRoleMarksOfBytes(t *testing.T) {
	t.Parallel()
	format := NewRoleMarks(Bytes{})
	begin := []Message{{Role: "user", Content: "¿qué?"}}
	prompt, err := format.Prompt(PromptParams{Messages: begin})
	if err != nil {
		t.Fatal(err)
	}
	reply := []int32{'s', 0xc3, 0xad, 257, '!', 259}
	said := format.Parse(reply)
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

// A stop string is found where it is complete, though a character that is not has a longer text than the whole one.
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
		r := newReply(Bytes{}, NewRoleMarks(Bytes{}), ids, make([]float32, len(ids)), false, []string{"zzz", c.stop})
		if diff := cmp.Diff(ids[:c.tokens], r.tokens); diff != "" || r.message.Content != c.content || len(r.logprobs) != c.tokens {
			t.Errorf("%q until %q: %q, tokens (-want +got):\n%s", c.text, c.stop, r.message.Content, diff)
		}
	}
}
