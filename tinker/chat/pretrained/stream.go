package pretrained

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// stream reads a reply as its tokens come. Nothing that may still turn out to be a tag, and no part of a
// character, is given away before that is certain.
type stream struct {
	m       *Model
	decoder *tokenizer.Decoder
	state   state
	held    string // text that is not decided
	begun   bool   // something of the content, or of the reasoning, was given away
	thought bool   // reasoning is over
	calls   int
	hash    uint64 // of all ids, for the ids of calls
}

type state int

const (
	inContent state = iota
	inReasoning
	inCall
)

// Stream implements chat.Streamer.
func (m *Model) Stream() chat.Stream {
	s := &stream{m: m, decoder: m.tok.NewDecoder(false)}
	if m.opensReasoning {
		s.state = inReasoning
	}
	return s
}

// Add implements chat.Stream.
func (s *stream) Add(id int32) chat.Delta {
	h := fnv.New64a()
	fmt.Fprint(h, s.hash, id)
	s.hash = h.Sum64()
	if s.m.stops[id] {
		return chat.Delta{}
	}
	s.held += s.decoder.Add(id)
	return s.decide(false)
}

// Close implements chat.Stream.
func (s *stream) Close() chat.Delta {
	s.held += s.decoder.Flush()
	return s.decide(true)
}

// decide gives away what is certain of the text that is held; at the end that is everything.
func (s *stream) decide(end bool) chat.Delta {
	var d chat.Delta
	for s.held != "" {
		var more bool
		switch s.state {
		case inContent:
			more = s.content(&d, end)
		case inReasoning:
			more = s.reasoning(&d, end)
		case inCall:
			more = s.call(&d, end)
		}
		if !more {
			break
		}
	}
	return d
}

// content decides text outside of tags; it reports whether there is more to decide.
func (s *stream) content(d *chat.Delta, end bool) bool {
	if !s.begun {
		s.held = s.trimStart(s.held)
		if s.held == "" {
			return false
		}
	}
	if s.m.style == StyleLlama && !s.begun && (strings.HasPrefix(s.held, "{") || partial(s.held, llamaTag) == len(s.held) || strings.HasPrefix(s.held, llamaTag)) {
		s.state = inCall
		return true
	}
	tags := s.openTags()
	at, tag := -1, ""
	for _, t := range tags {
		if i := strings.Index(s.held, t); i >= 0 && (at < 0 || i < at) {
			at, tag = i, t
		}
	}
	if at >= 0 {
		s.give(&d.Content, s.beforeTag(s.held[:at], tag))
		s.held, s.state = s.held[at:], inCall
		if tag == thinkBegin {
			s.held, s.state = s.held[len(tag):], inReasoning
		}
		return true
	}
	keep := 0
	if !end {
		for _, t := range tags {
			keep = max(keep, partial(s.held, t))
		}
		// White space before a tag belongs to the tag.
		keep += len(s.held) - keep - len(strings.TrimRight(s.held[:len(s.held)-keep], "\n"))
	}
	s.give(&d.Content, s.held[:len(s.held)-keep])
	s.held = s.held[len(s.held)-keep:]
	return false
}

// openTags are the tags that may come now.
func (s *stream) openTags() []string {
	var tags []string
	if s.m.thinks && !s.thought && !s.begun && s.calls == 0 {
		tags = append(tags, thinkBegin)
	}
	if begin, _ := s.m.style.tags(); begin != "" {
		tags = append(tags, begin)
	}
	return tags
}

// trimStart leaves out the newlines that stand between tags and what follows them.
func (s *stream) trimStart(text string) string {
	if s.thought || s.calls > 0 {
		return strings.TrimLeft(text, "\n")
	}
	if s.m.thinks && strings.HasPrefix(strings.TrimLeft(text, "\n"), thinkBegin) {
		return strings.TrimLeft(text, "\n")
	}
	return text
}

// beforeTag is the content before a tag, without the newline that belongs to it.
func (s *stream) beforeTag(text, tag string) string {
	if tag == hermesBegin {
		return strings.TrimSuffix(text, "\n")
	}
	return text
}

func (s *stream) give(to *string, text string) {
	if text == "" {
		return
	}
	*to += text
	s.begun = true
}

// reasoning decides text up to the end of the reasoning.
func (s *stream) reasoning(d *chat.Delta, end bool) bool {
	if !s.begun {
		s.held = strings.TrimLeft(s.held, "\n")
	}
	if i := strings.Index(s.held, thinkEnd); i >= 0 {
		d.Reasoning += strings.TrimRight(s.held[:i], "\n")
		s.held, s.state, s.thought, s.begun = s.held[i+len(thinkEnd):], inContent, true, false
		return true
	}
	keep := 0
	if !end {
		keep = partial(s.held, thinkEnd)
		keep += len(s.held) - keep - len(strings.TrimRight(s.held[:len(s.held)-keep], "\n"))
	}
	s.give(&d.Reasoning, s.held[:len(s.held)-keep])
	s.held = s.held[len(s.held)-keep:]
	return false
}

// call waits for the end of tool calls. What is no tool call after all is content.
func (s *stream) call(d *chat.Delta, end bool) bool {
	begin, stop := s.m.style.tags()
	if stop == "" { // the whole reply is the call
		if end {
			s.finishCall(d, s.held, s.held, "")
		}
		return false
	}
	i := strings.Index(s.held, stop)
	if i < 0 {
		if end {
			s.finishCall(d, strings.TrimPrefix(s.held, begin), s.held, "")
		}
		return false
	}
	whole := s.held[:i+len(stop)]
	s.finishCall(d, s.held[len(begin):i], whole, s.held[i+len(stop):])
	return true
}

func (s *stream) finishCall(d *chat.Delta, inner, whole, rest string) {
	calls, ok := s.m.style.calls(inner)
	if !ok {
		s.give(&d.Content, whole)
	}
	for _, c := range calls {
		d.ToolCalls = append(d.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("call_%016x%02x", s.hash, s.calls), Type: "function", Function: c})
		s.calls++
	}
	if ok {
		s.begun = false
	}
	s.held, s.state = rest, inContent
}

// partial is the length of the longest end of text that a tag begins with, all of the tag not counted.
func partial(text, tag string) int {
	for n := min(len(text), len(tag)-1); n > 0; n-- {
		if strings.HasSuffix(text, tag[:n]) {
			return n
		}
	}
	return 0
}
