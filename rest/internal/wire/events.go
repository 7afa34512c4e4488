package wire

import (
	"bytes"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// errorEvent is the name of the event that ends a stream with an error.
const errorEvent = "error"

// AppendEvent appends an event as a server-sent event: its kind is the name, and its document is the data.
func AppendEvent(dst []byte, e agl.Event) []byte {
	dst = append(dst, "id: "...)
	dst = append(dst, e.ID...)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, e.Kind...)
	dst = append(dst, "\ndata: "...)
	return append(e.AppendJSON(dst), "\n\n"...)
}

// AppendErrorEvent appends the document of the error that ends a stream as an event.
func AppendErrorEvent(dst, document []byte) []byte {
	dst = append(dst, "event: "+errorEvent+"\ndata: "...)
	return append(append(dst, document...), "\n\n"...)
}

// EventParser parses an event stream line by line.
type EventParser struct {
	name string
	data []byte
}

// Line consumes the next line, without its line break. It returns the event that the line completes, if any, or the
// error that ends the stream.
func (p *EventParser) Line(line []byte) (*agl.Event, error) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > 0 {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			p.name = string(value)
		case "data":
			if p.data != nil {
				p.data = append(p.data, '\n')
			}
			p.data = append(p.data, value...)
		}
		return nil, nil
	}
	name, data := p.name, p.data
	*p = EventParser{}
	switch {
	case data == nil:
		return nil, nil
	case name == errorEvent:
		return nil, DecodeError("Events", statusOfError(data), data)
	}
	var event agl.Event
	if err := rawjson.Unmarshal(data, &event); err != nil {
		return nil, agl.Errorf(agl.CodeInternal, "Events: an event cannot be read: %w", err)
	}
	return &event, nil
}

// statusOfError returns the status that the document of an error would have had as a reply.
func statusOfError(document []byte) int {
	var doc struct {
		Code agl.Code `json:"code"`
	}
	if rawjson.Unmarshal(document, &doc) != nil {
		return http.StatusInternalServerError
	}
	status, _ := StatusOf(doc.Code)
	return status
}
