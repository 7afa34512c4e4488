package openai

import (
	"bytes"
	"cmp"
	"slices"
)

// edit replaces the bytes from start to end.
type edit struct {
	start, end int
	with       []byte
}

// appendEdited appends doc with the edits made. They must not overlap.
func appendEdited(dst, doc []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	at := 0
	for _, e := range edits {
		dst = append(dst, doc[at:e.start]...)
		dst = append(dst, e.with...)
		at = e.end
	}
	return append(dst, doc[at:]...)
}

// Hide says which members of a reply an agent did not ask for.
type Hide struct {
	TokenIDs bool // prompt_token_ids, response_token_ids and each choice's token_ids go
	Logprobs bool // each choice's logprobs becomes null, which is what servers send when not asked
}

func (h Hide) nothing() bool { return !h.TokenIDs && !h.Logprobs }

// AppendVisible appends doc, a chat completion or one chunk of it, without what
// is hidden. Every other byte stays; a document that is not a JSON object is
// appended as it is.
func (h Hide) AppendVisible(dst, doc []byte) []byte {
	if h.nothing() {
		return append(dst, doc...)
	}
	var room [16]edit
	edits, ok := h.edits(doc, room[:0])
	if !ok || len(edits) == 0 {
		return append(dst, doc...)
	}
	return appendEdited(dst, doc, edits)
}

// Visible is AppendVisible without a copy: what is left of doc, in order.
func (h Hide) Visible(doc []byte) [][]byte {
	var room [16]edit
	edits, ok := h.edits(doc, room[:0])
	if h.nothing() || !ok {
		return [][]byte{doc}
	}
	parts := make([][]byte, 0, 2*len(edits)+1)
	at := 0
	for _, e := range edits {
		parts = append(parts, doc[at:e.start])
		if len(e.with) > 0 {
			parts = append(parts, e.with)
		}
		at = e.end
	}
	return append(parts, doc[at:])
}

func (h Hide) edits(doc []byte, edits []edit) ([]edit, bool) {
	var cut cutter
	ok := eachMember(doc, func(m member) {
		switch string(m.name) {
		case "prompt_token_ids", "response_token_ids":
			edits = cut.member(edits, m, h.TokenIDs)
		case "choices":
			edits = cut.member(edits, m, false)
			eachElement(m.value, func(choice []byte, start int) {
				edits = h.choiceEdits(choice, m.valueStart+start, edits)
			})
		default:
			edits = cut.member(edits, m, false)
		}
	})
	return cut.close(edits), ok
}

var null = []byte("null")

func (h Hide) choiceEdits(choice []byte, at int, edits []edit) []edit {
	cut := cutter{offset: at}
	eachMember(choice, func(m member) {
		switch {
		case string(m.name) == "token_ids":
			edits = cut.member(edits, m, h.TokenIDs)
		case string(m.name) == "logprobs" && h.Logprobs && !bytes.Equal(m.value, null):
			edits = cut.member(edits, m, false)
			edits = append(edits, edit{at + m.valueStart, at + m.end, null})
		default:
			edits = cut.member(edits, m, false)
		}
	})
	return cut.close(edits)
}

// cutter removes members of one object with the comma that goes with them.
type cutter struct {
	offset int // of the object in the document
	kept   bool
	last   int // behind the last member
	// A removed member that no kept one precedes takes the comma behind it, so
	// its edit waits for where the next member starts.
	open            bool
	openAt, openEnd int
}

func (c *cutter) member(edits []edit, m member, remove bool) []edit {
	if c.open {
		edits = append(edits, edit{start: c.openAt, end: c.offset + m.start})
		c.open = false
	}
	switch {
	case !remove:
		c.kept = true
	case c.kept:
		edits = append(edits, edit{start: c.offset + c.last, end: c.offset + m.end})
	default:
		c.open, c.openAt, c.openEnd = true, c.offset+m.start, c.offset+m.end
	}
	c.last = m.end
	return edits
}

func (c *cutter) close(edits []edit) []edit {
	if c.open {
		edits = append(edits, edit{start: c.openAt, end: c.openEnd})
	}
	return edits
}
