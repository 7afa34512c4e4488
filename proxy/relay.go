package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl/proxy/openai"
)

// relay carries a backend's reply to the agent and keeps what is recorded.
type relay struct {
	p       *Proxy
	w       http.ResponseWriter
	c       *call
	res     *http.Response
	hide    openai.Hide
	silence *time.Timer
}

// buffers are what a reply needs on its way, and one that comes whole until it
// is recorded.
type buffers struct {
	in, out []byte
	events  openai.Events
}

var pool = sync.Pool{New: func() any { return &buffers{in: make([]byte, 16<<10)} }}

// keptBuffer is the largest buffer that is worth keeping between calls.
const keptBuffer = 256 << 10

func (r *relay) run(ctx context.Context) error {
	r.c.firstByte = time.Now()
	r.alive()
	h := r.w.Header()
	copyHeader(h, r.res.Header)
	if r.res.StatusCode >= 300 {
		h.Set(HeaderSource, SourceProvider)
		r.c.fail(SourceProvider, fmt.Sprintf("the backend answered %d", r.res.StatusCode))
	}
	switch {
	case !r.c.recorded() || r.encoding() != "":
		return r.verbatim()
	case isStream(r.res.Header):
		return r.stream()
	default:
		return r.whole(ctx)
	}
}

func (r *relay) encoding() string {
	if e := r.res.Header.Get("Content-Encoding"); e != "identity" {
		return e
	}
	return ""
}

func isStream(h http.Header) bool {
	const media = "text/event-stream"
	t := h.Get("Content-Type")
	return len(t) >= len(media) && strings.EqualFold(t[:len(media)], media)
}

// alive puts off the moment at which the backend counts as silent.
func (r *relay) alive() { r.silence.Reset(r.p.cfg.IdleTimeout) }

// whole relays a reply that is of use only when it is complete.
func (r *relay) whole(ctx context.Context) error {
	r.c.buffers, _ = pool.Get().(*buffers)
	body, err := readBody(watched{r}, r.c.buffers.out, r.res.ContentLength, r.p.cfg.MaxReplyBytes)
	r.c.lastByte = time.Now()
	r.c.reply, r.c.buffers.out = body, body
	r.p.hold(r.c, int64(len(body)))
	if errors.Is(err, errTooLong) {
		return r.tooLong(body)
	}
	if err != nil {
		return r.broken(ctx, err)
	}
	visible := [][]byte{body}
	if r.res.StatusCode < 300 {
		visible = r.hide.Visible(body)
	}
	length := 0
	for _, part := range visible {
		length += len(part)
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(length))
	r.c.replyStatus(r.w, r.res.StatusCode)
	r.p.recorder.awaitSequence(r.c)
	return r.send(visible...)
}

// watched is the reply's body; each read shows that the backend is alive.
type watched struct{ r *relay }

func (w watched) Read(b []byte) (int, error) {
	n, err := w.r.res.Body.Read(b)
	if n > 0 {
		w.r.alive()
	}
	return n, err
}

// send writes to the agent and makes sure that it is on its way. The time that
// a slow agent takes is no silence of the backend, which nobody listens to
// meanwhile.
func (r *relay) send(parts ...[]byte) error {
	r.silence.Stop()
	defer r.alive()
	var err error
	for _, part := range parts {
		if err == nil {
			_, err = r.w.Write(part)
		}
	}
	if err == nil {
		err = http.NewResponseController(r.w).Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errAgentGone, err)
	}
	return nil
}

// tooLong relays a reply that is too long to be kept: as it is, so nothing is
// hidden in it.
func (r *relay) tooLong(head []byte) error {
	r.c.cut = true
	r.c.fail(SourceGateway, fmt.Sprintf("the reply is longer than the %d bytes that are recorded", r.p.cfg.MaxReplyBytes))
	if r.res.ContentLength >= 0 {
		r.w.Header().Set("Content-Length", strconv.FormatInt(r.res.ContentLength, 10))
	}
	r.c.replyStatus(r.w, r.res.StatusCode)
	if err := r.send(head); err != nil {
		return err
	}
	return r.copy()
}

// broken ends a reply that the backend did not finish. Nothing has been sent
// yet, so the agent gets an error that it can read.
func (r *relay) broken(ctx context.Context, err error) error {
	r.c.cut = true
	clear(r.w.Header())
	return r.p.answerUnreachable(ctx, r.w, r.c, err)
}

// verbatim relays a reply that is not recorded, or cannot be read.
func (r *relay) verbatim() error {
	if r.res.ContentLength >= 0 {
		r.w.Header().Set("Content-Length", strconv.FormatInt(r.res.ContentLength, 10))
	}
	r.c.replyStatus(r.w, r.res.StatusCode)
	if r.c.recorded() {
		r.c.cut = true
		r.c.fail(SourceProvider, "the reply is encoded as "+r.encoding()+", which was not asked for")
	}
	return r.copy()
}

// copy relays what is left of the reply as it comes.
func (r *relay) copy() error {
	b, _ := pool.Get().(*buffers)
	defer b.put()
	for {
		n, err := r.res.Body.Read(b.in)
		r.c.lastByte = time.Now()
		if n > 0 {
			r.alive()
			if err := r.send(b.in[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (b *buffers) put() {
	if cap(b.out) > keptBuffer || b.events.Cap() > keptBuffer {
		return
	}
	b.events.Reset()
	pool.Put(b)
}

// stream relays events as they come, each without what is hidden in it.
func (r *relay) stream() error {
	b, _ := pool.Get().(*buffers)
	defer b.put()
	reply := &openai.Accumulator{}
	r.c.assembled = reply
	r.c.replyStatus(r.w, r.res.StatusCode)
	if err := r.send(); err != nil {
		return err
	}
	for {
		n, err := r.res.Body.Read(b.in)
		r.c.lastByte = time.Now()
		b.out = b.out[:0]
		if n > 0 {
			r.alive()
			b.out = r.visible(b, reply, b.in[:n], b.out)
		}
		if err != nil {
			b.out = r.hide.AppendVisibleEvent(b.out, b.events.Rest(), reply)
		}
		if err != nil || reply.Done() {
			r.p.recorder.awaitSequence(r.c)
		}
		if len(b.out) > 0 {
			if err := r.send(b.out); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// visible appends what the agent may have of the events that a piece completes.
func (r *relay) visible(b *buffers, reply *openai.Accumulator, piece, out []byte) []byte {
	if r.c.cut {
		return append(out, piece...)
	}
	b.events.Write(piece)
	before := reply.Size()
	for event := b.events.Next(); event != nil; event = b.events.Next() {
		out = r.hide.AppendVisibleEvent(out, event, reply)
	}
	size := reply.Size()
	r.p.hold(r.c, int64(size-before))
	if int64(size)+int64(b.events.Buffered()) > r.p.cfg.MaxReplyBytes {
		r.c.cut = true
		r.c.fail(SourceGateway, fmt.Sprintf("the reply is longer than the %d bytes that are recorded", r.p.cfg.MaxReplyBytes))
		out = append(out, b.events.Rest()...)
	}
	return out
}
