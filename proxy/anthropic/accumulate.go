package anthropic

import (
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// Accumulator assembles the events of a message's stream into the message that the same
// call would have returned unstreamed. Its zero value is ready. Unknown members are kept.
type Accumulator struct {
	members   openai.Fields // of the message
	usage     openai.Fields
	blocks    []*building
	size      int
	malformed int
	started   bool
	done      bool
}

// building is a content block that is being assembled.
type building struct {
	at      string // its index, as the backend spells it
	members openai.Fields
	texts   openai.Fields // the insides of joined strings
	input   []byte        // of a tool use: the JSON so far, without escapes
	lists   openai.Fields // the insides of joined lists
}

// Size returns the estimated memory of the accumulator in bytes.
func (a *Accumulator) Size() int { return a.size }

// Malformed returns the number of events whose data was not an event of a message.
func (a *Accumulator) Malformed() int { return a.malformed }

// Failure returns the error that the backend sent in the stream, as JSON, or nil.
func (a *Accumulator) Failure() []byte {
	if failure := a.members.Get("error"); openai.Given(failure) {
		return failure
	}
	return nil
}

// Done reports whether the event that ends a stream has been added.
func (a *Accumulator) Done() bool { return a.done }

// Complete reports whether the event that ends a stream has been added, or one with the reason why the message ends.
func (a *Accumulator) Complete() bool {
	return a.done || openai.Given(a.members.Get("stop_reason"))
}

// Add adds the data of one event.
func (a *Accumulator) Add(data []byte) {
	if openai.Blank(data) || isDone(data) { // which some gateways send
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
				a.size += a.usage.Set(name, value)
			}
		})
	case "content":
	default:
		if string(value) != "null" || a.members.Get(string(name)) == nil {
			a.size += a.members.Set(name, value)
		}
	}
}

func (a *Accumulator) start(at string, value []byte) {
	b := &building{at: at}
	a.blocks = append(a.blocks, b)
	openai.Members(value, func(name, value []byte) {
		switch key := string(name); {
		case value[0] == '"' && (key == "text" || key == "thinking"):
			a.size += b.texts.Extend(name, value[1:len(value)-1], "")
		default:
			a.size += b.members.Set(name, value)
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
			if b.members.Get("type") == nil { // the event that begins it did not come
				a.size += b.become(value)
			}
		case key == "partial_json":
			piece := openai.Unquote(value)
			b.input = append(b.input, piece...)
			a.size += len(piece)
		case key == "citation":
			a.size += b.lists.Extend([]byte("citations"), value, ",")
		case value[0] == '"' && (key == "text" || key == "thinking"):
			a.size += b.texts.Extend(name, value[1:len(value)-1], "")
		default:
			a.size += b.members.Set(name, value)
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
		b.members.Set([]byte("input"), []byte("{}"))
	}
	return b.members.Set([]byte("type"), openai.Quote(kind))
}

// AppendJSON appends the message.
func (a *Accumulator) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	for _, m := range a.members {
		o.Member(m.Name, m.Value)
	}
	if a.started || len(a.blocks) > 0 {
		o.Key("content")
		o = rawjson.AppendArray(o, a.blocks, func(dst []byte, b *building) []byte { return b.appendJSON(dst) })
	}
	if len(a.usage) > 0 {
		o.Key("usage")
		usage := rawjson.NewObject(o)
		for _, m := range a.usage {
			usage.Member(m.Name, m.Value)
		}
		o = usage.End()
	}
	return o.End()
}

func (b *building) appendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	for _, m := range b.members {
		switch {
		case string(m.Name) == "input" && len(b.input) > 0:
			o.Member(m.Name, input(openai.Quote(b.input)))
		case string(m.Name) == "citations" && len(b.lists) > 0:
		default:
			o.Member(m.Name, m.Value)
		}
	}
	for _, m := range b.texts {
		o.Member(m.Name, nil)
		o = append(append(append(o, '"'), m.Value...), '"')
	}
	for _, m := range b.lists {
		o.Member(m.Name, nil)
		o = append(append(append(o, '['), m.Value...), ']')
	}
	return o.End()
}
