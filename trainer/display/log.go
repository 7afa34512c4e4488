package display

import (
	"io"
	"sync"
)

// Log is where the lines of a log go that share a terminal with a [Display]: to a
// writer, or above the live view while there is one. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	out io.Writer
	// above prints over a live view; nil without one.
	above func(text string)
}

// NewLog makes a log over a writer.
func NewLog(out io.Writer) *Log { return &Log{out: out} }

// Write writes one line or more.
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

// lead sends lines elsewhere; nil sends them to the writer again.
func (l *Log) lead(above func(text string)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.above = above
}
