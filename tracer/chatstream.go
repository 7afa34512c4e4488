package tracer

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// parseStream puts a chat completion together from the server-sent events of a
// streamed one. What could be read is returned beside an error.
func parseStream(body []byte) (chatReply, error) {
	var s streamedReply
	err := eachEvent(body, s.add)
	if err == nil && len(s.choices) == 0 {
		err = errors.New("the model's reply has no choices")
	}
	return s.reply(), err
}

// eachEvent calls f with the data of each event up to [DONE].
func eachEvent(body []byte, f func(data []byte) error) error {
	var data []byte
	for line := range bytes.Lines(body) {
		line = bytes.TrimRight(line, "\r\n")
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
			continue
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			return nil
		}
		if err := f(data); err != nil {
			return err
		}
		data = nil
	}
	if len(data) == 0 || string(data) == "[DONE]" {
		return nil
	}
	return f(data)
}

type streamedReply struct {
	fields    jsontext.Value
	usage     jsontext.Value
	promptIDs jsontext.Value
	choices   []streamedChoice
}

type streamedChoice struct {
	index      int
	message    streamedObject
	tools      []streamedObject
	functions  []streamedObject
	finish     jsontext.Value
	tokenIDs   []jsontext.Value
	logContent []jsontext.Value
	logRefusal []jsontext.Value
}

// add takes one chunk.
func (s *streamedReply) add(data []byte) error {
	raw := jsontext.Value(data)
	if !raw.IsValid(rawjson.Options()) || raw.Kind() != '{' {
		return errors.New("an event of the model's reply is not a JSON object")
	}
	for name, value := range agl.Attributes(raw).All() {
		switch {
		case value.Kind() == 'n':
		case name == "error":
			return fmt.Errorf("the model broke off: %s", value)
		case name == "usage":
			s.usage = value
		case name == "prompt_token_ids":
			s.promptIDs = value
		case name == "choices":
			for _, choice := range jsonElements(value) {
				s.addChoice(choice)
			}
		default:
			if _, known := rawjson.Get(s.fields, name); !known {
				s.fields = rawjson.Set(s.fields, name, value)
			}
		}
	}
	return nil
}

func (s *streamedReply) addChoice(raw jsontext.Value) {
	c := s.choice(index(raw))
	if delta, ok := rawjson.Get(raw, "delta"); ok {
		c.addDelta(delta)
	}
	if finish, ok := rawjson.Get(raw, "finish_reason"); ok && finish.Kind() != 'n' {
		c.finish = finish
	}
	c.tokenIDs = append(c.tokenIDs, jsonElements(tokenIDs(raw))...)
	if logprobs, ok := rawjson.Get(raw, "logprobs"); ok {
		content, _ := rawjson.Get(logprobs, "content")
		refusal, _ := rawjson.Get(logprobs, "refusal")
		c.logContent = append(c.logContent, jsonElements(content)...)
		c.logRefusal = append(c.logRefusal, jsonElements(refusal)...)
	}
}

func index(raw jsontext.Value) int {
	var i int
	if value, ok := rawjson.Get(raw, "index"); !ok || json.Unmarshal(value, &i) != nil {
		return 0
	}
	return i
}

func (s *streamedReply) choice(index int) *streamedChoice {
	for i := range s.choices {
		if s.choices[i].index == index {
			return &s.choices[i]
		}
	}
	s.choices = append(s.choices, streamedChoice{index: index})
	return &s.choices[len(s.choices)-1]
}

func (c *streamedChoice) addDelta(delta jsontext.Value) {
	for name, value := range agl.Attributes(delta).All() {
		if name != "tool_calls" {
			c.message.add(name, value, name != "role")
			continue
		}
		for _, call := range jsonElements(value) {
			c.addToolCall(call)
		}
	}
}

func (c *streamedChoice) addToolCall(call jsontext.Value) {
	const mostTools = 1 << 10 // a bound for what a broken backend may make us allocate
	i := index(call)
	if i < 0 || i >= mostTools {
		return
	}
	for len(c.tools) <= i {
		c.tools = append(c.tools, streamedObject{})
		c.functions = append(c.functions, streamedObject{})
	}
	for name, value := range agl.Attributes(call).All() {
		switch name {
		case "index":
		case "function":
			for name, value := range agl.Attributes(value).All() {
				c.functions[i].add(name, value, name == "arguments")
			}
		default:
			c.tools[i].add(name, value, false)
		}
	}
}

// reply returns what the chunks add up to.
func (s *streamedReply) reply() chatReply {
	r := chatReply{fields: s.fields, usage: s.usage, promptIDs: s.promptIDs}
	for i := range s.choices {
		c := &s.choices[i]
		message := c.message.object()
		if len(c.tools) > 0 {
			var calls []jsontext.Value
			for t := range c.tools {
				calls = append(calls, rawjson.Set(c.tools[t].object(), "function", c.functions[t].object()))
			}
			message = rawjson.Set(message, "tool_calls", list(calls))
		}
		r.choices = append(r.choices, chatChoice{
			message: message, finish: c.finish,
			tokenIDs: list(c.tokenIDs), logContent: list(c.logContent), logRefusal: list(c.logRefusal),
		})
	}
	return r
}

// list makes a raw array; none of no elements.
func list(elements []jsontext.Value) jsontext.Value {
	if len(elements) == 0 {
		return nil
	}
	out := jsontext.Value{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// streamedObject is an object whose strings come in pieces.
type streamedObject struct {
	names  []string
	pieces map[string][]byte // strings, unquoted
	values map[string]jsontext.Value
}

// add takes a member: a piece of a string, or a value that replaces the last.
func (o *streamedObject) add(name string, value jsontext.Value, piece bool) {
	if value.Kind() == 'n' {
		return
	}
	_, have := o.values[name]
	_, begun := o.pieces[name]
	if !have && !begun {
		o.names = append(o.names, name)
	}
	if piece && value.Kind() == '"' {
		if o.pieces == nil {
			o.pieces = map[string][]byte{}
		}
		o.pieces[name] = append(o.pieces[name], text(value)...)
		return
	}
	if o.values == nil {
		o.values = map[string]jsontext.Value{}
	}
	o.values[name] = value
}

func (o *streamedObject) object() jsontext.Value {
	out := jsontext.Value("{}")
	for _, name := range o.names {
		value, ok := o.values[name]
		if piece, isPiece := o.pieces[name]; !ok && isPiece {
			value = rawjson.AppendString(nil, string(piece))
		}
		out = rawjson.Set(out, name, value)
	}
	return out
}
