package access

import (
	"fmt"
	"sync"
)

// MaxOpen is how many requests of one caller may be open at once that stay open for long, such
// as streams and long polls.
const MaxOpen = 4096

// Open counts the requests of each caller that stay open for long. A nil one counts none. It is
// safe for concurrent use.
type Open struct {
	most int

	mu   sync.Mutex
	open map[string]int // by the caller
}

// NewOpen returns what lets each caller have so many open at once.
func NewOpen(most int) *Open { return &Open{most: most, open: map[string]int{}} }

// OpenError says that a caller has too many requests open. Its status is 429.
type OpenError struct{ Most int }

func (e *OpenError) Error() string {
	return fmt.Sprintf("this caller has %d streams, running calls and requests that wait open, the most that it may have at once; close some", e.Most)
}

// Enter counts one more of a caller, until leave is called. The error is an *OpenError.
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

// Who tells callers apart that have requests open: by the key, or else by the address, since
// many programs may have the server's own token.
func (c *Caller) Who(address string) string {
	if c.KeyID != "" {
		return "key " + c.KeyID
	}
	return c.Name + " at " + host(address)
}
