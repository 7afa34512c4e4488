package openai

// Member is one member of a raw object: the name as it is spelled between its
// quotes, and the value's bytes.
type Member struct{ Name, Value []byte }

// Reply is a chat completion, or an error, taken apart.
type Reply struct {
	Members []Member // in their order
	Choices []Choice // of the member choices, where that is a list
}

// Choice is an element of a reply's choices, taken apart. What is no object has
// no members.
type Choice struct {
	Members  []Member
	Logprobs []Member // of the member logprobs, where that is an object
}

// ParseReply takes a valid JSON object apart in one walk. The parts share its
// memory. Of repeated lists of choices the last one counts.
func ParseReply(raw []byte) Reply {
	r := Reply{Members: make([]Member, 0, 12)}
	walkMembers(raw, skipSpace(raw, 0), func(m member) int {
		if string(m.name) == "choices" {
			r.Choices = nil
			m.end = walkElements(raw, m.valueStart, func(start int) int {
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
		return c, skipValue(raw, start)
	}
	c.Members = make([]Member, 0, 8)
	end = walkMembers(raw, start, func(m member) int {
		if string(m.name) == "logprobs" {
			c.Logprobs = nil
			m.end = walkMembers(raw, m.valueStart, func(m member) int { return keep(&c.Logprobs, raw, m) })
		}
		return keep(&c.Members, raw, m)
	})
	return c, end
}

// keep adds a member, whose value it skips unless a walk has been through it,
// and returns the position behind it.
func keep(to *[]Member, raw []byte, m member) int {
	if m.end <= 0 {
		if m.end = skipValue(raw, m.valueStart); m.end < 0 {
			return -1
		}
	}
	*to = append(*to, Member{m.name, raw[m.valueStart:m.end:m.end]})
	return m.end
}
