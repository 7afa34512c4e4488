package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/proxy/openai"
)

// stream relays a reply that comes as a stream of events.
type stream struct {
	w     http.ResponseWriter
	most  int64 // bytes of the reply
	last  []byte
	begun bool // the agent has received a part
}

// errBroken is in the error of a stream that ended too early, or of an agent that left.
// The call is not sent again: its agent has seen a part of the reply.
var errBroken = errors.New("the stream broke off")

func isStream(kind string) bool { return strings.HasPrefix(kind, "text/event-stream") }

// relay passes events on as they come, except for the last one: finish sends that, once
// the call is recorded. It returns the reply as if it had come in one piece.
func (s *stream) relay(res *http.Response, timer *time.Timer, timeout time.Duration) (jsontext.Value, error) {
	s.w.Header()["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	s.w.Header()["Cache-Control"] = []string{"no-cache"}
	s.w.WriteHeader(http.StatusOK)
	s.begun = true
	flusher := http.NewResponseController(s.w)
	var events openai.Events
	var whole openai.Accumulator
	piece := make([]byte, 16<<10)
	for {
		n, err := res.Body.Read(piece)
		timer.Reset(timeout)
		events.Write(piece[:n])
		for event := events.Next(); event != nil; event = events.Next() {
			if whole.Add(openai.Data(event)); whole.Done() {
				s.last = bytes.Clone(event)
				return whole.AppendJSON(nil), nil
			}
			if _, err := s.w.Write(event); err != nil {
				return nil, fmt.Errorf("%w: %w", errBroken, err)
			}
		}
		if int64(whole.Size()) > s.most {
			return nil, fmt.Errorf("%w: it is longer than %d bytes", errBroken, s.most)
		}
		if err := flusher.Flush(); err != nil {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it has no [DONE]", errBroken)
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
	}
}

// finish sends the end of the stream.
func (s *stream) finish() error {
	if _, err := s.w.Write(s.last); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}
