package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// accumulator assembles the events of a stream into the reply that the same call would
// have returned unstreamed.
type accumulator interface {
	record.Assembled
	// Add takes the data of one event.
	Add(data []byte)
	// Size returns the estimated memory in bytes.
	Size() int
	// Done reports whether the event that ends a stream has come.
	Done() bool
	// Complete reports whether the whole reply has come. Some backends send no event that ends a stream.
	Complete() bool
}

// eventRelay relays a stream event by event.
type eventRelay struct {
	*relay

	room  *buffers
	chat  *openai.Accumulator // reply, if it is of a chat completion or a completion; else nil
	reply accumulator         // nil when nothing is recorded
}

// relayStream relays events as they arrive, without their hidden members or translated.
func relayStream(ctx context.Context, r *relay) error {
	b := r.buffers.take()
	defer r.buffers.put(b)
	s := eventRelay{relay: r, room: b}
	s.assemble()
	if r.plan.Translated {
		r.asStream()
	}
	r.begin(r.reply.Status)
	if err := r.send(); err != nil {
		return err
	}
	ended, whole := false, false // the event that ends the stream has come; the reply is complete, unless another choice begins
	for {
		n, err := r.reply.Read(b.in)
		b.out = b.out[:0]
		fault := s.take(b.in[:n])
		if fault == nil && err != nil {
			fault = s.end(err)
		}
		if fault != nil {
			r.count(b.events.Rest()) // the events after the one that is not translated
		}
		r.charge()
		if fault != nil && r.plan.Translated && !r.plan.translate.Done() {
			b.out = r.plan.translate.Fail(b.out, s.failure(ctx, fault))
		}
		ended = ended || fault == nil && s.done()
		had := whole // before this piece
		whole = ended || s.reply != nil && !s.plan.Translated && s.reply.Complete()
		over := ended || err != nil || fault != nil
		if over {
			s.checkIDs()
		}
		if over || whole {
			r.entry.AwaitSequence()
		}
		if fault == nil && !had && gone(ctx) { // the agent left before this piece was sent
			return context.Cause(ctx)
		}
		r.reply.Outlast(whole)
		if len(b.out) > 0 {
			if err := r.send(b.out); err != nil && (!had || !whole) {
				return err
			}
		}
		if ended {
			r.reply.EndSoon()
		}
		left := ctx.Err() != nil
		switch {
		case left && had && !whole:
			return context.Cause(ctx)
		case left && whole && over: // many clients leave once they have the whole reply
			return nil
		case fault != nil:
			return fault
		case err != nil:
			return nil
		}
	}
}

// assemble creates the accumulator of a recorded stream.
func (s *eventRelay) assemble() {
	if !s.recorded {
		return
	}
	switch s.plan.form {
	case record.Messages:
		s.reply = &anthropic.Accumulator{}
	case record.Responses:
		s.reply = &openai.ResponsesAccumulator{}
	case record.Chat, record.Completion:
		s.chat = &openai.Accumulator{}
		s.reply = s.chat
	}
	s.in.Streamed = s.reply
}

func (s *eventRelay) done() bool {
	if s.plan.Translated {
		return s.plan.translate.Done()
	}
	return s.reply != nil && s.reply.Done()
}

// take adds a piece of the stream. What the agent gets of each completed event is
// appended to buffers.out.
func (s *eventRelay) take(piece []byte) error {
	b := s.room
	if s.in.Cut && !s.plan.Translated {
		s.count(piece)
		b.out = append(b.out, piece...)
		return nil
	}
	b.events.Write(piece)
	before := s.size()
	for event := b.events.Next(); event != nil; event = b.events.Next() {
		if !s.in.Cached {
			s.meter.size += int64(len(event))
			s.meter.add(event)
		}
		if err := s.event(event); err != nil {
			return err
		}
	}
	size := s.size()
	s.memory.Grow(size - before)
	if int64(size)+int64(b.events.Buffered()) <= s.maxReply {
		return nil
	}
	if !s.in.Cut {
		s.in.Cut = true
		s.in.Fail(record.SourceGateway, fmt.Sprintf("the reply is longer than the %d bytes that are recorded", s.maxReply))
	}
	switch {
	case !s.plan.Translated:
		rest := b.events.Rest()
		s.count(rest)
		b.out = append(b.out, rest...)
	case int64(b.events.Buffered()) > s.maxReply:
		return errLongEvent
	}
	return nil
}

var errLongEvent = errors.New("the backend sent an event that is too long to be translated")

func (s *eventRelay) size() int {
	if s.reply == nil {
		return 0
	}
	return s.reply.Size()
}

// event accumulates one event and appends what the agent gets of it. An event after the one that ends the stream belongs
// to no reply, and is not accumulated.
func (s *eventRelay) event(event []byte) (err error) {
	b := s.room
	over := s.reply != nil && s.reply.Done()
	switch {
	case s.plan.Translated:
		data := openai.Data(event)
		if s.reply != nil && !s.in.Cut && !over {
			s.reply.Add(data)
		}
		b.out, err = s.plan.translate.Event(b.out, data)
	case s.chat != nil && over:
		b.out = s.plan.hide.AppendVisibleEvent(b.out, event, new(openai.Accumulator))
	case s.chat != nil:
		b.out = s.plan.hide.AppendVisibleEvent(b.out, event, s.chat)
	case s.reply == nil:
		b.out = s.plan.hide.AppendVisible(b.out, event)
	default:
		if !over {
			s.reply.Add(openai.Data(event))
		}
		b.out = append(b.out, event...)
	}
	return err
}

// end handles the bytes after the last complete event. It returns an error if the stream is
// incomplete.
func (s *eventRelay) end(err error) error {
	b := s.room
	rest := b.events.Rest()
	s.count(rest)
	if errors.Is(err, io.EOF) {
		s.meter.end()
	}
	if len(rest) > 0 {
		// Where the connection has failed, a part of an event is no fault of its own.
		if fault := s.event(rest); fault != nil && errors.Is(err, io.EOF) {
			return fault
		}
	}
	if !errors.Is(err, io.EOF) && !s.done() { // after the event that ends a stream, it does not matter how the connection does
		return err
	}
	if s.plan.Translated {
		b.out, err = s.plan.translate.End(b.out)
		return err
	}
	s.checkComplete()
	return nil
}

// checkComplete notes it if a stream ended before its reply did, as behind a server that hides how its backend died. The agent
// has what the backend sent.
func (s *eventRelay) checkComplete() {
	if s.reply == nil || s.in.Cut || s.reply.Complete() || openai.Failed(s.reply.Failure()) {
		return
	}
	s.in.Outcome = agl.OutcomeModelError
	if s.reply.Malformed() > 0 { // the record counts them
		return
	}
	s.in.Fail(record.SourceProvider, "the backend ended the stream without a finish reason or an event that ends it")
}

// checkIDs tells upstream about a stream without all token ids. Some engines drop those of the pieces that their parsers of tool calls
// and reasoning hold back.
func (s *eventRelay) checkIDs() {
	if s.plan.StreamsIDs && s.chat != nil && !s.in.Cut && s.chat.LacksTokenIDs() {
		s.relay.reply.LacksIDs()
	}
}

// failure returns the error event for a stream that failed.
func (s *eventRelay) failure(ctx context.Context, fault error) openai.Error {
	if e := ending[*openai.Error](ctx, fault); e != nil {
		return *e
	}
	return openai.Error{Message: fmt.Sprintf("the stream of the backend of model %q failed: %v", s.in.Model, fault), Type: openai.APIError, Code: "backend_broken"}
}
