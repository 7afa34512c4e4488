package openai

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
)

// ResponsesAccumulator assembles the events of a stream of the Responses API into the
// response that the same call would have returned unstreamed. The last event contains that
// response. If the stream breaks off, or that event has no output, the items so far are used, including incomplete ones.
// Its zero value is ready.
type ResponsesAccumulator struct {
	response  []byte
	items     []*streamedItem
	fault     []byte // the event error
	size      int
	malformed int
	done      bool
}

// streamedItem is an item of the output.
type streamedItem struct {
	raw     []byte // from the event that began it, or from the one that completed it
	said    []byte // its text or arguments so far: the inside of a JSON string
	refused bool   // what it says is a refusal
	done    bool
}

// Size returns the estimated memory of the accumulator in bytes.
func (a *ResponsesAccumulator) Size() int { return a.size }

// Malformed returns the number of events whose data was not an event of the API.
func (a *ResponsesAccumulator) Malformed() int { return a.malformed }

// Failure returns the error that the backend sent in the stream, as JSON, or nil.
func (a *ResponsesAccumulator) Failure() []byte {
	if a.fault != nil {
		return a.fault
	}
	if failure, _ := rawjson.Get(a.response, "error"); Given(failure) {
		return failure
	}
	return nil
}

// Done reports whether the event that ends a stream has been added.
func (a *ResponsesAccumulator) Done() bool { return a.done }

// Complete is Done, because only the event that ends a stream has the whole response.
func (a *ResponsesAccumulator) Complete() bool { return a.done }

// Add adds the data of one event.
func (a *ResponsesAccumulator) Add(data []byte) {
	if Blank(data) || string(data) == "[DONE]" {
		return
	}
	kind, at := "", 0
	var whole, item, delta, fault []byte
	complete := Members(data, func(name, value []byte) {
		switch string(name) {
		case "type":
			kind = rawjson.Unquote(value)
		case "output_index":
			// Anything but an integer counts as 0.
			at, _ = strconv.Atoi(string(value))
		case "response":
			whole = value
		case "item":
			item = value
		case "delta":
			delta = value
		case "error":
			fault = value
		}
	})
	if kind == "error" && !Given(fault) {
		fault = data // whose members are those of the error
	}
	switch {
	case !complete, kind == "" && !Given(fault):
		a.malformed++
	case kind == "error" || kind == "": // some gateways leave the type out
		a.fault = bytes.Clone(fault)
		a.size += len(fault)
	case len(whole) > 0 && whole[0] == '{':
		a.size += len(whole) - len(a.response)
		a.response = append(a.response[:0], whole...)
		a.done = kind == "response.completed" || kind == "response.incomplete" || kind == "response.failed"
	case item != nil:
		it := a.item(at)
		a.size += len(item) - len(it.raw)
		it.raw, it.done = append(it.raw[:0], item...), kind == "response.output_item.done"
	case len(delta) > 1 && delta[0] == '"' && !strings.Contains(kind, "summary"):
		it := a.item(at)
		it.said = append(it.said, delta[1:len(delta)-1]...)
		if kind == "response.refusal.delta" {
			it.refused = true
		}
		a.size += len(delta)
	}
}

// maxItems bounds the index of an item.
const maxItems = 1 << 12

func (a *ResponsesAccumulator) item(at int) *streamedItem {
	at = max(0, min(at, maxItems))
	for len(a.items) <= at {
		a.items = append(a.items, &streamedItem{})
	}
	return a.items[at]
}

// AppendJSON appends the response.
func (a *ResponsesAccumulator) AppendJSON(dst []byte) []byte {
	if a.done && !a.lacksOutput() {
		return append(dst, a.response...)
	}
	dst = append(dst, '{')
	Members(a.response, func(name, value []byte) {
		if key := string(name); key != "output" && (key != "error" || a.fault == nil) {
			dst = appendMember(dst, name, value)
		}
	})
	dst = append(appendName(dst, []byte("output")), '[')
	first := true
	for _, it := range a.items {
		if it.raw == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = it.appendJSON(dst)
	}
	dst = append(dst, ']')
	if a.fault != nil {
		dst = appendMember(dst, []byte("error"), a.fault)
	}
	return append(dst, '}')
}

// lacksOutput reports whether the response of the last event has no output although there were items: some services leave it
// out there.
func (a *ResponsesAccumulator) lacksOutput() bool {
	if !slices.ContainsFunc(a.items, func(it *streamedItem) bool { return it.raw != nil }) {
		return false
	}
	output, _ := rawjson.Get(a.response, "output")
	for range rawjson.Elements(output) {
		return false
	}
	return true
}

func (it *streamedItem) appendJSON(dst []byte) []byte {
	if it.done || it.said == nil {
		return append(dst, it.raw...)
	}
	kind := ""
	dst = append(dst, '{')
	Members(it.raw, func(name, value []byte) {
		switch key := string(name); key {
		case "content", "arguments", "input":
			return
		case "type":
			kind = rawjson.Unquote(value)
		}
		dst = appendMember(dst, name, value)
	})
	said := quoted(it.said)
	switch kind {
	case "function_call":
		return append(appendMember(dst, []byte("arguments"), said), '}')
	case "custom_tool_call":
		return append(appendMember(dst, []byte("input"), said), '}')
	}
	part := `[{"type":"output_text","text":`
	switch {
	case kind == "reasoning":
		part = `[{"type":"reasoning_text","text":`
	case it.refused:
		part = `[{"type":"refusal","refusal":`
	}
	dst = append(append(appendName(dst, []byte("content")), part...), said...)
	return append(dst, "}]}"...)
}
