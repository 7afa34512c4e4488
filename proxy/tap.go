package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
)

// tap counts the tokens of a reply as it passes, and sees how it ends.
type tap struct {
	io.ReadCloser

	tokens *tokenCount
	ended  func(err error) // nil for a reply that is whole
}

func (t *tap) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	t.tokens.write(b[:n])
	switch err {
	case nil:
	case io.EOF:
		t.ended(nil)
	default:
		t.ended(err)
	}
	return n, err
}

// tokenCount reads what a backend says that a call used, whatever API it speaks:
// the member usage, of a whole reply or of the events of a stream. In a string a
// quote is escaped, so the member's name in quotes can be nothing else.
type tokenCount struct {
	in, out int64 // of prompt and reply; see given
	given   bool  // the backend has said it

	stream bool
	events int64
	size   int64
	open   []byte // a usage object whose end has not come, nil outside of one
	tail   [len(usageName)]byte
	kept   int // bytes in tail: what the last piece ended with
}

const (
	usageName = `"usage"`
	// usageMost is the longest usage object that is read.
	usageMost = 4 << 10
	// bytesPerToken is a rule of thumb for text whose tokens nobody has counted.
	bytesPerToken = 4
)

// reset begins the count of a reply.
func (t *tokenCount) reset(status int, stream bool) {
	*t = tokenCount{stream: stream}
	if status >= http.StatusMultipleChoices {
		t.given = true // an error uses nothing
	}
}

func (t *tokenCount) write(p []byte) {
	t.size += int64(len(p))
	if t.stream {
		t.events += countData(p)
	}
	t.scan(p)
}

func (t *tokenCount) scan(p []byte) {
	for len(p) > 0 {
		if t.open != nil {
			n := min(len(p), usageMost-len(t.open))
			t.open = append(t.open, p[:n]...)
			p = p[n:]
			end := t.read()
			switch {
			case end >= 0: // what follows it may hold the next one
				rest := t.open[end:]
				t.open = nil
				t.scan(rest)
			case len(t.open) == usageMost:
				t.open = nil
			}
			continue
		}
		if i := t.split(p); i >= 0 {
			p, t.kept = p[i:], 0
			t.open = make([]byte, 0, 512)
			continue
		}
		i := indexUsage(p)
		if i < 0 {
			t.keep(p)
			return
		}
		p, t.kept = p[i+len(usageName):], 0
		t.open = make([]byte, 0, 512)
	}
}

// indexUsage returns where in p the name is, or -1. It goes to the next quote, and
// so over a long text at once, and searches what follows in windows that grow, for
// where quotes are many.
func indexUsage(p []byte) int {
	n := 0
	for window := 512; ; window *= 2 {
		i := bytes.IndexByte(p[n:], '"')
		if i < 0 {
			return -1
		}
		n += i
		end := min(n+window, len(p))
		if i := bytes.Index(p[n:end], []byte(usageName)); i >= 0 {
			return n + i
		}
		n = max(n+1, end-len(usageName)+1) // the name may begin in this window and end in the next
	}
}

// countData returns how many lines of p begin as the events of a stream do; p
// counts as the beginning of a line.
func countData(p []byte) int64 {
	n := int64(0)
	for {
		if bytes.HasPrefix(p, []byte("data:")) {
			n++
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			return n
		}
		p = p[i+1:]
	}
}

// split finds a name that began in the piece before and returns where in p it
// ends, or -1.
func (t *tokenCount) split(p []byte) int {
	if t.kept == 0 {
		return -1
	}
	var both [2 * len(usageName)]byte
	n := copy(both[:], t.tail[:t.kept])
	n += copy(both[n:], p[:min(len(p), len(usageName)-1)])
	if i := bytes.Index(both[:n], []byte(usageName)); i >= 0 {
		return i + len(usageName) - t.kept
	}
	return -1
}

// keep remembers the end of a piece in which a name may have begun.
func (t *tokenCount) keep(p []byte) {
	most := len(usageName) - 1
	if len(p) >= most {
		t.kept = copy(t.tail[:], p[len(p)-most:])
		return
	}
	drop := max(t.kept+len(p)-most, 0)
	t.kept = copy(t.tail[:], t.tail[drop:t.kept])
	t.kept += copy(t.tail[t.kept:], p)
}

// read reads the value behind the name and returns where it ends, or -1 if that
// has not come.
func (t *tokenCount) read() int {
	value := bytes.TrimLeft(t.open, " \t\r\n:")
	if len(value) == 0 {
		return -1
	}
	at := len(t.open) - len(value)
	if value[0] != '{' {
		return at // null
	}
	in, out, complete := readUsage(value)
	if !complete {
		return -1
	}
	t.atLeast(in, out)
	return at + bytes.IndexByte(value, '}') + 1
}

// readUsage reads a usage object of any API: the tokens of prompt and reply.
func readUsage(raw []byte) (in, out int64, complete bool) {
	var cached int64
	complete = openai.Members(raw, func(name, value []byte) {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 0 {
			return
		}
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			in = n
		case "completion_tokens", "output_tokens":
			out = n
		case "cache_creation_input_tokens", "cache_read_input_tokens": // which Anthropic does not count in
			cached += n
		}
	})
	return in + cached, out, complete
}

// atLeast takes a count of what has come so far.
func (t *tokenCount) atLeast(in, out int64) {
	t.given = true
	t.in, t.out = max(t.in, in), max(t.out, out)
}

// count returns the tokens of prompt and reply. Where the backend has not said
// it they are estimated: an event of a stream is a token, four bytes of other
// text are.
func (t *tokenCount) count(request int) (in, out int64) {
	switch {
	case t.given || t.size == 0:
		return t.in, t.out
	case t.stream:
		return int64(request) / bytesPerToken, t.events
	default:
		return int64(request) / bytesPerToken, t.size / bytesPerToken
	}
}

func (t *tokenCount) total(request int) int64 {
	in, out := t.count(request)
	return in + out
}
