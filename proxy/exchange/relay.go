package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/upstream"
)

// relay carries a backend's reply to the agent.
type relay struct {
	*call

	reply *upstream.Reply
	plan  *plan
}

// whole relays a reply that has been received whole.
func (r *relay) whole(ctx context.Context) error {
	r.count(r.reply.Buffered)
	if r.reply.More {
		if r.plan.Translated || r.plan.replay {
			return r.unusable(fmt.Sprintf("is longer than the %d bytes that can be translated", r.maxReply))
		}
		return r.tooLong()
	}
	r.in.Cut = false
	visible, err := r.visible()
	if err != nil {
		return r.unusable("cannot be translated: " + err.Error())
	}
	length := 0
	for _, part := range visible {
		length += len(part)
	}
	if len(visible) > 1 && length <= maxPooled { // a copy takes less time than a write for each part
		b := r.buffers.take()
		defer r.buffers.put(b)
		b.out = b.out[:0]
		for _, part := range visible {
			b.out = append(b.out, part...)
		}
		visible = [][]byte{b.out}
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(length))
	r.begin(r.reply.Status)
	return r.sendLast(ctx, visible)
}

// visible returns the parts of a whole reply that the agent gets.
func (r *relay) visible() ([][]byte, error) {
	pl, body := r.plan, r.reply.Buffered
	switch {
	case r.reply.Status >= 300 && pl.Translated:
		r.contentType("application/json")
		e := openai.ErrorFrom(r.reply.Status, body)
		if pl.Path == tokenizePath {
			e.Message = fmt.Sprintf("the backend of model %q has not counted the tokens, it answered %d to POST /tokenize: %s", r.in.Model, r.reply.Status, e.Message)
		}
		return [][]byte{e.AppendJSON(nil)}, nil
	case r.reply.Status >= 300:
		return [][]byte{body}, nil
	case !pl.Translated && pl.replay:
		events, ok := openai.Replay(nil, bytes.Join(pl.hide.Visible(body), nil), pl.usage)
		if !ok {
			return [][]byte{body}, nil // it is not a completion
		}
		r.asStream()
		return [][]byte{events}, nil
	case !pl.Translated:
		return pl.hide.Visible(body), nil
	case !r.in.Stream:
		r.contentType("application/json")
		out, err := pl.translate.Reply(nil, body)
		return [][]byte{out}, err
	}
	out, err := r.replayed(body)
	r.asStream()
	return [][]byte{out}, err
}

// replayed translates a whole reply into the stream that the agent wants.
func (r *relay) replayed(body []byte) (out []byte, err error) {
	all, ok := openai.Replay(nil, body, true)
	if r.plan.form != record.Chat || !ok {
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

func (r *relay) contentType(t string) { r.w.Header()["Content-Type"] = []string{t} }

// asStream sets the headers of a stream.
func (r *relay) asStream() {
	r.contentType("text/event-stream; charset=utf-8")
	r.w.Header()["Cache-Control"] = []string{"no-cache"}
}

// unusable answers with an error instead of a reply that the agent cannot use.
func (r *relay) unusable(why string) error {
	r.in.Fail(record.SourceProvider, "the reply "+why)
	clear(r.w.Header())
	r.setTries()
	e := openai.NewError(http.StatusBadGateway, openai.APIError, "backend_reply_unusable",
		fmt.Sprintf("the reply of the backend of model %q %s", r.in.Model, why))
	r.in.Status = e.Status
	return WriteError(r.w, e)
}

// tooLong relays a reply that is too long to be recorded. It is relayed unchanged, with
// the members that would otherwise be hidden.
func (r *relay) tooLong() error {
	r.in.Fail(record.SourceGateway, fmt.Sprintf("the reply is longer than the %d bytes that are recorded", r.maxReply))
	r.verbatimHeader()
	if err := r.send(r.reply.Buffered); err != nil {
		return err
	}
	return r.copy()
}

// verbatim relays a reply that is not recorded, or that is encoded, unchanged.
func (r *relay) verbatim(encoding string) error {
	r.verbatimHeader()
	if r.recorded {
		r.in.Cut = true
		r.in.Fail(record.SourceProvider, "the reply is encoded as "+encoding+", which was not asked for")
	}
	return r.copy()
}

func (r *relay) verbatimHeader() {
	if r.reply.Length >= 0 {
		r.w.Header().Set("Content-Length", strconv.FormatInt(r.reply.Length, 10))
	}
	r.begin(r.reply.Status)
}

// copy relays the rest of the reply as it arrives.
func (r *relay) copy() error {
	b := r.buffers.take()
	defer r.buffers.put(b)
	for {
		n, err := r.reply.Read(b.in)
		if n > 0 {
			r.count(b.in[:n])
			if err := r.send(b.in[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			r.meter.end()
			return nil
		case err != nil:
			return err
		}
	}
}

// count counts the tokens of a piece of the reply.
func (r *relay) count(piece []byte) {
	if !r.in.Cached { // a cached reply uses no tokens
		r.meter.write(piece)
		r.charge()
	}
}

// charge cancels a stream that uses more than the budget of its attempt.
func (r *relay) charge() {
	if !r.meter.exact {
		return
	}
	used := r.meter.running()
	if spent := r.account.Charge(used.Sum()); spent != nil && r.meter.more {
		if used.Prompt > 0 { // the backend's own count would have come at the end of the stream
			r.meter.atLeast(used)
		}
		r.cancel(spent)
	}
}

// sendLast sends the rest of a reply. While the call has no sequence id, the agent gets
// all but the last byte, so that only the end is delayed. It fails if the agent leaves before the end is sent.
func (r *relay) sendLast(ctx context.Context, parts [][]byte) error {
	if !r.entry.HasSequenceID() {
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
		r.entry.AwaitSequence()
	}
	if gone(ctx) {
		return context.Cause(ctx)
	}
	return r.send(parts...)
}

// gone reports whether the agent has left. Writing to it may still succeed.
func gone(ctx context.Context) bool { return errors.Is(context.Cause(ctx), context.Canceled) }

// send writes to the agent and flushes. The idle timeout of the backend is suspended
// meanwhile, because the agent may be slow.
func (r *relay) send(parts ...[]byte) error {
	r.reply.SuspendIdle()
	defer r.reply.ResumeIdle()
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
