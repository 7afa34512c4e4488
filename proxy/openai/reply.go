package openai

import (
	"bytes"

	"github.com/agl-go/agl/internal/rawjson"
)

// Member is one member of a raw object: the name as spelled between its quotes, and
// the value.
type Member struct{ Name, Value []byte }

// Fields are members that are collected from the events of a stream. A value is raw JSON, or the inside of a string or a list.
type Fields []Member

// Get returns the value of a member, or nil.
func (f Fields) Get(name string) []byte {
	for _, m := range f {
		if string(m.Name) == name {
			return m.Value
		}
	}
	return nil
}

// Set adds a member or replaces its value, and returns by how many bytes the fields have grown.
func (f *Fields) Set(name, value []byte) int {
	for i := range *f {
		if m := &(*f)[i]; bytes.Equal(m.Name, name) {
			grown := len(value) - len(m.Value)
			m.Value = append(m.Value[:0], value...)
			return grown
		}
	}
	*f = append(*f, Member{bytes.Clone(name), bytes.Clone(value)})
	return len(name) + len(value)
}

// Extend adds a member, or appends to its value after a separator. It returns how many bytes were added, without the separator.
func (f *Fields) Extend(name, more []byte, separator string) int {
	for i := range *f {
		if m := &(*f)[i]; bytes.Equal(m.Name, name) {
			if len(m.Value) > 0 && len(more) > 0 {
				m.Value = append(m.Value, separator...)
			}
			m.Value = append(m.Value, more...)
			return len(more)
		}
	}
	*f = append(*f, Member{bytes.Clone(name), bytes.Clone(more)})
	return len(name) + len(more)
}

// Reply holds the parts of a chat completion or of an error.
type Reply struct {
	Members []Member // in their order
	Choices []Choice // elements of the member choices, if that is a list
}

// Choice holds the parts of an element of a reply's choices. One that is not an object
// has no members.
type Choice struct {
	Members  []Member
	Logprobs []Member // members of the member logprobs, if that is an object
}

// ParseReply reads a valid JSON object in one walk. The parts share its memory. Of
// repeated lists of choices the last one counts.
func ParseReply(raw []byte) Reply {
	r := Reply{Members: make([]Member, 0, 12)}
	rawjson.WalkMembers(raw, rawjson.SkipSpace(raw, 0), func(m rawjson.Member) int {
		if string(m.Name) == "choices" {
			r.Choices = nil
			m.End = rawjson.WalkElements(raw, m.ValueStart, func(start int) int {
				c, end := parseChoice(raw, start)
				r.Choices = append(r.Choices, c)
				return end
			})
		}
		return keep(&r.Members, raw, m)
	})
	return r
}

func parseChoice(raw []byte, start int) (c Choice, end int) {
	if raw[start] != '{' {
		return c, rawjson.SkipValue(raw, start)
	}
	c.Members = make([]Member, 0, 8)
	end = rawjson.WalkMembers(raw, start, func(m rawjson.Member) int {
		if string(m.Name) == "logprobs" {
			c.Logprobs = nil
			m.End = rawjson.WalkMembers(raw, m.ValueStart, func(m rawjson.Member) int { return keep(&c.Logprobs, raw, m) })
		}
		return keep(&c.Members, raw, m)
	})
	return c, end
}

// keep adds a member and returns the position after it. It skips the value unless a
// walk has already done so.
func keep(to *[]Member, raw []byte, m rawjson.Member) int {
	if m.End <= 0 {
		if m.End = rawjson.SkipValue(raw, m.ValueStart); m.End < 0 {
			return -1
		}
	}
	*to = append(*to, Member{m.Name, raw[m.ValueStart:m.End:m.End]})
	return m.End
}
