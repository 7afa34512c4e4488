package exchange

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// Usage is what a call used, in tokens.
type Usage struct{ Prompt, Completion int64 }

// Sum returns the tokens of prompt and reply.
func (u Usage) Sum() int64 { return u.Prompt + u.Completion }

// meter counts the tokens of a reply of any API while it is relayed. Budgets, limits,
// metrics and logs all use its count, and the record reads the same member of the reply
// with the same function.
type meter struct {
	request    int   // bytes of the request
	size       int64 // bytes of the reply
	stream     bool
	exact      bool // every event is parsed, because tokens count while the stream runs
	events     openai.Events
	dataEvents int64 // events with data
	used       Usage // the backend's count, if given
	given      bool  // the usage is known: from the backend, or zero for an error
	progress
}

// begin prepares the meter for a reply. exact is set where the tokens of a stream
// count while it runs.
func (m *meter) begin(status int, stream, exact bool) {
	m.stream, m.exact = stream, stream && exact
	m.given = status >= http.StatusMultipleChoices // an error uses nothing
}

// longestEvent bounds what is kept of an incomplete event. A longer one is not
// counted.
const longestEvent = 1 << 20

const usageName = `"usage"`

// write adds a piece of the reply; a whole reply is one piece.
func (m *meter) write(piece []byte) {
	m.size += int64(len(piece))
	if !m.stream {
		m.whole(piece)
		return
	}
	m.events.Write(piece)
	for event := m.events.Next(); event != nil; event = m.events.Next() {
		m.add(event)
	}
	if m.events.Buffered() > longestEvent {
		m.events.Reset()
	}
}

// end counts what follows the last blank line of a whole stream: it is an event, too.
func (m *meter) end() {
	if rest := m.events.Rest(); len(rest) > 0 {
		m.add(rest)
	}
}

// add counts an event of a stream.
func (m *meter) add(event []byte) {
	read := m.exact || bytes.Contains(event, []byte("usage")) // without the quotes, of which there are many, for speed
	if !read && bytes.HasPrefix(event, []byte("data:")) {     // nearly every event
		m.dataEvents++
		return
	}
	data := openai.Data(event)
	if data != nil {
		m.dataEvents++
	}
	if read {
		m.event(data, m.atLeast)
	}
}

// whole finds the usage of a whole reply, searching from the end. Quotes inside strings
// are escaped, so the quoted name cannot be part of a longer string.
func (m *meter) whole(reply []byte) {
	for at := bytes.LastIndex(reply, []byte(usageName)); at >= 0; at = bytes.LastIndex(reply[:at], []byte(usageName)) {
		value := bytes.TrimLeft(reply[at+len(usageName):], " \t\r\n:")
		if u, ok := openai.ParseUsage(value[:max(rawjson.SkipValue(value, 0), 0)]); ok {
			m.atLeast(Usage{u.Prompt, u.Completion})
			return
		}
	}
}

// running returns the tokens so far of a stream that is counted exactly.
func (m *meter) running() Usage { return m.progress.count() }

// atLeast adds a count of the tokens so far; the largest count wins.
func (m *meter) atLeast(u Usage) {
	m.given = true
	m.used.Prompt, m.used.Completion = max(m.used.Prompt, u.Prompt), max(m.used.Completion, u.Completion)
}

// bytesPerToken estimates the tokens of text for which there is no count.
const bytesPerToken = 4

// count returns the tokens of prompt and reply. Without the backend's count they are
// estimated: one for each event of a stream, and one for each four bytes of other text.
func (m *meter) count() Usage {
	switch {
	case m.given || m.size == 0:
		return m.used
	case m.stream:
		return Usage{int64(m.request) / bytesPerToken, m.dataEvents}
	default:
		return Usage{int64(m.request) / bytesPerToken, m.size / bytesPerToken}
	}
}

// progress counts the tokens of a running stream of any API: by the token ids in its
// events, or else one for each event with output since the backend's last own count.
type progress struct {
	prompt, completion int64 // as the backend counts them
	promptIDs, ids     int64
	outputEvents       int64 // events with output, or the completion tokens that the backend has counted so far
	// more says that the last event had output and did not end the reply: a reply that has been generated to its end is not
	// cut off.
	more bool
	// These describe the event that is being read. counted says that the backend's count includes it.
	finished, hasOutput, counted bool
}

// event adds the data of an event, and calls found for each count of the backend.
func (p *progress) event(data []byte, found func(Usage)) {
	p.finished, p.hasOutput, p.counted = false, false, false
	openai.Members(data, func(name, value []byte) {
		switch string(name) {
		case "type": // of Messages and Responses
			kind := rawjson.Unquote(value)
			p.hasOutput = p.hasOutput || kind == "content_block_delta" || strings.HasSuffix(kind, ".delta")
		case "choices":
			openai.Elements(value, p.choice)
		case "message", "response":
			openai.Members(value, func(inner, value []byte) {
				if string(inner) == "usage" {
					p.usage(value, string(name) == "response", found)
				}
			})
		case "usage":
			p.usage(value, true, found)
		case "prompt_token_ids":
			p.promptIDs = max(p.promptIDs, countIDs(value))
		}
	})
	if p.hasOutput && !p.counted {
		p.outputEvents++
	}
	p.more = p.hasOutput && !p.finished
}

// choice adds a choice of an event of a chat completion or a completion.
func (p *progress) choice(raw []byte) {
	openai.Members(raw, func(name, value []byte) {
		switch string(name) {
		case "delta":
			openai.Members(value, func(name, value []byte) { p.hasOutput = p.hasOutput || string(name) != "role" && hasText(value) })
		case "text":
			p.hasOutput = p.hasOutput || hasText(value)
		case "token_ids":
			n := countIDs(value)
			p.ids += n
			p.hasOutput = p.hasOutput || n > 0
		case "prompt_token_ids": // SGLang has them here
			p.promptIDs = max(p.promptIDs, countIDs(value))
		case "finish_reason":
			p.finished = p.finished || openai.IsText(value)
		}
	})
}

// hasText reports whether a member of the model's output is not empty.
func hasText(value []byte) bool {
	switch string(value) {
	case `""`, "null", "[]", "{}":
		return false
	}
	return true
}

// usage adds the backend's own count. all is set if it counts all output so far, unlike
// the one at the start of an Anthropic stream; the event is then not counted again.
func (p *progress) usage(raw []byte, all bool, found func(Usage)) {
	u, ok := openai.ParseUsage(raw)
	if ok {
		found(Usage{u.Prompt, u.Completion})
	}
	p.prompt, p.completion = max(p.prompt, u.Prompt), max(p.completion, u.Completion)
	if all && u.Completion > 0 {
		p.outputEvents, p.counted = u.Completion, true
	}
}

// count returns the tokens of prompt and reply so far.
func (p *progress) count() Usage {
	out := p.ids
	if out == 0 {
		out = p.outputEvents
	}
	return Usage{max(p.prompt, p.promptIDs), max(p.completion, out)}
}

// countIDs returns the length of a list of numbers, and 0 for anything else.
func countIDs(list []byte) int64 {
	if len(list) < 3 || list[0] != '[' {
		return 0
	}
	return int64(bytes.Count(list, []byte{','})) + 1
}
