package process

import (
	"fmt"
	"strings"
	"sync"
)

// output keeps the beginning and the end of a stream, so that a program that
// writes without end costs no more than its share.
type output struct {
	mu      sync.Mutex
	head    []byte
	tail    []byte // a ring once it is full
	at      int    // where the ring begins
	most    int    // of each half
	dropped int64
}

func newOutput(limit int) *output { return &output{most: max(limit/2, 1)} }

// Write implements io.Writer; it never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if room := o.most - len(o.head); room > 0 {
		taken := min(room, len(p))
		o.head = append(o.head, p[:taken]...)
		p = p[taken:]
	}
	if over := len(p) - o.most; over > 0 {
		o.dropped += int64(over)
		p = p[over:]
	}
	for len(p) > 0 {
		if room := o.most - len(o.tail); room > 0 {
			taken := min(room, len(p))
			o.tail = append(o.tail, p[:taken]...)
			p = p[taken:]
			continue
		}
		taken := copy(o.tail[o.at:], p)
		o.dropped += int64(taken)
		o.at = (o.at + taken) % o.most
		p = p[taken:]
	}
	return n, nil
}

// end returns the last bytes of the stream, at most as many as its half.
func (o *output) end() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped == 0 {
		return append(append([]byte(nil), o.head...), o.tail...)
	}
	return append(append([]byte(nil), o.tail[o.at:]...), o.tail[:o.at]...)
}

// text is what is kept of the stream, as text.
func (o *output) text() string {
	tail := o.end()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped == 0 {
		return strings.ToValidUTF8(string(tail), "\uFFFD")
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s\n[%d bytes are left out here]\n%s", o.head, o.dropped, tail), "\uFFFD")
}

// lastWords is how much of standard error goes into an error.
const lastWords = 2 << 10

func (o *output) lastWords() string {
	b := o.end()
	if len(b) > lastWords {
		b = b[len(b)-lastWords:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}
