package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/agl-go/agl/tinker"
)

type modelList struct {
	Object string      `json:"object"` // list
	Data   []modelCard `json:"data"`
}

type modelCard struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // model
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitzero"`
}

// reply is one sampled choice.
type reply struct {
	message  Message
	finish   string
	tokens   []int32
	logprobs []float32
	cut      bool // at a stop string
}

// piece is a part of a reply's content and the tokens that it came from: tokens[begin:end]. The pieces of a
// reply cover all its tokens in order, and their texts make up its content.
type piece struct {
	text       string
	begin, end int
}

// newReply reads a sampled sequence. stops are the request's own stop strings: the reply is cut with the
// token that completes the first of them, and the string itself is not part of the content.
func newReply(tok Tokenizer, ren Renderer, tokens []int32, lps []float32, stopped bool, stops []string) reply {
	r := reply{tokens: tokens, logprobs: lps, finish: "length"}
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

// split cuts content at token borders. Where the tokens' text is not the content followed by what the
// format strips (a format may also rewrite it), there is a single piece.
func split(tok Tokenizer, tokens []int32, content string) []piece {
	var out []piece
	begin, rest := 0, content
	for end := 1; end <= len(tokens); end++ {
		text := tok.Decode(tokens[begin:end])
		if end < len(tokens) && incomplete(text) {
			continue
		}
		if len(text) > len(rest) {
			text = rest // the tail that the format or a stop string strips
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

// earliest is where the stop string that begins first in text begins; -1 if there is none.
func earliest(text string, stops []string) int {
	begin := -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (begin < 0 || i < begin) {
			begin = i
		}
	}
	return begin
}

// incomplete reports text that ends inside a character whose other bytes are in tokens to come.
func incomplete(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return r == utf8.RuneError && text != ""
}
