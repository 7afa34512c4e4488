package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// job is a call to run.
type job struct {
	path    string // for logs
	session string
	after   *future // which it must wait for, or nil
	do      func(ctx context.Context) (result, error)
}

// admit finds the call that a submit repeats, or makes a future for a new one, with its place in a sequence. The lock is
// held.
func (s *Server) admit(in *calls, seq *int64, body []byte, strict bool) (f *future, repeated bool, err error) {
	digest := sha256.Sum256(body)
	number := in.next
	if seq != nil {
		number = *seq
	}
	if s.cfg.Order != engines.Ignored {
		before := in.seen[number]
		switch {
		case before != nil && before.body == digest:
			return before, true, nil
		case before != nil || (strict && number != in.next):
			return nil, false, agl.Errorf(agl.CodeConflict, "Sequence conflict: expected %d, got %d", in.next, number)
		}
	}
	f = s.newFuture("")
	f.in, f.seq, f.body = in, number, digest
	in.seen[number] = f
	in.next = max(in.next, number+1)
	return f, false, nil
}

// newFuture makes the future of a new call, of one that creates or unloads a model if that is given. The lock is held.
func (s *Server) newFuture(model string) *future {
	s.made++
	f := &future{id: s.boot + strconv.FormatUint(s.made, 10), model: model, done: make(chan struct{})}
	s.futures[f.id] = f
	return f
}

// submitted is the answer to the submit of a call.
func (f *future) submitted(model string) wire.Submitted {
	return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending", ModelID: model}
}

// start runs a call on a goroutine of its own. The lock is held, and the server is not closed.
func (s *Server) start(ctx context.Context, f *future, j job) {
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	of := s.sessions[j.session] // nil if it has ended
	if of != nil {
		of.running++
	}
	s.calls.Go(func() {
		defer f.cancel()
		if j.after != nil {
			<-j.after.done
		}
		res, err := j.do(ctx)
		if err != nil && agl.ErrorCode(err) == agl.CodeInternal && !agl.IsContextError(err) {
			s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "tinker: a call failed", slog.String("path", j.path), slog.Any("error", err))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finish(f, res, err)
		if of != nil {
			of.running--
			of.active = time.Now()
		}
	})
}

// checkOpen reports a closed server. The lock is held.
func (s *Server) checkOpen() error {
	if s.closed {
		return errClosed()
	}
	return nil
}

func errClosed() error { return agl.Errorf(agl.CodeUnavailable, "the server is shutting down") }

// finish sets a call's result, and drops the oldest results beyond MaxResults and MaxResultBytes. The newest stays,
// whatever its size. The lock is held.
func (s *Server) finish(f *future, res result, err error) {
	if err != nil {
		res = failed(err)
	}
	f.result = res
	close(f.done)
	s.results = append(s.results, f)
	s.resultBytes += res.size
	for n := len(s.results); n > s.cfg.MaxResults || n > 1 && s.resultBytes > s.cfg.MaxResultBytes; n-- {
		old := s.results[0]
		s.results[0] = nil
		s.results = s.results[1:]
		s.resultBytes -= old.result.size
		delete(s.futures, old.id)
		if old.in != nil && old.in.seen[old.seq] == old {
			delete(old.in.seen, old.seq)
		}
		if m := s.models[old.model]; m != nil && m.unload == old {
			delete(s.models, old.model)
		}
	}
}

func (s *Server) lookup(id string) (*future, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.futures[id]; ok {
		return f, nil
	}
	rest, ours := strings.CutPrefix(id, s.boot)
	if n, err := strconv.ParseUint(rest, 10, 64); ours && err == nil && n > 0 && n <= s.made {
		return nil, agl.Errorf(agl.CodeEvicted, "request_id: the result of %q was dropped to make room for newer results", id)
	}
	return nil, agl.Errorf(agl.CodeNotFound, "request_id: %q is unknown; it may belong to an earlier run of the server", id)
}

// errPending says that a call has not ended within a long poll.
var errPending = errors.New("the call is still running")

// wait waits for the end of a call.
func (s *Server) wait(ctx context.Context, f *future, limit time.Duration) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return errClosed()
	case <-time.After(limit):
		return errPending
	}
}

// retrieve answers a request for a result.
func (s *Server) retrieve(w http.ResponseWriter, r *http.Request) {
	body, err := s.read(w, r)
	var ask wire.RetrieveFutureRequest
	if err == nil {
		err = decode(body, &ask)
	}
	var f *future
	if err == nil {
		f, err = s.lookup(ask.RequestID)
	}
	if err == nil {
		err = s.wait(r.Context(), f, s.cfg.LongPoll)
	}
	switch {
	case errors.Is(err, errPending):
		s.reply(w, http.StatusRequestTimeout, wire.TryAgain{Type: wire.TryAgainType, RequestID: f.id, QueueState: "active"})
		return
	case err != nil:
		s.fail(w, err) // which nobody reads if the client has left
		return
	}
	media := wire.JSONType
	asked := s.cfg.Encoding == engines.Protobuf || strings.Contains(r.Header.Get("Accept"), wire.ProtobufType)
	if f.result.protobuf && asked && s.cfg.Encoding != engines.JSON {
		media = wire.ProtobufType
	}
	out, err := f.result.encode(media)
	if err != nil {
		media = wire.JSONType
		out, _ = failed(agl.Errorf(agl.CodeInternal, "the result cannot be encoded: %w", err)).encode(media)
	}
	s.write(w, http.StatusOK, media, out)
}

// pending is the answer to a submit whose client may wait for the result.
type pending struct {
	wire.Submitted

	future *future
}

// preferredWait bounds how long the answer to a submit with [wire.PreferResult] waits.
const preferredWait = time.Second

// withResult is the answer to a submit, with the result if the client prefers that and it comes in time. Where samples
// are short, each request that is saved counts.
func (s *Server) withResult(r *http.Request, out pending) wire.Submitted {
	if r.Header.Get(wire.PreferHeader) != wire.PreferResult || s.cfg.Encoding == engines.Protobuf {
		return out.Submitted
	}
	if s.wait(r.Context(), out.future, min(preferredWait, s.cfg.LongPoll)) == nil {
		if text, err := out.future.result.encode(wire.JSONType); err == nil {
			out.Result = text
		}
	}
	return out.Submitted
}
