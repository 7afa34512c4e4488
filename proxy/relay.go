package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	plan    *plan
	silence *silence // nil when the reply came from the cache
	// again decides whether a reply that broke off is asked for once more.
	again func(ctx context.Context, err error) bool
}

// buffers are what a reply needs on its way, and one that comes whole until it
// is recorded.
type buffers struct {
	in, out []byte
	events  openai.Events
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

// input is where pieces of a reply are read to.
func (b *buffers) input() []byte {
	if b.in == nil {
		b.in = make([]byte, 16<<10)
	}
	return b.in
}

// keptBuffer is the largest buffer that is worth keeping between calls.
const keptBuffer = 256 << 10

func (r *relay) run(ctx context.Context) error {
	defer r.res.Body.Close()
	r.c.firstByte = time.Now()
	r.alive()
	h := r.w.Header()
	copyHeader(h, r.res.Header)
	if r.res.StatusCode >= 300 {
		h.Set(HeaderSource, SourceProvider)
		r.c.fail(SourceProvider, fmt.Sprintf("the backend answered %d", r.res.StatusCode))
	}
	translated := r.plan.translate != nil
	switch {
	case translated && r.encoding() != "":
		return r.unusable("is encoded as " + r.encoding() + ", which was not asked for")
	case !translated && (!r.c.recorded() || r.encoding() != ""):
		return r.verbatim()
	case isStream(r.res.Header) && translated && !r.c.stream:
		return r.unusable("is a stream, which was not asked for")
	case isStream(r.res.Header) && (!translated || r.res.StatusCode < 300):
		return r.stream(ctx)
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
func (r *relay) alive() {
	if r.silence != nil {
		r.silence.alive()
	}
}

// awaitSequence is called before the last byte of a reply.
func (r *relay) awaitSequence() {
	if r.c.recorded() {
		r.p.recorder.awaitSequence(r.c)
	}
}

// whole relays a reply that is of use only when it is complete.
func (r *relay) whole(ctx context.Context) error {
	r.c.buffers, _ = pool.Get().(*buffers)
	body, err := readBody(watched{r}, r.c.buffers.out, r.res.ContentLength, r.p.cfg.MaxReplyBytes)
	r.c.lastByte = time.Now()
	r.c.reply, r.c.buffers.out = body, body
	r.p.hold(r.c, int64(len(body)))
	if errors.Is(err, errTooLong) {
		if r.plan.translate != nil || r.plan.replay {
			r.c.cut = true
			return r.unusable(fmt.Sprintf("is longer than the %d bytes that can be translated", r.p.cfg.MaxReplyBytes))
		}
		return r.tooLong(body)
	}
	if err != nil {
		return r.broken(ctx, err)
	}
	visible, err := r.rendered(body)
	if err != nil {
		return r.unusable("cannot be translated: " + err.Error())
	}
	length := 0
	for _, part := range visible {
		length += len(part)
	}
	if len(visible) > 1 && length <= keptBuffer { // a copy takes less time than a write for each part
		b, _ := pool.Get().(*buffers)
		defer b.put()
		visible = [][]byte{b.join(visible)}
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(length))
	r.c.replyStatus(r.w, r.res.StatusCode)
	err = r.sendLast(visible)
	if !r.c.recorded() {
		r.c.release()
	}
	return err
}

// join puts the parts of a reply behind one another.
func (b *buffers) join(parts [][]byte) []byte {
	b.out = b.out[:0]
	for _, part := range parts {
		b.out = append(b.out, part...)
	}
	return b.out
}

// sendLast sends the rest of a reply. While the call has no sequence id the
// agent gets all but the last byte, so that it waits for nothing but the end.
func (r *relay) sendLast(parts [][]byte) error {
	if r.c.recorded() && !isClosed(r.c.sequenced) {
		for len(parts) > 0 && len(parts[len(parts)-1]) == 0 {
			parts = parts[:len(parts)-1]
		}
		if n := len(parts); n > 0 {
			last := parts[n-1]
			head := append(slices.Clip(parts[:n-1]), last[:len(last)-1])
			if err := r.send(head...); err != nil {
				return err
			}
			parts = [][]byte{last[len(last)-1:]}
		}
		r.awaitSequence()
	}
	return r.send(parts...)
}

// rendered is what the agent is told of a reply that came whole.
func (r *relay) rendered(body []byte) ([][]byte, error) {
	pl := r.plan
	switch {
	case r.res.StatusCode >= 300 && pl.translate != nil:
		r.w.Header()["Content-Type"] = []string{"application/json"}
		return [][]byte{openai.ErrorFrom(r.res.StatusCode, body).AppendJSON(nil)}, nil
	case r.res.StatusCode >= 300:
		return [][]byte{body}, nil
	case pl.translate == nil && pl.replay:
		events, ok := openai.Replay(nil, bytes.Join(pl.hide.Visible(body), nil), pl.usage)
		if !ok {
			return [][]byte{body}, nil // not a completion, whatever it is
		}
		r.asStream()
		return [][]byte{events}, nil
	case pl.translate == nil:
		return pl.hide.Visible(body), nil
	case !r.c.stream:
		r.w.Header()["Content-Type"] = []string{"application/json"}
		out, err := pl.translate.Reply(nil, body)
		return [][]byte{out}, err
	}
	out, err := r.replayed(body)
	r.asStream()
	return [][]byte{out}, err
}

// replayed translates a reply that came whole into the stream that the agent
// wants.
func (r *relay) replayed(body []byte) (out []byte, err error) {
	all, ok := openai.Replay(nil, body, true)
	if r.plan.form != formChat || !ok {
		return nil, errNoCompletion
	}
	var events openai.Events
	events.Write(all)
	for event := events.Next(); event != nil; event = events.Next() {
		if out, err = r.plan.translate.Event(out, openai.Data(event)); err != nil {
			return nil, err
		}
	}
	return r.plan.translate.End(out)
}

var errNoCompletion = errors.New("it is neither the stream that was asked for nor a chat completion")

// asStream makes the reply's header that of a stream.
func (r *relay) asStream() {
	h := r.w.Header()
	h["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	h["Cache-Control"] = []string{"no-cache"}
}

// unusable ends a reply that the agent cannot be told.
func (r *relay) unusable(why string) error {
	r.c.fail(SourceProvider, "the reply "+why)
	header := r.w.Header()
	clear(header)
	r.c.tell(header)
	return r.p.answerFailure(r.w, r.c, fail(http.StatusBadGateway, openai.APIError, "backend_reply_unusable",
		fmt.Sprintf("the reply of the backend of model %q %s", r.c.model, why)))
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
	if r.silence != nil {
		r.silence.ignore()
		defer r.silence.alive()
	}
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

// errBrokenOff says that a reply broke off of which the agent has seen nothing,
// and that it is to be asked for again.
var errBrokenOff = errors.New("the reply broke off")

// broken ends a reply that the backend did not finish. Nothing has been sent
// yet, so the agent gets an error that it can read.
func (r *relay) broken(ctx context.Context, err error) error {
	clear(r.w.Header())
	r.c.tell(r.w.Header())
	if r.again(ctx, err) {
		return errBrokenOff
	}
	r.c.cut = true
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
	in := b.input()
	for {
		n, err := r.res.Body.Read(in)
		r.c.lastByte = time.Now()
		if n > 0 {
			r.alive()
			if err := r.send(in[:n]); err != nil {
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
