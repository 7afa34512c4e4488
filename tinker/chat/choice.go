package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl/tinker"
)

// sampledChoice is one sampled reply.
type sampledChoice struct {
	message  Message
	finish   string
	tokens   []int32
	logprobs []float32
	cut      bool // by a stop string
}

// piece is a part of a reply's content, and the tokens that it came from: tokens[begin:end]. The pieces of a reply cover
// all its tokens in order, and their texts make up its content.
type piece struct {
	text       string
	begin, end int
}

// newChoice reads a sampled sequence. stops are the request's stop strings: the reply ends with the token that completes the
// first of them, and its content before the string.
func newChoice(tok Tokenizer, ren Renderer, tokens []int32, lps []float32, stopped bool, stops []string) sampledChoice {
	r := sampledChoice{tokens: tokens, logprobs: lps, finish: "length"}
	if stopped {
		r.finish = "stop"
	}
	r.message = ren.Parse(tokens)
	if n := tinker.FirstStop(tok.Decode, tokens, stops); n >= 0 {
		r.tokens, r.logprobs, r.finish, r.cut = tokens[:n], lps[:n], "stop", true
		r.message = ren.Parse(r.tokens)
		if begin := earliest(r.message.Content, stops); begin >= 0 {
			r.message.Content = r.message.Content[:begin]
		}
	}
	if len(r.message.ToolCalls) > 0 && r.finish == "stop" {
		r.finish = "tool_calls"
	}
	return r
}

// split divides content at token borders. There is a single piece where the tokens' text is not the content followed by
// what the format strips: a format may also rewrite it.
func split(tok Tokenizer, tokens []int32, content string) []piece {
	var out []piece
	begin, rest := 0, content
	for end := 1; end <= len(tokens); end++ {
		text := tok.Decode(tokens[begin:end])
		if end < len(tokens) && incomplete(text) {
			continue
		}
		if len(text) > len(rest) {
			text = rest // the format or a stop string strips the tail
		}
		if rest[:len(text)] != text {
			return []piece{{text: content, begin: 0, end: len(tokens)}}
		}
		out = append(out, piece{text: text, begin: begin, end: end})
		begin, rest = end, rest[len(text):]
	}
	if rest != "" {
		return []piece{{text: content, begin: 0, end: len(tokens)}}
	}
	return out
}

// earliest returns where the first stop string in text begins; -1 if there is none.
func earliest(text string, stops []string) int {
	begin := -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (begin < 0 || i < begin) {
			begin = i
		}
	}
	return begin
}

// incomplete reports whether text ends inside a character, whose other bytes are in later tokens.
func incomplete(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return r == utf8.RuneError && text != ""
}
