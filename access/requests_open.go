package access

import (
	"fmt"
	"sync"
)

// MaxOpen is how many long requests, such as streams and long polls, one caller may have open at once.
const MaxOpen = 4096

// Open counts the long requests of each caller. A nil one counts none. It is safe for concurrent use.
type Open struct {
	most int

	mu   sync.Mutex
	open map[string]int // by the caller
}

// NewOpen returns a count that allows each caller most open requests.
func NewOpen(most int) *Open { return &Open{most: most, open: map[string]int{}} }

// OpenError says that a caller has too many requests open. Its HTTP status is 429.
type OpenError struct{ Most int }

func (e *OpenError) Error() string {
	return fmt.Sprintf("this caller has %d streams, model calls and waiting requests open, the maximum; close some", e.Most)
}

// Enter counts one more request of a caller, until leave is called. The error is an *OpenError.
func (o *Open) Enter(caller string) (leave func(), err error) {
	if o == nil {
		return func() {}, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[caller] >= o.most {
		return nil, &OpenError{o.most}
	}
	o.open[caller]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.open[caller]--; o.open[caller] == 0 {
			delete(o.open, caller)
		}
	}, nil
}

// Who returns the name under which the caller's open requests are counted: by key, or else by address, since many
// programs may use the server's own token.
func (c *Caller) Who(address string) string {
	if c.KeyID != "" {
		return "key " + c.KeyID
	}
	return c.Name + " at " + host(address)
}
