package upstream

import (
	"bytes"
	"io"

	"github.com/agl-go/agl/proxy/openai"
)

// PeekStream reports whether a body begins like a stream of events. Many hand-written servers send a wrong Content-Type or none,
// and the SDKs of agents ignore it. whole is the body from its first byte, and replaces body.
func PeekStream(body io.ReadCloser) (whole io.ReadCloser, stream bool) {
	const most = 64 // bytes; blank lines may come first
	head := make([]byte, 0, most)
	for {
		n, err := body.Read(head[len(head):most])
		head = head[:len(head)+n]
		begins, more := openai.BeginsStream(head)
		if begins || !more || err != nil || len(head) == most {
			return struct { // a body that cannot be read fails again when it is read on
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(head), body), body}, begins
		}
	}
}
