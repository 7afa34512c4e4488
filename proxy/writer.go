package proxy

import (
	"context"
	"time"

	"github.com/agl-go/agl"
)

// write builds and stores records until close.
func (r *recorder) write(ctx context.Context) {
	builder := newBuilder(r.ledger)
	for {
		batch, ok := r.collect(ctx)
		if !ok {
			return
		}
		kept := batch[:0]
		for _, c := range batch {
			if c.failed != nil && (r.spool == nil || final(c.failed)) {
				c.release()
				r.lose(c, c.failed)
				continue
			}
			c.spans = builder.build(c)
			c.release()
			kept = append(kept, c)
		}
		r.keep(ctx, kept)
	}
}

// collect waits for records and takes as many as go into one write.
func (r *recorder) collect(ctx context.Context) (batch []*call, ok bool) {
	delay := time.NewTimer(r.cfg.WriteDelay)
	defer delay.Stop()
	waited := false
	for {
		r.mu.Lock()
		n := len(r.queue)
		switch {
		case n == 0 && r.closed:
			r.mu.Unlock()
			return nil, false
		case n > 0 && (waited || r.hurry > 0 || r.closed || n >= batchCalls || r.queued >= batchBytes):
			batch = r.cut()
			r.mu.Unlock()
			return batch, true
		}
		r.mu.Unlock()
		if n == 0 {
			<-r.wake
			delay.Reset(r.cfg.WriteDelay)
			continue
		}
		select {
		case <-r.wake:
		case <-delay.C:
			waited = true
		case <-ctx.Done():
			waited = true
		}
	}
}

// cut takes the front of the queue. The calls' sequence ids, as far as there
// are any, are what the records say from now on.
func (r *recorder) cut() []*call {
	n, bytes := 0, int64(0)
	for n < len(r.queue) && n < batchCalls && (n == 0 || bytes < batchBytes) {
		c := r.queue[n]
		bytes += c.charge
		if c.numbered == numberGiven {
			c.sequence = c.number
		}
		n++
	}
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	r.queued -= bytes
	if len(r.queue) == 0 {
		r.queue = nil
	}
	return batch
}

// keep stores the records of a batch or puts them aside on disk; while neither
// can be had it holds them, and with them the calls to come.
func (r *recorder) keep(ctx context.Context, batch []*call) {
	if r.spool == nil {
		r.store(ctx, batch, r.persist)
		return
	}
	diskFails := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		batch = r.storeSome(ctx, batch, diskFails)
		batch = r.putAside(batch)
		if len(batch) == 0 {
			return
		}
		diskFails = true
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			for _, c := range batch {
				r.lose(c, errRecorderClosed)
			}
			return
		}
	}
}

// storeSome stores what can go past the spool: calls that have their sequence
// ids, of attempts of which nothing waits on disk. It returns the others, and
// all if the store is away, which it finds out only if it must.
func (r *recorder) storeSome(ctx context.Context, batch []*call, must bool) (left []*call) {
	if r.away.Load() && !must {
		return batch
	}
	var direct []*call
	r.mu.Lock()
	for _, c := range batch {
		if c.sequence > 0 && c.attempt.spooled == 0 {
			direct = append(direct, c)
		} else {
			left = append(left, c)
		}
	}
	r.mu.Unlock()
	if len(direct) == 0 {
		return left
	}
	return append(r.store(ctx, direct, r.try), left...)
}

// requester makes a request to the store: [recorder.try] or [recorder.persist].
type requester func(ctx context.Context, request func(ctx context.Context) error) error

// store writes the records of calls. When the store refuses them for what is in
// them, each is written alone, so that one cannot take others down with it. It
// returns the calls that the store did not answer for if there is a spool that
// keeps them; else they are lost.
func (r *recorder) store(ctx context.Context, batch []*call, request requester) (left []*call) {
	if len(batch) == 0 {
		return nil
	}
	spans := make([]agl.Span, 0, len(batch)*spansPerCall)
	for _, c := range batch {
		spans = append(spans, c.spans...)
	}
	var result agl.AddSpansResult
	err := request(ctx, func(ctx context.Context) (err error) {
		result, err = r.cfg.Spans.AddSpans(ctx, agl.AddSpansParams{Spans: spans})
		return err
	})
	switch {
	case err == nil:
		r.cancelled(batch, result.Cancelled)
	case !final(err) && r.spool != nil:
		return batch
	case len(batch) > 1 && final(err):
		for i := range batch {
			left = append(left, r.store(ctx, batch[i:i+1:i+1], request)...)
		}
		return left
	}
	for _, c := range batch {
		c.spans = nil
		if err == nil {
			r.done(c, nil)
		} else {
			r.lose(c, err)
		}
	}
	return nil
}
