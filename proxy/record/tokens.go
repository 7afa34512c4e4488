package record

import (
	"math"

	"github.com/agl-go/agl/proxy/openai"
)

// Tokens are the token ids of one call.
type Tokens struct {
	Prompt  []int32
	Replies [][]int32 // by choice
}

// given reports whether the backend gave the ids of the prompt and of a reply.
func (t *Tokens) given() bool {
	return len(t.Prompt) > 0 && len(t.Replies) > 0 && len(t.Replies[0]) > 0
}

// Bytes returns the memory that the ids take; nil takes none.
func (t *Tokens) Bytes() int {
	if t == nil {
		return 0
	}
	n := len(t.Prompt)
	for _, r := range t.Replies {
		n += len(r)
	}
	const bytesPerID = 4
	return n * bytesPerID
}

// drift returns the first index at which a prompt differs from the previous prompt and
// reply, for the choice that it follows longest; -1 when it extends them.
func (t *Tokens) drift(prompt []int32) int {
	n := common(t.Prompt, prompt)
	if n < len(t.Prompt) {
		return n
	}
	furthest := n
	for _, reply := range t.Replies {
		m := common(reply, prompt[n:])
		if m == len(reply) {
			return -1
		}
		furthest = max(furthest, n+m)
	}
	return furthest
}

// common returns the length of the longest common prefix.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// tokenSources holds the raw lists of token ids of a reply. Engines put them in different
// places. vLLM has the prompt's ids at the top for chat and in the choice for
// completions, and the reply's in the choice; before version 0.10.2 those of all replies
// were at the top. SGLang has the prompt's in the choice and the reply's in its
// meta_info, as [logprob, id, text].
type tokenSources struct {
	prompt   []byte
	reply    []byte   // of forms without choices
	replies  [][]byte // by choice
	all      []byte   // of all choices
	versions []byte   // of the weights, by token
}

func (s *tokenSources) read() Tokens {
	t := Tokens{Prompt: readIDs(s.prompt)}
	for _, ids := range s.replies {
		t.Replies = append(t.Replies, readIDs(ids))
	}
	i := 0
	openai.Elements(s.all, func(value []byte) {
		if i < len(t.Replies) && len(t.Replies[i]) == 0 {
			t.Replies[i] = readIDs(value)
		}
		i++
	})
	return t
}

// readIDs reads a valid JSON list of integers; for anything else it returns nil.
func readIDs(raw []byte) []int32 {
	if len(raw) < 3 || raw[0] != '[' {
		return nil
	}
	ids := make([]int32, 0, len(raw)/4)
	for i := 1; i < len(raw)-1; i++ { // up to the bracket
		switch raw[i] {
		case ',', ' ', '\n', '\t', '\r':
			continue
		}
		start, sign := i, int64(1)
		if raw[i] == '-' {
			start, sign = i+1, -1
		}
		n := int64(0)
		for i = start; '0' <= raw[i] && raw[i] <= '9' && n <= math.MaxInt32; i++ {
			n = 10*n + int64(raw[i]-'0')
		}
		switch {
		case i == start || n > math.MaxInt32:
			return nil
		case raw[i] == '.' || raw[i] == 'e' || raw[i] == 'E':
			return nil
		}
		ids = append(ids, int32(sign*n))
	}
	return ids
}
