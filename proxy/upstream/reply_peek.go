package upstream

import (
	"bytes"
	"io"
	"strings"
)

// PeekStream reports whether a body begins like a stream of events. Many hand-written servers send a wrong Content-Type or none,
// and the SDKs of agents ignore it. whole is the body from its first byte, and replaces body.
func PeekStream(body io.ReadCloser) (whole io.ReadCloser, stream bool) {
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
