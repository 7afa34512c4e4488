package upstream

import (
	"bytes"
	"io"
	"strings"
)

// PeekStream reports whether a body begins as a stream of events does, whatever its Content-Type is: many servers that are
// written by hand send another one, or none, and the clients of agents do not look at it. It returns the body from its start.
func PeekStream(body io.ReadCloser) (whole io.ReadCloser, is bool) {
	const most = 64 // bytes; blank lines may come first
	head := make([]byte, 0, most)
	for {
		n, err := body.Read(head[len(head):most])
		head = head[:len(head)+n]
		begins, more := beginsStream(string(bytes.TrimLeft(head, "\ufeff\r\n\t ")))
		if begins || !more || err != nil || len(head) == most {
			return struct { // a body that cannot be read fails again when it is read on
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(head), body), body}, begins
		}
	}
}

// beginsStream reports whether a text begins as a stream of events does, or may do so with more of it.
func beginsStream(text string) (begins, more bool) {
	for _, field := range [...]string{":", "data:", "event:", "id:", "retry:"} {
		begins = begins || strings.HasPrefix(text, field)
		more = more || strings.HasPrefix(field, text)
	}
	return begins, more
}
