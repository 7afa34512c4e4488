package openai

import (
	"bytes"
	"strings"

	"github.com/agl-go/agl/internal/rawjson"
)

// Events splits a stream of server-sent events, which arrives in arbitrary pieces, into
// its events. The concatenated events are exactly the bytes that were written. Its zero
// value is ready.
type Events struct {
	buf   []byte
	from  int  // where the next event starts
	line  int  // where the current line starts
	seen  int  // no line ends before this
	wasCR bool // the last line ended with CR, so an LF here belongs to it
}

// Write appends a piece of the stream. Events that were returned before are invalid.
func (e *Events) Write(piece []byte) {
	if e.from > 0 {
		n := copy(e.buf, e.buf[e.from:])
		e.buf = e.buf[:n]
		e.line -= e.from
		e.seen -= e.from
		e.from = 0
	}
	e.buf = append(e.buf, piece...)
}

// Next returns the next complete event with the blank line that ends it, or nil if
// there is none yet. It is valid until the next Write.
func (e *Events) Next() []byte {
	for {
		if e.wasCR && e.line < len(e.buf) {
			e.wasCR = false
			if e.buf[e.line] == '\n' {
				e.line++
				e.seen = e.line
			}
		}
		end, next := e.lineEnd()
		if next < 0 {
			e.seen = len(e.buf)
			return nil
		}
		blank := end == e.line
		e.wasCR = e.buf[next-1] == '\r'
		e.line, e.seen = next, next
		if blank {
			event := e.buf[e.from:next:next]
			e.from = next
			return event
		}
	}
}

// lineEnd returns where the current line ends and where the next one starts, or -1 if
// the line is not complete.
func (e *Events) lineEnd() (end, next int) {
	rest := e.buf[e.seen:]
	lf := bytes.IndexByte(rest, '\n')
	head := rest
	if lf >= 0 {
		head = rest[:lf]
	}
	if cr := bytes.IndexByte(head, '\r'); cr >= 0 {
		end = e.seen + cr
		if cr+1 < len(rest) && rest[cr+1] == '\n' {
			return end, end + 2
		}
		return end, end + 1
	}
	if lf < 0 {
		return -1, -1
	}
	return e.seen + lf, e.seen + lf + 1
}

// Rest returns the bytes that Next has not returned. After the end of the stream they are its
// last event if the blank line is missing.
func (e *Events) Rest() []byte {
	rest := e.buf[e.from:]
	e.from, e.line, e.seen = len(e.buf), len(e.buf), len(e.buf)
	return rest
}

// Buffered returns the number of bytes of the incomplete event.
func (e *Events) Buffered() int { return len(e.buf) - e.from }

// Cap returns the memory of e in bytes.
func (e *Events) Cap() int { return cap(e.buf) }

// Reset prepares e for another stream and keeps its memory.
func (e *Events) Reset() { *e = Events{buf: e.buf[:0]} }

// dataFields appends the positions of the values of an event's data lines. For a ping (event: ping) it appends none: servers put anything
// into it, and Anthropic's clients ignore it.
func dataFields(event []byte, fields []span) []span {
	none := fields
	i := 0
	if bytes.HasPrefix(event, []byte("\ufeff")) { // one may begin a stream; further ones do no harm
		i = len("\ufeff")
	}
	for i < len(event) {
		line := event[i:]
		next := len(event)
		if n := bytes.IndexByte(line, '\n'); n >= 0 {
			line, next = line[:n], i+n+1
		}
		if n := bytes.IndexByte(line, '\r'); n >= 0 {
			line, next = line[:n], i+n+1
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			start := i + len("data:")
			if len(value) > 0 && value[0] == ' ' {
				start++
			}
			fields = append(fields, span{start, i + len(line)})
		} else if kind, ok := bytes.CutPrefix(line, []byte("event:")); ok && string(bytes.TrimPrefix(kind, []byte(" "))) == "ping" {
			return none
		}
		i = next
	}
	return fields
}

// Data returns the data of an event, its lines joined by line feeds, or nil if it has
// none or is a ping. Data in one line, as nearly always, shares event's memory.
func Data(event []byte) []byte {
	var room [4]span
	return joinData(event, dataFields(event, room[:0]))
}

// Blank reports whether the data of an event says nothing. Some servers send such events so that connections stay open.
func Blank(data []byte) bool {
	switch string(bytes.TrimSpace(data)) {
	case "", "null", "{}":
		return true
	default:
		return false
	}
}

func joinData(event []byte, fields []span) []byte {
	switch len(fields) {
	case 0:
		return nil
	case 1:
		return event[fields[0].start:fields[0].end:fields[0].end]
	}
	var joined []byte
	for i, f := range fields {
		if i > 0 {
			joined = append(joined, '\n')
		}
		joined = append(joined, event[f.start:f.end]...)
	}
	return joined
}

// AppendVisibleEvent appends an event without the hidden members of its data, and adds the
// original data to a. An event without hidden members keeps its bytes, and so does one
// whose data is not JSON, which a counts as malformed. Data in several lines stays in
// lines. An event that would have only an empty list of choices left is dropped.
func (h Hide) AppendVisibleEvent(dst, event []byte, a *Accumulator) []byte {
	if a.shape.matches(h, event) {
		return a.shape.appendVisible(dst, event, a)
	}
	var roomFields [4]span
	fields := dataFields(event, roomFields[:0])
	data := joinData(event, fields)
	if a.marker(data) {
		return append(dst, event...)
	}
	a.shape.event, a.slots, a.odd = a.shape.event[:0], a.slots[:0], false
	edits, ok, only := h.edits(data, a.edits[:0], a)
	a.edits = edits
	switch {
	case !ok:
		a.malformed++
		return append(dst, event...)
	case only:
		return dst
	}
	edits = throughLines(edits, fields)
	if len(fields) == 1 && len(a.slots) > 0 && !a.odd {
		a.learn(h, event, fields[0].start, edits)
	}
	return appendEdited(dst, event, edits)
}

// AppendVisible appends an event without usage, if that is hidden. It is for streams that are
// not accumulated, and hides nothing else.
func (h Hide) AppendVisible(dst, event []byte) []byte {
	if !h.Usage || !bytes.Contains(event, []byte(`"usage"`)) {
		return append(dst, event...)
	}
	var room [4]span
	fields := dataFields(event, room[:0])
	edits, ok, only := h.edits(joinData(event, fields), nil, nil)
	switch {
	case !ok:
		return append(dst, event...)
	case only:
		return dst
	}
	return appendEdited(dst, event, throughLines(edits, fields))
}

// throughLines turns edits of joined data into edits of the event. A removal that spans
// lines removes its part of each, so that the event's other bytes stay.
func throughLines(edits []edit, fields []span) []edit {
	if len(fields) == 1 {
		for i := range edits {
			edits[i].start += fields[0].start
			edits[i].end += fields[0].start
		}
		return edits
	}
	var out []edit
	joined := 0 // where the line starts in the joined data
	for _, f := range fields {
		length := f.end - f.start
		for _, e := range edits {
			from, to := max(e.start-joined, 0), min(e.end-joined, length)
			if from > to || from == to && e.end > e.start {
				continue
			}
			with := e.with
			if e.start < joined {
				with = nil
			}
			out = append(out, edit{f.start + from, f.start + to, with})
		}
		joined += length + 1
	}
	return out
}

// BeginsStream reports whether a text begins like a stream of events. more says that it may do so once more of it has come. Blank lines may
// come first.
func BeginsStream(text []byte) (begins, more bool) {
	text = bytes.TrimLeft(text, "\ufeff\r\n\t ")
	for _, field := range [...]string{":", "data:", "event:", "id:", "retry:"} {
		begins = begins || bytes.HasPrefix(text, []byte(field))
		more = more || strings.HasPrefix(field, string(text[:min(len(text), len(field))]))
	}
	return begins, more
}

// CompleteStream reports whether a stream of any API is complete: one of its events ends a
// stream, and none is an error.
func CompleteStream(stream []byte) bool {
	var events Events
	events.Write(stream)
	ended, failed := false, false
	take := func(data []byte) {
		if len(data) == 0 {
			return
		}
		ended = ended || string(data) == "[DONE]"
		Members(data, func(name, value []byte) {
			switch string(name) {
			case "error":
				failed = failed || Failed(value)
			case "type":
				switch rawjson.Unquote(value) {
				case "error", "response.failed":
					failed = true
				case "message_stop", "response.completed", "response.incomplete":
					ended = true
				}
			}
		})
	}
	for event := events.Next(); event != nil; event = events.Next() {
		take(Data(event))
	}
	take(Data(events.Rest()))
	return ended && !failed
}
