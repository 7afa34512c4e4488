package pretrained

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// stream reads a reply token by token. It releases no text that may still turn out to be a tag or a part of a character.
type stream struct {
	style   Style
	thinks  bool
	stops   map[int32]bool
	decoder *tokenizer.Decoder

	state   state
	held    string // text that is not decided yet
	call    []byte // the tool calls that are being read, from their tag on
	newline string // what was left out before that tag
	begun   bool   // some content, or reasoning, was released
	thought bool   // the reasoning is over
	calls   int    // so far
	hash    uint64 // of all ids, for the ids of calls
}

type state int

const (
	inContent state = iota
	inReasoning
	inCall
)

func (s *stream) Add(id int32) chat.Delta {
	s.hash = (s.hash ^ uint64(id)) * 0x100000001b3 // FNV-1a
	if s.stops[id] {
		return chat.Delta{}
	}
	s.held += s.decoder.Add(id)
	return s.decide(false)
}

func (s *stream) Close() chat.Delta {
	s.held += s.decoder.Flush()
	return s.decide(true)
}

// decide releases what is certain of the held text; at the end that is all of it.
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

// content decides text outside of tags. It reports whether there is more to decide.
func (s *stream) content(d *chat.Delta, end bool) bool {
	if !s.begun {
		s.held = s.trimStart(s.held)
		if s.held == "" {
			return false
		}
	}
	if s.style == StyleLlama && !s.begun {
		switch {
		case strings.HasPrefix(s.held, "{"), strings.HasPrefix(s.held, llamaTag):
			s.state = inCall
			return true
		case !end && partial(s.held, llamaTag) == len(s.held):
			return false
		}
	}
	tags := s.openingTags()
	at, tag := -1, ""
	for _, t := range tags {
		i := strings.Index(s.held, t)
		if i < 0 || at >= 0 && at < i || t == thinkBegin && strings.TrimSpace(s.held[:i]) != "" {
			continue // reasoning comes first or not at all
		}
		at, tag = i, t
	}
	if at < 0 {
		s.release(&d.Content, end, tags...)
		return false
	}
	s.give(&d.Content, s.beforeTag(s.held[:at], tag))
	s.held, s.state = s.held[at:], inCall
	if tag == thinkBegin {
		s.held, s.state = s.held[len(tag):], inReasoning
	}
	return true
}

// openingTags are the tags that may come now.
func (s *stream) openingTags() []string {
	var tags []string
	if s.thinks && !s.thought && !s.begun && s.calls == 0 {
		tags = append(tags, thinkBegin)
	}
	if begin, _ := s.style.tags(); begin != "" {
		tags = append(tags, begin)
	}
	return tags
}

// trimStart leaves out the newlines between a tag and what follows it.
func (s *stream) trimStart(text string) string {
	trimmed := strings.TrimLeft(text, "\n")
	if s.thought || s.calls > 0 || s.thinks && strings.HasPrefix(trimmed, thinkBegin) {
		return trimmed
	}
	return text
}

// beforeTag is the content before a tag, without the newline that belongs to the tag. That is kept in case the tag turns
// out not to be one.
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

// release gives the held text, except what may be the beginning of a tag and, as white space before a tag belongs to the
// tag, the newlines before it.
func (s *stream) release(to *string, end bool, tags ...string) {
	n := len(s.held)
	if !end {
		for _, t := range tags {
			n = min(n, len(s.held)-partial(s.held, t))
		}
		n = len(strings.TrimRight(s.held[:n], "\n"))
	}
	s.give(to, s.held[:n])
	s.held = s.held[n:]
}

// reasoning decides text up to the end of the reasoning.
func (s *stream) reasoning(d *chat.Delta, end bool) bool {
	if !s.begun {
		s.held = strings.TrimLeft(s.held, "\n")
	}
	text, rest, found := strings.Cut(s.held, thinkEnd)
	if !found {
		s.release(&d.Reasoning, end, thinkEnd)
		return false
	}
	d.Reasoning += strings.TrimRight(text, "\n")
	s.held, s.state, s.thought, s.begun = rest, inContent, true, false
	return true
}

// calling waits for the end of tool calls.
func (s *stream) calling(d *chat.Delta, end bool) bool {
	searched := len(s.call)
	s.call = append(s.call, s.held...)
	s.held = ""
	begin, stop := s.style.tags()
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

// finish reads tool calls that end at inner, and their closing tag at outer; what follows is to be decided. Text that is no
// tool call after all is content.
func (s *stream) finish(d *chat.Delta, inner, outer int) {
	begin, _ := s.style.tags()
	whole := string(s.call[:outer])
	s.held, s.state = string(s.call[outer:]), inContent
	calls, ok := s.style.calls(whole[min(len(begin), inner):inner])
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

// partial returns the length of the longest proper beginning of a tag with which text ends.
func partial(text, tag string) int {
	for n := min(len(text), len(tag)-1); n > 0; n-- {
		if strings.HasSuffix(text, tag[:n]) {
			return n
		}
	}
	return 0
}
