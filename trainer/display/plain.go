package display

import (
	"fmt"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/terminal"
)

// plain prints lines, for logs and pipes.
type plain struct {
	Options

	mu sync.Mutex // one line at a time
}

func (p *plain) Update(u Update) {
	if u.Line == "" {
		return
	}
	if p.Tokens != nil {
		if t := p.Tokens(); t.Calls > 0 {
			u.Line += "  " + Count(t.Prompt+t.Completion) + " tokens"
		}
	}
	p.Notice(fmt.Sprintf("%s  %.1fs", u.Line, time.Since(p.Began).Seconds()))
}

func (p *plain) Notice(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.Out, terminal.Safe(text))
}

func (p *plain) Close() {}
