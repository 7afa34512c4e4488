package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// stream relays a reply that comes as a stream of events.
type stream struct {
	w     http.ResponseWriter
	most  int64 // bytes of the longest reply
	last  []byte
	begun bool        // the agent has received a part
	had   bool        // the agent has the finish reason of each choice; many disconnect then
	gone  bool        // the agent has disconnected after that; nothing more is sent
	ended atomic.Bool // the finish reason of each choice has come, and may be on its way to the agent
	fault string      // why a reply is wrong although it has come to its end
	gaps  bool        // the reply has the ids of only some of its tokens

	translator translator // nil if the agent speaks the backend's form
	hide       openai.Hide
}

func asStream(h http.Header) {
	h["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	h["Cache-Control"] = []string{"no-cache"}
	h["X-Accel-Buffering"] = []string{"no"} // nginx in front must not hold the stream back
}

// errBroken is wrapped by the error of a stream that ended too early, or whose agent disconnected. The call is not
// sent again, because the agent has seen a part of the reply.
var errBroken = errors.New("the stream ended early")

// relay forwards events as they arrive, except the last one, which finish sends once the call is recorded. It returns
// the reply as if it had arrived in one piece. ctx ends when the agent leaves.
func (s *stream) relay(ctx context.Context, res *http.Response, timer *time.Timer, timeout time.Duration) (jsontext.Value, error) {
	asStream(s.w.Header())
	s.w.WriteHeader(http.StatusOK)
	s.begun = true
	var events openai.Events
	var whole openai.Accumulator
	piece := make([]byte, 16<<10)
	left := func(err error) (jsontext.Value, error) {
		if s.had && errors.Is(context.Cause(ctx), context.Canceled) {
			return s.whole(&whole), nil
		}
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	for {
		n, err := res.Body.Read(piece)
		timer.Reset(timeout)
		if ctx.Err() != nil && !s.had {
			return left(context.Cause(ctx))
		}
		events.Write(piece[:n])
		ended := errors.Is(err, io.EOF)
		next := func() []byte {
			event := events.Next()
			if event == nil && ended {
				event = events.Rest()
			}
			return event
		}
		var out []byte
		for event := next(); len(event) > 0 && !whole.Done(); event = next() {
			whole.Add(openai.Data(event))
			visible, err := s.visible(event, whole.Done())
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errBroken, err)
			}
			if whole.Done() {
				s.last = append(s.last, visible...)
			} else {
				out = append(out, visible...)
			}
		}
		s.ended.Store(s.translator == nil && whole.Complete()) // before the agent may leave with it
		if err := s.send(out); err != nil {
			return left(err)
		}
		if whole.Done() {
			return s.whole(&whole), nil
		}
		if int64(whole.Size()+events.Buffered()) > s.most {
			return nil, fmt.Errorf("%w: it is longer than %d bytes", errBroken, s.most)
		}
		s.had = s.ended.Load()
		switch {
		case ended && (whole.Complete() || whole.Failure() != nil): // some backends send no [DONE]
			if s.translator != nil {
				if s.last, err = s.translator.End(s.last); err != nil {
					return nil, fmt.Errorf("%w: %w", errBroken, err)
				}
			}
			return s.whole(&whole), nil
		case ended:
			return nil, fmt.Errorf("%w: it has neither a finish reason nor [DONE]", errBroken)
		case err != nil:
			return left(err)
		}
	}
}

// send sends the agent a part of the reply. It fails if the agent has left without the whole reply.
func (s *stream) send(part []byte) error {
	if s.gone {
		return nil
	}
	_, err := s.w.Write(part)
	if err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	if s.gone = err != nil && s.had; s.gone {
		return nil
	}
	return err
}

// whole returns the reply of a stream that has come to its end, and notes what is wrong with it. Ids with gaps are not what the
// model sampled, and are left out.
func (s *stream) whole(a *openai.Accumulator) jsontext.Value {
	if a.Failure() != nil {
		s.fault = "the backend sent an error in its stream"
	} else if n := a.Malformed(); n > 0 {
		s.fault = strconv.Itoa(n) + " events of the stream could not be read"
	}
	reply := jsontext.Value(a.AppendJSON(nil))
	if s.gaps = a.LacksTokenIDs(); s.gaps {
		return withoutIDs(reply)
	}
	return reply
}

func withoutIDs(reply jsontext.Value) jsontext.Value {
	choices, _ := rawjson.Get(reply, "choices")
	var out [][]byte
	for choice := range rawjson.Elements(choices) {
		out = append(out, rawjson.Remove(rawjson.Remove(choice, "token_ids"), "prompt_token_ids"))
	}
	return rawjson.Set(rawjson.Remove(reply, "prompt_token_ids"), "choices", arrayOf(out))
}

// visible returns what the agent receives for an event. It keeps the end of a translated stream in last, even if more
// events of the backend follow.
func (s *stream) visible(event []byte, last bool) ([]byte, error) {
	if s.translator == nil {
		return s.hide.AppendVisible(nil, event), nil
	}
	out, err := s.translator.Event(nil, openai.Data(event))
	if err == nil && last {
		out, err = s.translator.End(out)
	}
	if err == nil && !last && s.translator.Done() {
		s.last, out = append(s.last, out...), nil
	}
	return out, err
}

// finish sends the end of the stream.
func (s *stream) finish() error {
	return s.send(s.last)
}
