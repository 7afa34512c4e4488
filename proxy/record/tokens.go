package record

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// Tokens are the token ids of one call.
type Tokens struct {
	Prompt  IDs
	Replies []IDs // by choice
}

// given reports whether the backend gave the ids of the prompt and of a reply.
func (t *Tokens) given() bool {
	return len(t.Prompt) > 0 && len(t.Replies) > 0 && len(t.Replies[0]) > 0
}

// replied returns the number of ids of all replies.
func (t *Tokens) replied() int {
	n := 0
	for _, reply := range t.Replies {
		n += reply.Len()
	}
	return n
}

// Bytes returns the memory that the ids take; nil takes none.
func (t *Tokens) Bytes() int {
	if t == nil {
		return 0
	}
	n := cap(t.Prompt)
	for _, r := range t.Replies {
		n += cap(r)
	}
	return n
}

// Copy returns a copy of from that shares no memory with it. It reuses the memory of t, which may
// be nil and must not be used afterwards.
func (t *Tokens) Copy(from *Tokens) *Tokens {
	if t == nil {
		t = &Tokens{}
	}
	t.Prompt = append(t.Prompt[:0], from.Prompt...)
	t.Replies = make([]IDs, len(from.Replies))
	for i, r := range from.Replies {
		t.Replies[i] = bytes.Clone(r)
	}
	return t
}

// drift returns the first index at which a prompt differs from the previous prompt and
// reply, or -1 if it extends them. Among several replies the one that matches furthest counts.
func (t *Tokens) drift(prompt IDs) int {
	n := common(t.Prompt.inside(), prompt.inside())
	before := t.Prompt.Len()
	if n < before {
		return n
	}
	rest := prompt.inside()[len(t.Prompt.inside()):]
	rest = bytes.TrimPrefix(rest, []byte(","))
	furthest := n
	for _, reply := range t.Replies {
		m := common(reply.inside(), rest)
		if m == reply.Len() {
			return -1
		}
		furthest = max(furthest, n+m)
	}
	return furthest
}

// IDs is a list of token ids as JSON, without spaces; nil if there are none. It stays text because
// backends send text and records hold text, and because comparing it with the ids of the previous
// prompt is fast.
type IDs []byte

// Len returns the number of ids.
func (l IDs) Len() int {
	if len(l) == 0 {
		return 0
	}
	return bytes.Count(l, []byte(",")) + 1
}

// inside returns the list without its brackets.
func (l IDs) inside() []byte {
	if len(l) == 0 {
		return nil
	}
	return l[1 : len(l)-1]
}

// common returns how many ids two lists without brackets share at their beginnings.
func common(a, b []byte) int {
	n := rawjson.CommonPrefix(a, b)
	count := bytes.Count(a[:n], []byte(","))
	if n > 0 && (n == len(a) || a[n] == ',') && (n == len(b) || b[n] == ',') {
		count++ // the last id is whole in both
	}
	return count
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
	versions []byte   // see AttrVersionSpans
}

// read reads the lists. previous holds the ids of the previous call, or is nil.
func (s *tokenSources) read(previous *Tokens) Tokens {
	var known IDs
	if previous != nil {
		known = previous.Prompt
	}
	t := Tokens{Prompt: readIDs(s.prompt, known)}
	for _, ids := range s.replies {
		t.Replies = append(t.Replies, readIDs(ids, nil))
	}
	i := 0
	openai.Elements(s.all, func(value []byte) {
		if i < len(t.Replies) && len(t.Replies[i]) == 0 {
			t.Replies[i] = readIDs(value, nil)
		}
		i++
	})
	return t
}

// readIDs reads a valid JSON list of integers; for anything else, and for an empty list, it returns
// nil. The result may share raw's memory. The beginning that raw shares with known is not parsed.
func readIDs(raw []byte, known IDs) IDs {
	if len(raw) < 3 || raw[0] != '[' {
		return nil
	}
	from := 1
	if len(known) > 0 {
		// The last comma in what they share: the id after it may differ.
		from = 1 + bytes.LastIndexByte(raw[:rawjson.CommonPrefix(raw, known)], ',')
		from = max(from, 1)
	}
	if isPlain(raw[from : len(raw)-1]) {
		return raw
	}
	var list []*int32
	if rawjson.Unmarshal(raw, &list) != nil || len(list) == 0 || slices.Contains(list, nil) {
		return nil
	}
	return rawjson.AppendArray(nil, list, func(dst []byte, id *int32) []byte { return strconv.AppendInt(dst, int64(*id), 10) })
}

// isPlain reports whether the inside of a valid JSON list consists of ids of up to nine digits and commas.
func isPlain(inside []byte) bool {
	digits := 0
	for _, c := range inside {
		switch {
		case c == ',':
			digits = 0
		case c < '0' || c > '9' || digits == 9:
			return false
		default:
			digits++
		}
	}
	return true
}
