package openai

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/agl-go/agl/internal/rawjson"
)

// Accumulator assembles the chunks of a streamed chat completion or completion into the
// reply that the same call would have returned unstreamed. Its zero value is ready.
// Unknown members are kept: strings and lists of a delta are joined; of everything else
// the last value that is not null counts.
type Accumulator struct {
	members   Fields
	choices   []*choice
	size      int
	malformed int
	done      bool
	shape     shape
	slots     []slot // of the current event
	odd       bool   // the current event has growing values without a slot
	edits     []edit // of the current event; the memory is reused
}

type choice struct {
	index    int
	text     Member // of a completion; a chat completion has a message
	message  message
	members  Fields
	tokenIDs list
	lists    []namedList // members of logprobs that are lists: chat has content and refusal, completions tokens and others
	logprobs Fields      // other members of logprobs
}

// message collects deltas.
type message struct {
	texts   Fields      // the insides of strings, with their escapes
	lists   []namedList // such as reasoning_details
	members Fields      // everything else
	calls   []*toolCall
}

type toolCall struct {
	index    int
	members  Fields
	function message
}

// list is the inside of a JSON array that grows.
type list struct {
	inner []byte
	given bool
}

// namedList is a member that is a list.
type namedList struct {
	name []byte
	list
}

func (l *list) add(array []byte) int {
	inner := bytes.TrimSpace(array)
	if len(inner) < 2 || inner[0] != '[' {
		return 0
	}
	l.given = true
	inner = bytes.TrimSpace(inner[1 : len(inner)-1])
	if len(inner) == 0 {
		return 0
	}
	if need := len(l.inner) + len(inner) + 1; need > cap(l.inner) {
		// Few and large steps, because each copies everything. Unlike slices.Grow this
		// does not clear the new memory.
		l.inner = append(make([]byte, 0, 4*need), l.inner...)
	}
	if len(l.inner) > 0 {
		l.inner = append(l.inner, ',')
	}
	l.inner = append(l.inner, inner...)
	return len(inner) + 1
}

// Size returns the estimated memory of the accumulator in bytes.
func (a *Accumulator) Size() int { return a.size }

// Malformed returns the number of events whose data was neither a chunk nor [DONE].
func (a *Accumulator) Malformed() int { return a.malformed }

// Failure returns the error that the backend sent in the stream, as JSON, or nil.
func (a *Accumulator) Failure() []byte {
	return a.members.Get("error")
}

// Done reports whether the [DONE] that ends a stream has come.
func (a *Accumulator) Done() bool { return a.done }

// Complete reports whether [DONE] has come, or the finish reason of each choice.
func (a *Accumulator) Complete() bool {
	return a.done || len(a.choices) > 0 && !slices.ContainsFunc(a.choices, func(c *choice) bool { return !c.finished() })
}

// LacksTokenIDs reports whether the stream had the ids of only some of the tokens that the backend counts in the reply. Nothing is
// known of a stream with an event that could not be read: the ids may have been in that.
func (a *Accumulator) LacksTokenIDs() bool {
	usage, ok := ParseUsage(a.members.Get("usage"))
	ids := 0
	for _, c := range a.choices {
		if len(c.tokenIDs.inner) > 0 {
			ids += bytes.Count(c.tokenIDs.inner, []byte(",")) + 1
		}
	}
	return ok && a.malformed == 0 && ids > 0 && int64(ids) < usage.Completion
}

// Add takes the data of one event. Data that is not a JSON object counts as
// malformed, unless it is the [DONE] that ends a stream.
func (a *Accumulator) Add(data []byte) {
	if a.marker(data) {
		return
	}
	if _, ok, _ := (Hide{}).edits(data, nil, a); !ok {
		a.malformed++
	}
}

// marker reports whether data is not a chunk: blank, or the [DONE] that ends the stream.
func (a *Accumulator) marker(data []byte) bool {
	done := string(bytes.TrimSpace(data)) == "[DONE]"
	a.done = a.done || done
	return done || Blank(data)
}

// member takes a member of a chunk other than its choices.
func (a *Accumulator) member(name, value []byte) {
	if !rawjson.IsNull(value) {
		a.size += a.members.Set(name, value)
	}
}

// number reads the member index of the object at the start of raw; it is absent if there is none.
func number(raw []byte, absent int) int {
	value, ok := rawjson.Get(raw, "index")
	if !ok {
		return absent
	}
	index, _ := strconv.Atoi(string(value)) // anything but an integer counts as 0
	return index
}

// choice returns the choice to which the object at the start of raw belongs.
func (a *Accumulator) choice(raw []byte) *choice {
	index := number(raw, 0)
	for _, known := range a.choices {
		if known.index == index {
			return known
		}
	}
	c := &choice{index: index}
	a.choices = append(a.choices, c)
	return c
}

// walkChoiceMember adds a member of a choice, whose value starts at m.ValueStart, in one
// walk, and returns the position after it, or -1.
func (a *Accumulator) walkChoiceMember(c *choice, doc []byte, m rawjson.Member) int {
	if doc[m.ValueStart] == '{' {
		take, grows := (*choice).addLogprob, logprobGrows
		switch string(m.Name) {
		case "delta", "message":
			take, grows = (*choice).addDelta, deltaGrows
		case "logprobs":
		default:
			take = nil
		}
		if take != nil {
			return rawjson.WalkMembers(doc, m.ValueStart, func(m rawjson.Member) int {
				if m.End = rawjson.SkipValue(doc, m.ValueStart); m.End >= 0 {
					m.Value = doc[m.ValueStart:m.End:m.End]
					a.size += take(c, m)
					if grows(m) {
						a.note(c, m, take)
					}
					a.odd = a.odd || string(m.Name) == "tool_calls"
				}
				return m.End
			})
		}
	}
	if m.End = rawjson.SkipValue(doc, m.ValueStart); m.End >= 0 {
		m.Value = doc[m.ValueStart:m.End:m.End]
		a.choiceMember(c, m)
	}
	return m.End
}

// choiceMember adds any other member of a choice.
func (a *Accumulator) choiceMember(c *choice, m rawjson.Member) {
	switch name := string(m.Name); {
	case name == "index" || rawjson.IsNull(m.Value):
	case name == "delta" || name == "message" || name == "logprobs": // not an object
	case name == "text" && m.Value[0] == '"':
		a.size += c.addText(m)
		a.note(c, m, (*choice).addText)
	case name == "token_ids":
		a.size += c.addTokenIDs(m)
		a.note(c, m, (*choice).addTokenIDs)
	default:
		a.size += c.members.Set(m.Name, m.Value)
	}
}

// finished reports whether the choice has a finish reason.
func (c *choice) finished() bool {
	reason := c.members.Get("finish_reason")
	return reason != nil && string(reason) != `""`
}

var textName = []byte("text")

func (c *choice) addText(m rawjson.Member) int {
	c.text.Name = textName
	c.text.Value = append(c.text.Value, m.Value[1:len(m.Value)-1]...)
	return len(m.Value)
}

func (c *choice) addTokenIDs(m rawjson.Member) int { return c.tokenIDs.add(m.Value) }

func (c *choice) addDelta(m rawjson.Member) int { return c.message.take(m) }

func logprobGrows(m rawjson.Member) bool { return m.Value[0] == '[' }

// deltaGrows reports whether take appends a member to its earlier value.
func deltaGrows(m rawjson.Member) bool {
	switch string(m.Name) {
	case "role", "id", "type":
		return m.Value[0] == '['
	default:
		return m.Value[0] == '[' || m.Value[0] == '"'
	}
}

// addLogprob takes a member of a choice's logprobs.
func (c *choice) addLogprob(m rawjson.Member) int {
	switch {
	case rawjson.IsNull(m.Value):
		return 0
	case m.Value[0] == '[':
		return listOf(&c.lists, m.Name).add(m.Value)
	default:
		return c.logprobs.Set(m.Name, m.Value)
	}
}

func listOf(lists *[]namedList, name []byte) *list {
	for i := range *lists {
		if bytes.Equal((*lists)[i].name, name) {
			return &(*lists)[i].list
		}
	}
	*lists = append(*lists, namedList{name: bytes.Clone(name)})
	return &(*lists)[len(*lists)-1].list
}

// add takes a delta.
func (d *message) add(raw []byte) int {
	grown := 0
	rawjson.EachMember(raw, func(m rawjson.Member) { grown += d.take(m) })
	return grown
}

// take adds a member of a delta. Role, id and type are repeated whole, so their last value
// counts; other strings are pieces of a text.
func (d *message) take(m rawjson.Member) int {
	switch name := string(m.Name); {
	case rawjson.IsNull(m.Value):
		return 0
	case name == "tool_calls" && m.Value[0] == '[':
		grown, i := 0, 0
		rawjson.EachElement(m.Value, func(value []byte) {
			grown += d.addCall(value, i)
			i++
		})
		return grown
	case m.Value[0] == '[':
		return listOf(&d.lists, m.Name).add(m.Value)
	case m.Value[0] != '"' || name == "role" || name == "id" || name == "type":
		return d.members.Set(m.Name, m.Value)
	default:
		return d.texts.Extend(m.Name, m.Value[1:len(m.Value)-1], "")
	}
}

// addCall adds an element of tool_calls. The calls of a whole message have no index: it is their place.
func (d *message) addCall(raw []byte, place int) int {
	index := number(raw, place)
	var call *toolCall
	for _, known := range slices.Backward(d.calls) {
		if known.index == index {
			call = known
			break
		}
	}
	if call == nil || call.precedes(raw) {
		call = &toolCall{index: index}
		d.calls = append(d.calls, call)
	}
	grown := 0
	rawjson.EachMember(raw, func(m rawjson.Member) {
		switch name := string(m.Name); {
		case name == "index" || rawjson.IsNull(m.Value):
		case name == "function":
			grown += call.function.add(m.Value)
		default:
			grown += call.members.Set(m.Name, m.Value)
		}
	})
	return grown
}

// precedes reports whether a delta with the index of a call begins another one. See [ChatCall.Follows].
func (c *toolCall) precedes(raw []byte) bool {
	var delta ChatCall
	delta.ID, _ = rawjson.Get(raw, "id")
	function, _ := rawjson.Get(raw, "function")
	delta.Function.Name, _ = rawjson.Get(function, "name")
	return delta.Follows(c.members.Get("id"))
}

// AppendJSON appends the completion.
func (a *Accumulator) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for _, m := range a.members {
		if string(m.Name) == "object" {
			m.Value = bytes.Replace(m.Value, []byte(".chunk"), nil, 1)
		}
		dst = appendMember(dst, m.Name, m.Value)
	}
	dst = append(appendName(dst, []byte("choices")), '[')
	slices.SortStableFunc(a.choices, func(a, b *choice) int { return cmp.Compare(a.index, b.index) }) // a stream may begin with any
	for i, c := range a.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.appendJSON(dst)
	}
	return append(dst, "]}"...)
}

// appendName appends a member's name, after a comma unless it is the first.
func appendName(dst, name []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, `":`...)
}

func appendMember(dst, name, value []byte) []byte {
	return append(appendName(dst, name), value...)
}

func appendList(dst, name []byte, l list) []byte {
	if !l.given {
		return dst
	}
	dst = append(appendName(dst, name), '[')
	dst = append(dst, l.inner...)
	return append(dst, ']')
}

func (c *choice) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(c.index), 10)
	if c.text.Name != nil {
		dst = append(appendName(dst, c.text.Name), '"')
		dst = append(append(dst, c.text.Value...), '"')
	} else {
		dst = c.message.appendJSON(appendName(dst, []byte("message")))
	}
	if len(c.lists) > 0 || len(c.logprobs) > 0 {
		dst = append(appendName(dst, []byte("logprobs")), '{')
		for _, l := range c.lists {
			dst = appendList(dst, l.name, l.list)
		}
		for _, m := range c.logprobs {
			dst = appendMember(dst, m.Name, m.Value)
		}
		dst = append(dst, '}')
	}
	for _, m := range c.members {
		dst = appendMember(dst, m.Name, m.Value)
	}
	dst = appendList(dst, []byte("token_ids"), c.tokenIDs)
	return append(dst, '}')
}

func (d *message) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for _, m := range d.members {
		dst = appendMember(dst, m.Name, m.Value)
	}
	for _, l := range d.lists {
		dst = appendList(dst, l.name, l.list)
	}
	for _, m := range d.texts {
		dst = append(appendName(dst, m.Name), '"')
		dst = append(dst, m.Value...)
		dst = append(dst, '"')
	}
	if len(d.calls) > 0 {
		dst = append(appendName(dst, []byte("tool_calls")), '[')
		for i, call := range d.calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = call.appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func (t *toolCall) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for _, m := range t.members {
		dst = appendMember(dst, m.Name, m.Value)
	}
	dst = appendName(dst, []byte("function"))
	dst = t.function.appendJSON(dst)
	return append(dst, '}')
}
