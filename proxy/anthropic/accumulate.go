package anthropic

import (
	"bytes"
	"slices"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// Accumulator assembles the events of a message's stream into the message that the same
// call would have returned unstreamed. Its zero value is ready. Unknown members are kept.
type Accumulator struct {
	members   []field // of the message
	usage     []field
	blocks    []*building
	size      int
	malformed int
	started   bool
	done      bool
}

// field is a member.
type field struct{ name, value []byte }

// building is a content block that is being assembled.
type building struct {
	at      string // its index, as the backend spells it
	members []field
	texts   []field // the insides of joined strings
	input   []byte  // of a tool use: the JSON so far, without escapes
	lists   []field // the insides of joined lists
}

// Size returns the estimated memory of the accumulator in bytes.
func (a *Accumulator) Size() int { return a.size }

// Malformed returns the number of events whose data was not an event of a message.
func (a *Accumulator) Malformed() int { return a.malformed }

// Failure returns the error that the backend sent in the stream, as JSON, or nil.
func (a *Accumulator) Failure() []byte {
	for i := range a.members {
		if f := &a.members[i]; string(f.name) == "error" && string(f.value) != "null" {
			return f.value
		}
	}
	return nil
}

// Done reports whether the event that ends a stream has been added.
func (a *Accumulator) Done() bool { return a.done }

// Complete reports whether the event that ends a stream has been added, or one with the reason why the message ends.
func (a *Accumulator) Complete() bool {
	return a.done || slices.ContainsFunc(a.members, func(f field) bool { return string(f.name) == "stop_reason" && string(f.value) != "null" })
}

// Add adds the data of one event.
func (a *Accumulator) Add(data []byte) {
	if len(data) == 0 || isDone(data) { // which some gateways send
		return
	}
	kind, at := "", ""
	var fault []byte
	if !openai.Members(data, func(name, value []byte) {
		switch string(name) {
		case "type":
			kind = openai.Unquote(value)
		case "index":
			at = string(value)
		case "error":
			fault = value
		}
	}) {
		a.malformed++
		return
	}
	openai.Members(data, func(name, value []byte) {
		key := string(name)
		switch {
		case key == "type", key == "index":
		case kind == "message_start" && key == "message":
			a.started = true
			openai.Members(value, a.member)
		case kind == "content_block_start" && key == "content_block":
			a.start(at, value)
		case kind == "content_block_delta" && key == "delta":
			a.delta(at, value)
		case kind == "message_delta" && key == "delta":
			openai.Members(value, a.member)
		case kind == "message_delta":
			a.member(name, value)
		}
	})
	switch {
	case kind == "message_stop":
		a.done = true
	case (kind == "error" || kind == "") && openai.Given(fault): // some gateways leave the type out
		a.member([]byte("error"), fault)
	case kind == "error":
		a.member([]byte("error"), data)
	case kind == "":
		a.malformed++
	}
}

// member adds a member of the message. The last value that is not null counts, also for each count in usage.
func (a *Accumulator) member(name, value []byte) {
	switch string(name) {
	case "usage":
		openai.Members(value, func(name, value []byte) {
			if string(value) != "null" {
				a.size += set(&a.usage, name, value)
			}
		})
	case "content":
	default:
		if string(value) != "null" || !has(a.members, name) {
			a.size += set(&a.members, name, value)
		}
	}
}

func has(in []field, name []byte) bool {
	return slices.ContainsFunc(in, func(f field) bool { return bytes.Equal(f.name, name) })
}

func set(to *[]field, name, value []byte) int {
	for i := range *to {
		if f := &(*to)[i]; bytes.Equal(f.name, name) {
			grown := len(value) - len(f.value)
			f.value = append(f.value[:0], value...)
			return grown
		}
	}
	*to = append(*to, field{bytes.Clone(name), bytes.Clone(value)})
	return len(name) + len(value)
}

// extend appends to a member's value after a separator.
func extend(to *[]field, name, more []byte, separator string) int {
	for i := range *to {
		if f := &(*to)[i]; bytes.Equal(f.name, name) {
			if len(f.value) > 0 && len(more) > 0 {
				f.value = append(f.value, separator...)
			}
			f.value = append(f.value, more...)
			return len(more)
		}
	}
	*to = append(*to, field{bytes.Clone(name), bytes.Clone(more)})
	return len(name) + len(more)
}

func (a *Accumulator) start(at string, value []byte) {
	b := &building{at: at}
	a.blocks = append(a.blocks, b)
	openai.Members(value, func(name, value []byte) {
		switch key := string(name); {
		case value[0] == '"' && (key == "text" || key == "thinking"):
			a.size += extend(&b.texts, name, value[1:len(value)-1], "")
		default:
			a.size += set(&b.members, name, value)
		}
	})
}

// delta adds a delta to the block that began last with an index, or else to the last block: some backends send no index, or
// the same for each block. Without any block it begins one.
func (a *Accumulator) delta(at string, value []byte) {
	var b *building
	for _, other := range a.blocks {
		if b == nil || b.at != at || other.at == at {
			b = other
		}
	}
	if b == nil {
		b = &building{at: at}
		a.blocks = append(a.blocks, b)
	}
	openai.Members(value, func(name, value []byte) {
		switch key := string(name); {
		case key == "type":
			if !has(b.members, name) { // the event that begins it did not come
				a.size += b.become(value)
			}
		case key == "partial_json":
			piece := openai.Unquote(value)
			b.input = append(b.input, piece...)
			a.size += len(piece)
		case key == "citation":
			a.size += extend(&b.lists, []byte("citations"), value, ",")
		case value[0] == '"' && (key == "text" || key == "thinking"):
			a.size += extend(&b.texts, name, value[1:len(value)-1], "")
		default:
			a.size += set(&b.members, name, value)
		}
	})
}

// become makes the block one to which a kind of delta belongs. It returns the size.
func (b *building) become(delta []byte) int {
	kind := "text"
	switch openai.Unquote(delta) {
	case "thinking_delta", "signature_delta":
		kind = "thinking"
	case "input_json_delta":
		kind = "tool_use"
		b.members = append(b.members, field{[]byte("input"), []byte("{}")})
	}
	return set(&b.members, []byte("type"), openai.Quote(kind))
}

// AppendJSON appends the message.
func (a *Accumulator) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	for _, m := range a.members {
		o.Member(m.name, m.value)
	}
	if a.started || len(a.blocks) > 0 {
		o.Key("content")
		o = rawjson.AppendArray(o, a.blocks, func(dst []byte, b *building) []byte { return b.appendJSON(dst) })
	}
	if len(a.usage) > 0 {
		o.Key("usage")
		usage := rawjson.NewObject(o)
		for _, m := range a.usage {
			usage.Member(m.name, m.value)
		}
		o = usage.End()
	}
	return o.End()
}

func (b *building) appendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	for _, m := range b.members {
		switch {
		case string(m.name) == "input" && len(b.input) > 0:
			o.Member(m.name, input(openai.Quote(b.input)))
		case string(m.name) == "citations" && len(b.lists) > 0:
		default:
			o.Member(m.name, m.value)
		}
	}
	for _, m := range b.texts {
		o.Member(m.name, nil)
		o = append(append(append(o, '"'), m.value...), '"')
	}
	for _, m := range b.lists {
		o.Member(m.name, nil)
		o = append(append(append(o, '['), m.value...), ']')
	}
	return o.End()
}
