package openai

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl/internal/rawjson"
)

// edit replaces the bytes from start to end.
type edit struct {
	start, end int
	with       []byte
}

// appendEdited appends doc with the edits applied. They must not overlap.
func appendEdited(dst, doc []byte, edits []edit) []byte {
	sortEdits(edits)
	at := 0
	for _, e := range edits {
		dst = append(dst, doc[at:e.start]...)
		dst = append(dst, e.with...)
		at = e.end
	}
	return append(dst, doc[at:]...)
}

func sortEdits(edits []edit) {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
}

// edited is appendEdited for edits in order, without a copy: it returns the parts of the result, which share doc's memory.
func edited(doc []byte, edits []edit) [][]byte {
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

// Hide names the members of a reply that an agent did not ask for.
type Hide struct {
	TokenIDs bool // removes prompt_token_ids, response_token_ids and each choice's token_ids and prompt_token_ids
	Logprobs bool // replaces each choice's logprobs by null, as servers send it if they are not asked for
	Usage    bool // removes usage from the chunks of a stream, and the chunk that holds nothing else
}

func (h Hide) nothing() bool { return !h.TokenIDs && !h.Logprobs && !h.Usage }

// Visible returns a whole reply without what is hidden: the remaining parts in order,
// which share doc's memory. A document that is not a JSON object is returned as it is.
// Whole replies keep their usage.
func (h Hide) Visible(doc []byte) [][]byte {
	h.Usage = false
	var room [16]edit
	edits, ok, _ := h.edits(doc, room[:0], nil)
	if h.nothing() || !ok {
		return [][]byte{doc}
	}
	return edited(doc, edits)
}

// edits returns the edits that hide h's members in doc. ok is false if doc is not a
// JSON object. only is true if doc has something hidden and an empty list of choices, so
// that nothing is left to send. With an accumulator the same walk adds doc to it.
func (h Hide) edits(doc []byte, edits []edit, a *Accumulator) (_ []edit, ok, only bool) {
	w := walk{doc: doc, hide: h, edits: edits, to: a}
	var cut cutter
	hidden, choices := false, -1
	visit := func(m rawjson.Member) int {
		if string(m.Name) == "choices" && doc[m.ValueStart] == '[' {
			w.edits = cut.begin(w.edits, m)
			w.choices = 0
			m.End = rawjson.WalkElements(doc, m.ValueStart, w.choice)
			choices = w.choices
			w.edits = cut.end(w.edits, m, false)
			return m.End
		}
		if m.End = rawjson.SkipValue(doc, m.ValueStart); m.End < 0 {
			return -1
		}
		value := doc[m.ValueStart:m.End]
		hide := h.hides(m.Name)
		hidden = hidden || hide && !rawjson.IsNull(value)
		w.edits = cut.end(cut.begin(w.edits, m), m, hide)
		if a != nil {
			a.member(m.Name, value)
		}
		return m.End
	}
	end := rawjson.WalkMembers(doc, rawjson.SkipSpace(doc, 0), visit)
	return cut.close(w.edits), end >= 0 && rawjson.SkipSpace(doc, end) == len(doc), hidden && choices == 0
}

// hides reports whether a member of a reply is removed.
func (h Hide) hides(name []byte) bool {
	switch string(name) {
	case "prompt_token_ids", "response_token_ids":
		return h.TokenIDs
	case "usage":
		return h.Usage
	}
	return false
}

// walk is one pass through a reply or a chunk of one.
type walk struct {
	doc     []byte
	hide    Hide
	edits   []edit
	to      *Accumulator // or nil
	choices int          // so far
}

var null = []byte("null")

// choice walks the choice at a position and returns the position after it.
func (w *walk) choice(at int) int {
	w.choices++
	if w.doc[at] != '{' {
		return rawjson.SkipValue(w.doc, at)
	}
	var cut cutter
	var c *choice
	end := rawjson.WalkMembers(w.doc, at, func(m rawjson.Member) int {
		if w.to == nil {
			m.End = rawjson.SkipValue(w.doc, m.ValueStart)
		} else {
			if c == nil {
				c = w.to.choice(w.doc[at:])
			}
			m.End = w.to.walkChoiceMember(c, w.doc, m)
		}
		if m.End < 0 {
			return -1
		}
		w.edits = cut.begin(w.edits, m)
		value := w.doc[m.ValueStart:m.End]
		hidden := w.hide.TokenIDs && (string(m.Name) == "token_ids" || string(m.Name) == "prompt_token_ids")
		w.edits = cut.end(w.edits, m, hidden)
		if w.hide.Logprobs && string(m.Name) == "logprobs" && !rawjson.IsNull(value) {
			w.edits = append(w.edits, edit{m.ValueStart, m.End, null})
		}
		return m.End
	})
	w.edits = cut.close(w.edits)
	return end
}

// cutter removes members of one object together with a comma.
type cutter struct {
	kept bool
	last int // after the last member
	// A member that is removed before any is kept is removed with the comma after it. Its
	// edit waits until the start of the next member is known.
	open            bool
	openAt, openEnd int
}

// begin is called for each member before its value is edited.
func (c *cutter) begin(edits []edit, m rawjson.Member) []edit {
	if c.open {
		edits = append(edits, edit{start: c.openAt, end: m.Start})
		c.open = false
	}
	return edits
}

// end is called at the end of each member.
func (c *cutter) end(edits []edit, m rawjson.Member, remove bool) []edit {
	switch {
	case !remove:
		c.kept = true
	case c.kept:
		edits = append(edits, edit{start: c.last, end: m.End})
	default:
		c.open, c.openAt, c.openEnd = true, m.Start, m.End
	}
	c.last = m.End
	return edits
}

// close is called after the last member.
func (c *cutter) close(edits []edit) []edit {
	if c.open {
		edits = append(edits, edit{start: c.openAt, end: c.openEnd})
	}
	return edits
}
