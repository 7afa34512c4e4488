package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
)

// assembler is an [accumulator] as the relay needs it.
type assembler interface {
	accumulator
	// Add takes the data of one event.
	Add(data []byte)
	// Done reports whether the event that ends a stream has come.
	Done() bool
}

// streaming is a reply that is relayed as its events come.
type streaming struct {
	*relay

	buffers *buffers
	chat    *openai.Accumulator // reply, if it is a chat completion or a completion
	reply   assembler           // nil when nothing is recorded
}

// stream relays events as they come: each without what is hidden in it, or
// translated.
func (r *relay) stream(ctx context.Context) error {
	b, _ := pool.Get().(*buffers)
	defer b.put()
	s := streaming{relay: r, buffers: b}
	s.assemble()
	if r.plan.translate != nil {
		r.asStream()
	}
	r.c.replyStatus(r.w, r.res.StatusCode)
	if err := r.send(); err != nil {
		return err
	}
	in := b.input()
	told := false // the agent has the event that ends the stream
	for {
		n, err := r.res.Body.Read(in)
		r.c.lastByte = time.Now()
		b.out = b.out[:0]
		if n > 0 {
			r.alive()
		}
		fault := s.take(in[:n])
		if fault == nil && err != nil {
			fault = s.end(err)
		}
		if fault != nil && r.plan.translate != nil && !r.plan.translate.Done() {
			b.out = r.plan.translate.Fail(b.out, s.failure(ctx, fault))
		}
		if err != nil || fault != nil || s.done() {
			r.awaitSequence()
		}
		if len(b.out) > 0 {
			if err := r.send(b.out); err != nil && !told {
				return err
			}
		}
		told = told || fault == nil && s.done()
		switch {
		case told && ctx.Err() != nil: // it has left, as clients do that wait for no end behind that event
			return nil
		case fault != nil:
			return fault
		case err != nil:
			return nil
		}
	}
}

// assemble makes what the record reads the stream from.
func (s *streaming) assemble() {
	if !s.c.recorded() {
		return
	}
	switch s.plan.form {
	case formMessages:
		s.reply = &anthropic.Accumulator{}
	case formResponses:
		s.reply = &openai.ResponsesAccumulator{}
	default:
		s.chat = &openai.Accumulator{}
		s.reply = s.chat
	}
	s.c.assembled = s.reply
}

func (s *streaming) done() bool {
	if s.plan.translate != nil {
		return s.plan.translate.Done()
	}
	return s.reply.Done()
}

// take takes a piece of the stream and appends what the agent may have of the
// events that it completes to the buffer that is sent.
func (s *streaming) take(piece []byte) error {
	b := s.buffers
	if s.c.cut && s.plan.translate == nil {
		b.out = append(b.out, piece...)
		return nil
	}
	b.events.Write(piece)
	before := s.size()
	for event := b.events.Next(); event != nil; event = b.events.Next() {
		if err := s.event(event); err != nil {
			return err
		}
	}
	size := s.size()
	s.p.hold(s.c, int64(size-before))
	if int64(size)+int64(b.events.Buffered()) <= s.p.cfg.MaxReplyBytes {
		return nil
	}
	if !s.c.cut {
		s.c.cut = true
		s.c.fail(SourceGateway, fmt.Sprintf("the reply is longer than the %d bytes that are recorded", s.p.cfg.MaxReplyBytes))
	}
	switch {
	case s.plan.translate == nil:
		b.out = append(b.out, b.events.Rest()...)
	case int64(b.events.Buffered()) > s.p.cfg.MaxReplyBytes:
		return errLongEvent
	}
	return nil
}

var errLongEvent = errors.New("the backend sent an event that is too long to be translated")

func (s *streaming) size() int {
	if s.reply == nil {
		return 0
	}
	return s.reply.Size()
}

// event takes one event.
func (s *streaming) event(event []byte) (err error) {
	b := s.buffers
	switch {
	case s.plan.translate != nil:
		data := openai.Data(event)
		if s.reply != nil && !s.c.cut {
			s.reply.Add(data)
		}
		b.out, err = s.plan.translate.Event(b.out, data)
	case s.chat != nil:
		b.out = s.plan.hide.AppendVisibleEvent(b.out, event, s.chat)
	default:
		s.reply.Add(openai.Data(event))
		b.out = append(b.out, event...)
	}
	return err
}

// end takes what is left behind the last piece, and returns why the stream is
// not complete.
func (s *streaming) end(err error) error {
	b := s.buffers
	if rest := b.events.Rest(); len(rest) > 0 {
		if fault := s.event(rest); fault != nil {
			return fault
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if s.plan.translate != nil {
		b.out, err = s.plan.translate.End(b.out)
		return err
	}
	return nil
}

// failure is what the agent is told when a stream cannot go on.
func (s *streaming) failure(ctx context.Context, fault error) openai.Error {
	if f := s.p.ended(s.c, context.Cause(ctx)); f != nil {
		return f.body
	}
	return openai.Error{Message: fmt.Sprintf("the stream of the backend of model %q failed: %v", s.c.model, fault), Type: openai.APIError, Code: "backend_broken"}
}
