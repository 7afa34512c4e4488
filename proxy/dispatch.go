package proxy

import (
	"context"
	"net/http"
	"time"
)

// dispatcher gets a call its reply: it chooses the backend and sends the
// request.
type dispatcher struct {
	p *Proxy
	c *call
	// build makes the request for a backend.
	build func(b *backend) (*http.Request, *failure)

	silence *time.Timer // cancels the call when the backend is silent for too long
}

// send returns the backend's reply, whose body the caller closes, or what the
// agent is to be told instead, or why no backend could be reached.
func (d *dispatcher) send(ctx context.Context) (*http.Response, *failure, error) {
	p, c := d.p, d.c
	c.backend = c.group.pick(c.rolloutID)
	req, f := d.build(c.backend)
	if f != nil {
		return nil, f, nil
	}
	d.silence = time.AfterFunc(p.cfg.IdleTimeout, func() { c.cancel(errBackendSilent) })
	c.sent = time.Now()
	res, err := p.transport.RoundTrip(req)
	return res, nil, err
}

// done is called when the call has ended.
func (d *dispatcher) done() {
	if d.silence != nil {
		d.silence.Stop()
	}
}
