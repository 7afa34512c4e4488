package proxy

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spanjson"
)

// batch are calls that are stored together, with the memory that their spans are in.
type batch struct {
	calls []*call
	buf   []byte
}

// write builds records and hands them to a second goroutine that stores them,
// so that one batch is built while another is on its way, until close.
func (r *recorder) write(ctx context.Context) {
	built, free := make(chan batch), make(chan []byte, 2)
	free <- nil
	free <- nil
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for b := range built {
			r.keep(ctx, b.calls)
			r.kept()
			if cap(b.buf) > keptBatch {
				b.buf = nil
			}
			free <- b.buf[:0]
		}
	})
	builder := newBuilder(r.ledger)
	for {
		calls, ok := r.collect(ctx)
		if !ok {
			break
		}
		b := batch{calls[:0], <-free}
		for _, c := range calls {
			if c.failed != nil && (r.spool == nil || final(c.failed)) {
				c.release()
				r.lose(c, c.failed)
				continue
			}
			b.buf = builder.build(b.buf, c)
			c.release()
			b.calls = append(b.calls, c)
		}
		built <- b
	}
	close(built)
	keeper.Wait()
}

// kept notes that a batch has been stored.
func (r *recorder) kept() {
	r.mu.Lock()
	r.keeping--
	waits := len(r.queue) > 0
	r.mu.Unlock()
	if waits {
		r.signal()
	}
}

// collect waits for records and takes as many as go into one write. A batch that
// is not full waits for the one before it, and grows meanwhile.
func (r *recorder) collect(ctx context.Context) (batch []*call, ok bool) {
	delay := time.NewTimer(r.writeDelay())
	defer delay.Stop()
	waited := false
	for {
		r.mu.Lock()
		n := len(r.queue)
		switch {
		case n == 0 && r.closed:
			r.mu.Unlock()
			return nil, false
		case n > 0 && (waited && r.keeping == 0 || r.due()):
			r.keeping++
			batch = r.cut()
			r.mu.Unlock()
			return batch, true
		}
		r.mu.Unlock()
		if n == 0 {
			<-r.wake
			delay.Reset(r.writeDelay())
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

// writeDelay is how long records gather, at random: of an agent that calls at an
// even pace not every call should begin just when the one before is written.
func (r *recorder) writeDelay() time.Duration {
	half := r.cfg.WriteDelay / 2
	return half + rand.N(half+1)
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
	spans := make([]jsontext.Value, 0, len(batch)*spansPerCall)
	for _, c := range batch {
		spans = append(spans, c.spans...)
	}
	var cancelled []string
	err := request(ctx, func(ctx context.Context) (err error) {
		cancelled, err = r.add(ctx, spans)
		return err
	})
	switch {
	case err == nil:
		r.cancelled(batch, cancelled)
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

// add adds spans to the store.
func (r *recorder) add(ctx context.Context, docs []jsontext.Value) (cancelled []string, err error) {
	if r.cfg.Spans.Capabilities().AddSpansJSON {
		result, err := r.cfg.Spans.AddSpansJSON(ctx, agl.AddSpansJSONParams{Spans: docs})
		return result.Cancelled, err
	}
	spans := make([]agl.Span, len(docs))
	for i, doc := range docs {
		if err := spanjson.Parse(doc, &spans[i]); err != nil {
			return nil, agl.Errorf(agl.CodeInternal, "a record cannot be read: %w", err)
		}
	}
	result, err := r.cfg.Spans.AddSpans(ctx, agl.AddSpansParams{Spans: spans})
	return result.Cancelled, err
}
