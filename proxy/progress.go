package proxy

import (
	"bytes"
	"io"
	"strings"

	"github.com/agl-go/agl/proxy/openai"
)

// progress counts the tokens of a stream while it runs, whatever API it speaks:
// by the ids that its events carry, or else one for each event in which the model
// says something, since the backend last counted them itself.
type progress struct {
	events openai.Events

	prompt, said   int64 // as the backend counts them
	promptIDs, ids int64
	pieces         int64 // events in which the model says something, or the backend's count of them
	more           bool  // the last event was one of them, and not the last of its reply
	// Of the event that is being read; counted: the backend has counted it.
	finished, speaks, counted bool
}

// longestEvent bounds what is kept of an event until its end comes. A longer one
// is not counted.
const longestEvent = 1 << 20

// write takes a piece of the stream. It reports whether more is to come of what
// the model says: with the end of a reply comes its count, and what has been
// generated to its end is not to be cut.
func (p *progress) write(piece []byte) (more bool) {
	p.events.Write(piece)
	for event := p.events.Next(); event != nil; event = p.events.Next() {
		p.event(openai.Data(event))
	}
	if p.events.Buffered() > longestEvent {
		p.events.Reset()
	}
	return p.more
}

func (p *progress) event(data []byte) {
	p.finished, p.speaks, p.counted = false, false, false
	openai.Members(data, func(name, value []byte) {
		switch string(name) {
		case "type": // of Messages and Responses
			kind := unquote(value)
			p.speaks = p.speaks || kind == "content_block_delta" || strings.HasSuffix(kind, ".delta")
		case "choices":
			openai.Elements(value, p.choice)
		case "message", "response":
			openai.Members(value, func(inner, value []byte) {
				if string(inner) == "usage" {
					p.usage(value, string(name) == "response")
				}
			})
		case "usage":
			p.usage(value, true)
		case "prompt_token_ids":
			p.promptIDs = max(p.promptIDs, countIDs(value))
		}
	})
	if p.speaks && !p.counted {
		p.pieces++
	}
	p.more = p.speaks && !p.finished
}

// choice takes a choice of a chat completion's or a completion's event.
func (p *progress) choice(raw []byte) {
	openai.Members(raw, func(name, value []byte) {
		switch string(name) {
		case "delta":
			openai.Members(value, func(name, value []byte) { p.speaks = p.speaks || string(name) != "role" && says(value) })
		case "text":
			p.speaks = p.speaks || says(value)
		case "token_ids":
			n := countIDs(value)
			p.ids += n
			p.speaks = p.speaks || n > 0
		case "prompt_token_ids": // SGLang has them here
			p.promptIDs = max(p.promptIDs, countIDs(value))
		case "finish_reason":
			p.finished = p.finished || value[0] == '"'
		}
	})
}

// says reports whether a member of what the model says has anything in it.
func says(value []byte) bool {
	switch string(value) {
	case `""`, "null", "[]", "{}":
		return false
	}
	return true
}

// usage takes a count of the backend's. Where it is one of all that has been said
// so far, unlike that with which Messages begin, no events need to be counted.
func (p *progress) usage(raw []byte, all bool) {
	in, out, _ := readUsage(raw)
	p.prompt, p.said = max(p.prompt, in), max(p.said, out)
	if all && out > 0 {
		p.pieces, p.counted = out, true
	}
}

// count returns the tokens of prompt and reply as far as they are known.
func (p *progress) count() (in, out int64) {
	out = p.ids
	if out == 0 {
		out = p.pieces
	}
	return max(p.prompt, p.promptIDs), max(p.said, out)
}

// countIDs is the length of a list of numbers; of anything else it is 0.
func countIDs(list []byte) int64 {
	if len(list) < 3 || list[0] != '[' {
		return 0
	}
	return int64(bytes.Count(list, []byte{','})) + 1
}

// metered is a stream whose tokens count towards a budget while it runs.
type metered struct {
	io.ReadCloser
	progress

	d *dispatcher
}

// meter has a stream charged to its attempt as it runs, and cancelled when that
// has no tokens left.
func (d *dispatcher) meter(stream io.ReadCloser) io.ReadCloser {
	if d.c.control == nil || d.c.control.Budget.Tokens == 0 {
		return stream
	}
	return &metered{ReadCloser: stream, d: d}
}

func (m *metered) Read(into []byte) (int, error) {
	n, err := m.ReadCloser.Read(into)
	more := m.write(into[:n])
	in, out := m.count()
	if c := m.d.c; in+out != c.charged {
		limit, used := c.control.Budget.Tokens, m.d.p.controls.charge(c, in+out)
		if more && used > limit {
			if in > 0 { // the backend does not come to say it
				m.d.tokens.atLeast(in, out)
			}
			c.cancel(spentOn(limit, used))
		}
	}
	return n, err
}
