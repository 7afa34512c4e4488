package display

import (
	"io"
	"sync"
)

// Log is a log on the same terminal as a [Display]. Its lines go to a writer or,
// during a live view, above the view. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	out io.Writer
	// above prints above a live view; nil without one.
	above func(text string)
}

// NewLog makes a log over a writer.
func NewLog(out io.Writer) *Log { return &Log{out: out} }

// Write writes one or more lines.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.above == nil {
		return l.out.Write(p)
	}
	text := string(p)
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1] // which the view adds
	}
	l.above(text)
	return len(p), nil
}

// redirect sends lines to a function; nil sends them to the writer again.
func (l *Log) redirect(above func(text string)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.above = above
}
