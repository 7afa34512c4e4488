package pretrained

import (
	"bytes"
	"fmt"
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
	call    []byte // the tool calls under way, from their tag on
	newline string // what was left out before the tag of the calls under way
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
	s.hash = (s.hash ^ uint64(id)) * 0x100000001b3 // FNV-1a
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
	for more := true; more && (s.held != "" || end && len(s.call) > 0); {
		switch s.state {
		case inContent:
			more = s.content(&d, end)
		case inReasoning:
			more = s.reasoning(&d, end)
		case inCall:
			more = s.calling(&d, end)
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
	if s.m.style == StyleLlama && !s.begun {
		switch {
		case strings.HasPrefix(s.held, "{"), strings.HasPrefix(s.held, llamaTag):
			s.state = inCall
			return true
		case !end && partial(s.held, llamaTag) == len(s.held):
			return false
		}
	}
	tags := s.openTags()
	at, tag := -1, ""
	for _, t := range tags {
		i := strings.Index(s.held, t)
		if i < 0 || at >= 0 && at < i || t == thinkBegin && strings.TrimSpace(s.held[:i]) != "" {
			continue // a thought comes first or not at all
		}
		at, tag = i, t
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

// beforeTag is the content before a tag, without the newline that belongs to it; it is kept for a tag that is
// none after all.
func (s *stream) beforeTag(text, tag string) string {
	if tag == hermesBegin && strings.HasSuffix(text, "\n") {
		s.newline = "\n"
		return text[:len(text)-1]
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

// calling waits for the end of tool calls. What is no tool call after all is content.
func (s *stream) calling(d *chat.Delta, end bool) bool {
	searched := len(s.call)
	s.call = append(s.call, s.held...)
	s.held = ""
	begin, stop := s.m.style.tags()
	from := max(len(begin), searched-len(stop))
	if stop != "" && from <= len(s.call) {
		if i := bytes.Index(s.call[from:], []byte(stop)); i >= 0 {
			s.finish(d, from+i, from+i+len(stop))
			return true
		}
	}
	if end {
		s.finish(d, len(s.call), len(s.call))
	}
	return false
}

// finish reads tool calls that end at a place, their closing tag at the next; the rest is to be decided.
func (s *stream) finish(d *chat.Delta, inner, outer int) {
	begin, _ := s.m.style.tags()
	whole := string(s.call[:outer])
	s.held, s.state = string(s.call[outer:]), inContent
	calls, ok := s.m.style.calls(whole[min(len(begin), inner):inner])
	s.call = s.call[:0]
	if !ok {
		s.give(&d.Content, s.newline+whole)
		s.newline = ""
		return
	}
	for _, c := range calls {
		d.ToolCalls = append(d.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("call_%016x%02x", s.hash, s.calls), Type: "function", Function: c})
		s.calls++
	}
	s.begun, s.newline = false, ""
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
