package chat

import (
	"strings"

	"github.com/agl-go/agl/tinker"
)

// sampledChoice is one sampled reply.
type sampledChoice struct {
	message  Message
	finish   string
	tokens   []int32
	logprobs []float32
}

// newChoice reads a sampled sequence. stops are the request's stop strings: the reply ends with the token that completes the
// first of them, and its content before the string.
func newChoice(tok Tokenizer, stream Stream, tokens []int32, logprobs []float32, stopped bool, stops []string) sampledChoice {
	c := sampledChoice{finish: "length", tokens: tokens, logprobs: logprobs}
	n := tinker.FirstStop(tok.Decode, tokens, stops)
	if n >= 0 {
		c.tokens, c.logprobs = tokens[:n], logprobs[:n]
	}
	if n >= 0 || stopped {
		c.finish = "stop"
	}
	c.message = ReadAll(stream, c.tokens)
	if n >= 0 {
		c.message.Content = before(c.message.Content, stops)
	}
	if len(c.message.ToolCalls) > 0 && c.finish == "stop" {
		c.finish = "tool_calls"
	}
	return c
}

// before returns the text before the first stop string in it.
func before(text string, stops []string) string {
	end := len(text)
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 {
			end = min(end, i)
		}
	}
	return text[:end]
}

// part is a part of a choice, and the tokens that it came from: tokens[begin:end].
type part struct {
	Delta

	begin, end int
}

// parts divides a choice into parts, token by token. They cover all its tokens in order.
func (c sampledChoice) parts(stream Stream) []part {
	var out []part
	var p part
	content := len(c.message.Content) // that is still to come: a stop string ends it early
	for i, id := range c.tokens {
		p.Delta = stream.Add(id)
		if p.end = i + 1; p.end == len(c.tokens) {
			p.add(stream.Close())
		}
		p.Content = p.Content[:min(len(p.Content), content)]
		content -= len(p.Content)
		if p.Content == "" && p.Reasoning == "" && len(p.ToolCalls) == 0 && p.end < len(c.tokens) {
			continue
		}
		out = append(out, p)
		p.begin = p.end
	}
	return out
}
