package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/proxy/openai"
)

// stream relays a reply that comes as a stream of events.
type stream struct {
	w     http.ResponseWriter
	most  int64 // bytes of the longest reply
	last  []byte
	begun bool   // the agent has received a part
	fault string // why a reply is wrong although it has come to its end

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
// the reply as if it had arrived in one piece.
func (s *stream) relay(ctx context.Context, res *http.Response, timer *time.Timer, timeout time.Duration) (jsontext.Value, error) {
	asStream(s.w.Header())
	s.w.WriteHeader(http.StatusOK)
	s.begun = true
	flusher := http.NewResponseController(s.w)
	var events openai.Events
	var whole openai.Accumulator
	piece := make([]byte, 16<<10)
	had := false // the agent has the finish reason of each choice, with which many leave
	left := func(err error) (jsontext.Value, error) {
		if had && errors.Is(context.Cause(ctx), context.Canceled) {
			return s.whole(&whole), nil
		}
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	for {
		n, err := res.Body.Read(piece)
		timer.Reset(timeout)
		events.Write(piece[:n])
		ended := errors.Is(err, io.EOF)
		next := func() []byte {
			event := events.Next()
			if event == nil && ended {
				event = events.Rest()
			}
			return event
		}
		for event := next(); len(event) > 0; event = next() {
			whole.Add(openai.Data(event))
			out, err := s.visible(event, whole.Done())
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errBroken, err)
			}
			if whole.Done() {
				s.last = append(s.last, out...)
				return s.whole(&whole), nil
			}
			if _, err := s.w.Write(out); err != nil {
				return left(err)
			}
		}
		if int64(whole.Size()+events.Buffered()) > s.most {
			return nil, fmt.Errorf("%w: it is longer than %d bytes", errBroken, s.most)
		}
		if err := flusher.Flush(); err != nil {
			return left(err)
		}
		had = s.translator == nil && whole.Complete()
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

// whole returns the reply of a stream that has come to its end, and notes what is wrong with it.
func (s *stream) whole(a *openai.Accumulator) jsontext.Value {
	if a.Failure() != nil {
		s.fault = "the backend sent an error in its stream"
	} else if n := a.Malformed(); n > 0 {
		s.fault = strconv.Itoa(n) + " events of the stream could not be read"
	}
	return a.AppendJSON(nil)
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
	if _, err := s.w.Write(s.last); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}
