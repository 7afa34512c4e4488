package exchange

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/agl-go/agl/proxy/capture"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/record"
)

// call is a call that is being served. It belongs to one goroutine.
type call struct {
	w        http.ResponseWriter
	in       *record.Input // the input of the record, so far
	recorded bool
	entry    capture.Call // zero when the call is not recorded
	memory   *capture.Reservation
	held     *held
	meter    meter
	account  *quota.Account // of the attempt's budget; nil when there is none
	cancel   context.CancelCauseFunc
	admit    func(model string, start time.Time) error // see Origin
	// allowance is the caller's budget, most the upper bound of the call's usage, and reserved
	// its reservation; all are nil or zero without a budget.
	allowance Allowance
	most      Usage
	reserved  Reserved
	bound     int64             // upper bound of the prompt's tokens, without those that the chat format adds
	tools     bool              // the request has tools
	answered  bool              // a backend has answered
	lost      bool              // a backend may have executed the call, but its reply was lost
	models    map[string]string // see Origin
	serving   string            // the model that answers
	buffers   *bufferPool
	maxReply  int64 // limit in bytes of a reply that is recorded or translated
}

// setTries sets the header HeaderTries.
func (c *call) setTries() {
	if c.in.Tries > 0 {
		c.w.Header()[HeaderTries] = []string{strconv.Itoa(c.in.Tries)}
	}
}

// affinity returns the call's [upstream.Request.Affinity].
func (c *call) affinity(r *http.Request) string {
	return cmp.Or(c.in.RolloutID, r.Header.Get("X-Session-Id"))
}

// begin writes the status and the header of a reply.
func (c *call) begin(status int) {
	c.in.Status = status
	c.w.WriteHeader(status)
}

// ending returns what ended a call, if it is of a type: a spent budget, or an error of the proxy itself. Otherwise it returns nil.
func ending[E error](ctx context.Context, err error) E {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	e, _ := errors.AsType[E](context.Cause(ctx))
	return e
}

var errAgentGone = errors.New("the agent left before it had the reply")

// buffers are the buffers for relaying one reply.
type buffers struct {
	in, out []byte
	events  openai.Events
}

// maxPooled is the largest buffer that is kept in the pool.
const maxPooled = 2 << 20

// bufferPool keeps buffers for the next replies.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) take() *buffers {
	b, _ := p.pool.Get().(*buffers)
	if b == nil {
		b = &buffers{}
	}
	if b.in == nil {
		b.in = make([]byte, 16<<10)
	}
	return b
}

func (p *bufferPool) put(b *buffers) {
	if cap(b.out) > maxPooled || b.events.Cap() > maxPooled {
		return
	}
	b.events.Reset()
	p.pool.Put(b)
}
