package process

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// output keeps the beginning and the end of a stream, so that a program that writes endlessly needs bounded memory.
type output struct {
	mu      sync.Mutex
	head    []byte
	tail    []byte // may grow to twice its limit before its beginning is dropped
	limit   int    // of head, and of tail
	dropped int64
}

func newOutput(limit int) *output { return &output{limit: max(limit/2, 1)} }

// Write implements io.Writer; it never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := min(o.limit-len(o.head), len(p))
	o.head = append(o.head, p[:taken]...)
	o.tail = append(o.tail, p[max(taken, len(p)-o.limit):]...)
	o.dropped += int64(max(len(p)-o.limit-taken, 0))
	if over := len(o.tail) - o.limit; over >= o.limit {
		o.dropped += int64(over)
		o.tail = o.tail[:copy(o.tail, o.tail[over:])]
	}
	return len(p), nil
}

// end returns the last bytes of the stream, at most limit, and the number of dropped bytes before them.
func (o *output) end() (tail []byte, dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	over := max(len(o.tail)-o.limit, 0)
	if dropped = o.dropped + int64(over); dropped == 0 {
		return slices.Concat(o.head, o.tail), 0
	}
	return slices.Clone(o.tail[over:]), dropped
}

// text returns what is kept of the stream.
func (o *output) text() string {
	tail, dropped := o.end()
	if dropped > 0 {
		tail = fmt.Appendf(nil, "%s\n[%d bytes are left out here]\n%s", o.head, dropped, tail)
	}
	return strings.ToValidUTF8(string(tail), "\uFFFD")
}

// maxQuoted is how much of standard error goes into an error.
const maxQuoted = 2 << 10

// maxThrown is how long the line may be that names an exception.
const maxThrown = 500

// thrown matches the line in which Node, Python and Java name an exception. Node writes its members behind it, which may be long.
var thrown = regexp.MustCompile(`(?m)^[\w.$]*(?:Error|Exception)\b[^:\n]*:.*`)

// excerpt returns the end of the stream, after the line that names an exception if that comes before it.
func (o *output) excerpt() string {
	b, _ := o.end()
	cut := max(len(b)-maxQuoted, 0)
	text := b[cut:]
	if named := thrown.FindAll(b[:cut], -1); named != nil && !thrown.Match(text) {
		last := named[len(named)-1]
		text = slices.Concat(last[:min(len(last), maxThrown)], []byte("\n…\n"), text)
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD"))
}
