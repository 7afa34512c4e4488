package server

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/wire"
)

// future is a call that was submitted. Its result is written before done is closed.
type future struct {
	id    string
	model string // of create_model and unload_model
	of    *calls
	seq   int64
	body  [sha256.Size]byte

	done   chan struct{}
	result result
}

// calls are the calls of a model or a sampling session, by sequence id.
type calls struct {
	next int64
	seen map[int64]*future
}

func newCalls() calls { return calls{next: 1, seen: map[int64]*future{}} }

// result is the result of a call. It is encoded when it is read, because nearly every result is read once, in one
// encoding.
type result struct {
	json     func() ([]byte, error)
	protobuf func() ([]byte, error) // nil where there is no such form
	size     int64                  // of what the encoders hold, in bytes, about
}

// resultOverhead is about how many bytes a result takes besides its numbers, for each datum or sequence.
const resultOverhead = 512

// text is a result that is encoded already.
func text(body []byte) result {
	return result{json: func() ([]byte, error) { return body, nil }, size: int64(len(body)) + resultOverhead}
}

// message is a small result, which has no form in protobuf.
func message(m any) (result, error) {
	body, err := json.Marshal(m)
	return text(body), err
}

// newFuture makes a future. The lock is held.
func (s *Server) newFuture() *future {
	s.ids++
	f := &future{id: s.boot + strconv.FormatUint(s.ids, 10), done: make(chan struct{})}
	s.futures[f.id] = f
	return f
}

// admit finds the call that a submit repeats, or makes a new one. The lock is held.
func (s *Server) admit(c *calls, seq *int64, body []byte, strict bool) (f *future, repeated bool, err error) {
	digest := sha256.Sum256(body)
	number := c.next
	if seq != nil {
		number = *seq
	}
	if s.cfg.Order != Ignored {
		before := c.seen[number]
		switch {
		case before != nil && before.body == digest:
			return before, true, nil
		case before != nil || (strict && number != c.next):
			return nil, false, agl.Errorf(agl.CodeConflict, "Sequence conflict: expected %d, got %d", c.next, number)
		}
	}
	f = s.newFuture()
	f.of, f.seq, f.body = c, number, digest
	c.seen[number] = f
	c.next = max(c.next, number+1)
	return f, false, nil
}

// start runs a call of a session on a goroutine of its own, after the one before it. The lock is held.
func (s *Server) start(ctx context.Context, session string, f, after *future, path string, do func(ctx context.Context) (result, error)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	of := s.sessions[session] // nil if it has ended
	if of != nil {
		of.running++
	}
	s.runs.Go(func() {
		defer cancel()
		if of != nil {
			defer s.ran(of)
		}
		if after != nil {
			<-after.done
		}
		ended := make(chan struct{})
		s.runs.Go(func() {
			select {
			case <-s.stop:
				cancel()
			case <-ended:
			}
		})
		res, err := do(ctx)
		close(ended)
		if err != nil && agl.ErrorCode(err) == agl.CodeInternal && !agl.IsContextError(err) {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "tinker: a call failed", slog.String("path", path), slog.Any("error", err))
		}
		s.finish(f, res, err)
	})
}

// ran records that a call of a session has ended.
func (s *Server) ran(of *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.running--
	of.alive = time.Now()
}

// finish sets a call's result, and drops the oldest results beyond MaxResults and MaxResultBytes. The newest stays,
// whatever its size.
func (s *Server) finish(f *future, res result, err error) {
	if err != nil {
		res = text(failed(err))
	}
	f.result = res
	s.mu.Lock()
	defer s.mu.Unlock()
	close(f.done)
	s.finished = append(s.finished, f)
	s.resultBytes += res.size
	for n := len(s.finished); n > s.cfg.MaxResults || n > 1 && s.resultBytes > s.cfg.MaxResultBytes; n-- {
		old := s.finished[0]
		s.finished[0] = nil
		s.finished = s.finished[1:]
		s.resultBytes -= old.result.size
		delete(s.futures, old.id)
		if old.of != nil && old.of.seen[old.seq] == old {
			delete(old.of.seen, old.seq)
		}
		if m := s.models[old.model]; m != nil && m.unload == old {
			delete(s.models, old.model)
		}
	}
}

// failed is the result of a call that failed.
func failed(err error) []byte {
	code := agl.ErrorCode(err)
	out := wire.RequestFailed{Error: err.Error(), Category: "user", Code: string(code)}
	if code == agl.CodeInternal || code == agl.CodeUnavailable {
		out.Category = "server"
	}
	text, err := json.Marshal(out)
	if err != nil {
		// The message is not UTF-8.
		return []byte(`{"error":"the call failed","category":"server"}`)
	}
	return text
}

// retrieve answers a result, or that it is not there yet.
func (s *Server) retrieve(w http.ResponseWriter, r *http.Request) {
	body, err := s.read(r)
	var ask wire.RetrieveFutureRequest
	if err == nil {
		err = decode(body, &ask)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	f, err := s.lookup(ask.RequestID)
	if err != nil {
		s.fail(w, err)
		return
	}
	timer := time.NewTimer(s.cfg.Hold)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-r.Context().Done():
		return
	case <-s.stop:
		s.fail(w, agl.Errorf(agl.CodeUnavailable, "the server is shutting down"))
		return
	case <-timer.C:
		s.reply(w, http.StatusRequestTimeout, wire.TryAgain{Type: wire.TryAgainType, RequestID: f.id, QueueState: "active"})
		return
	}
	encode, media := f.result.json, wire.JSONType
	if f.result.protobuf != nil && s.cfg.Encoding != JSONOnly &&
		(s.cfg.Encoding == ProtobufOnly || strings.Contains(r.Header.Get("Accept"), wire.ProtobufType)) {
		encode, media = f.result.protobuf, wire.ProtobufType
	}
	text, err := encode()
	if err != nil {
		text, media = failed(agl.Errorf(agl.CodeInternal, "the result cannot be encoded: %w", err)), wire.JSONType
	}
	s.write(w, http.StatusOK, media, text)
}

// submitted is the answer to a submit whose client may wait for the result.
type submitted struct {
	wire.Submitted

	future *future
}

// preferredWait is how long a submit waits that has [wire.PreferResult].
const preferredWait = time.Second

// withResult is the answer to a submit, with the result if the client wants that and it comes in time: each request
// that is saved counts where samples are short.
func (s *Server) withResult(r *http.Request, out submitted) wire.Submitted {
	f := out.future
	if r.Header.Get(wire.PreferHeader) != wire.PreferResult || s.cfg.Encoding == ProtobufOnly {
		return out.Submitted
	}
	timer := time.NewTimer(min(preferredWait, s.cfg.Hold))
	defer timer.Stop()
	select {
	case <-f.done:
		if text, err := f.result.json(); err == nil {
			out.Result = text
		}
	case <-r.Context().Done():
	case <-s.stop:
	case <-timer.C:
	}
	return out.Submitted
}

// checkFinite refuses what JSON has no number for, also for those who read protobuf.
func checkFinite(what string, values []float32) error {
	for i, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return agl.Errorf(agl.CodeInternal, "the result has a number that is not finite: %s[%d] is %v", what, i, v)
		}
	}
	return nil
}

func (s *Server) lookup(id string) (*future, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.futures[id]; ok {
		return f, nil
	}
	rest, ours := strings.CutPrefix(id, s.boot)
	if n, err := strconv.ParseUint(rest, 10, 64); ours && err == nil && n > 0 && n <= s.ids {
		return nil, agl.Errorf(agl.CodeEvicted, "request_id: the result of %q was dropped to make room for newer results", id)
	}
	return nil, agl.Errorf(agl.CodeNotFound, "request_id: %q is unknown; it may be of a server before this one", id)
}
