package rest

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// maxWaitSeconds bounds wait_seconds of a dequeue.
const maxWaitSeconds = 60

// The headers that are ours.
const (
	headerQueue       = "Agl-Queue"         // "closed" on a dequeue: there will be no more work
	headerState       = "Agl-Attempt-State" // "cancelled" on a write to such an attempt
	headerWait        = "Agl-Wait"          // on a request that may block: whether it was let wait as long as it asked to
	headerAbandon     = "Agl-Abandon"       // on the repeat of a dequeue: give back what it claimed; see abandonClaim
	headerIdempotency = "Idempotency-Key"
)

// The values of Agl-Abandon.
const (
	abandonClaim = "claim" // a dequeue that comes later with the key claims anew
	abandonKey   = "key"   // it gets nothing
)

// The values of Agl-Wait.
const (
	waitComplete   = "complete"
	waitIncomplete = "incomplete" // ask again
)

type enqueueRequest struct{ rollouts []agl.EnqueueRollout }

func (r *enqueueRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		if string(name) != "rollouts" {
			return dec.SkipValue()
		}
		r.rollouts = nil
		return read(dec).List(func() error {
			var e agl.EnqueueRollout
			err := e.UnmarshalJSONFrom(dec)
			r.rollouts = append(r.rollouts, e)
			return err
		})
	}, "rollouts")
}

func (s *Server) enqueue(c *call) error {
	var req enqueueRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	if len(req.rollouts) == 0 {
		return c.send(http.StatusCreated, append(c.out, "[]"...))
	}
	rollouts, err := s.store.EnqueueRollouts(c.ctx, agl.EnqueueRolloutsParams{Rollouts: req.rollouts, IdempotencyKey: c.idempotencyKey()})
	if err != nil {
		return err
	}
	return sendList(c, http.StatusCreated, rollouts)
}

type dequeueRequest struct {
	limit    int
	workerID agl.Null[string]
	wait     time.Duration
}

func (r *dequeueRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "limit":
			return rawjson.Int(read(dec), &r.limit)
		case "worker_id":
			return r.workerID.UnmarshalJSONFrom(dec)
		case "wait_seconds":
			if dec.PeekKind() == 'n' {
				return dec.SkipValue()
			}
			return readSeconds(dec, &r.wait, maxWaitSeconds)
		default:
			return dec.SkipValue()
		}
	})
}

func (s *Server) dequeue(c *call) error {
	req := dequeueRequest{limit: 1}
	if err := c.decode(&req, false); err != nil {
		return err
	}
	if req.limit <= 0 {
		return c.send(http.StatusOK, append(c.out, "[]"...))
	}
	params := agl.DequeueRolloutsParams{Limit: req.limit, WorkerID: req.workerID, Wait: req.wait, IdempotencyKey: c.idempotencyKey()}
	if how := c.request.Header[headerAbandon]; how != nil {
		return s.abandon(c, params, how[0] == abandonKey)
	}
	var result agl.DequeueResult
	released, err := s.blocking(c, params.Wait > 0, func() (err error) {
		result, err = s.store.DequeueRollouts(c.ctx, params)
		return err
	})
	if err != nil {
		return err
	}
	if s.abandoned.has(params.IdempotencyKey) { // its client left before it came
		s.giveBack(c, result.Rollouts)
		return c.send(http.StatusOK, append(c.out, "[]"...))
	}
	if params.Wait > 0 {
		c.Header()[headerWait] = []string{waitState(released)}
	}
	if result.Closed {
		c.Header()[headerQueue] = []string{"closed"}
	}
	if err := s.sendClaim(c, result.Rollouts); err != nil {
		s.giveBack(c, result.Rollouts)
		return err
	}
	return nil
}

// sendClaim answers a dequeue and makes sure, as far as the connection tells,
// that the answer has left.
func (s *Server) sendClaim(c *call, claimed []agl.AttemptedRollout) error {
	if err := c.request.Context().Err(); err != nil {
		return err
	}
	if len(claimed) == 0 {
		return c.send(http.StatusOK, append(c.out, "[]"...))
	}
	out := rawjson.AppendList(c.out, claimed)
	c.Header()["Content-Length"] = []string{strconv.Itoa(len(out))}
	if err := c.send(http.StatusOK, out); err != nil {
		return err
	}
	// Without the flush, a failing write would show after the handler only.
	if err := http.NewResponseController(c.ResponseWriter).Flush(); err != nil {
		return &writeError{err}
	}
	return nil
}

// abandon gives back what a dequeue claimed whose client does not want it any
// more but could not know whether it had been served. The repeat waits for the
// first request to end and finds its claims; if there are none, it claims and
// gives back at once. With last, the first request gets nothing even if it comes
// after this one, as it may over a connection that the client has given up.
func (s *Server) abandon(c *call, params agl.DequeueRolloutsParams, last bool) error {
	if !s.can.ReturnClaims || params.IdempotencyKey == "" {
		return c.send(http.StatusOK, append(c.out, "[]"...))
	}
	if last {
		s.abandoned.add(params.IdempotencyKey)
	}
	params.Wait = 0
	result, err := s.store.DequeueRollouts(c.ctx, params)
	if err != nil {
		return err
	}
	s.giveBack(c, result.Rollouts)
	return c.send(http.StatusOK, append(c.out, "[]"...))
}

// abandoned are the keys of dequeues that nobody waits for any more. Each is kept
// for a minute at least, longer than a request is on its way.
type abandoned struct {
	mu     sync.Mutex
	since  time.Time // when newer was begun
	newer  map[string]struct{}
	before map[string]struct{}
}

func (a *abandoned) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.since) > time.Minute {
		a.since, a.before, a.newer = now, a.newer, map[string]struct{}{}
	}
	a.newer[key] = struct{}{}
}

func (a *abandoned) has(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, newer := a.newer[key]
	_, before := a.before[key]
	return newer || before
}

// giveBack returns a claim whose answer could not be written, for the next
// runner to take.
func (s *Server) giveBack(c *call, claimed []agl.AttemptedRollout) {
	if len(claimed) == 0 || !s.can.ReturnClaims {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.request.Context()), 10*time.Second)
	defer cancel()
	if err := s.store.ReturnClaims(ctx, agl.ReturnClaimsParams{Claims: agl.ClaimsOf(claimed...), IdempotencyKey: c.idempotencyKey()}); err != nil {
		s.config.Logger.Error("claim not given back", "rollout_id", claimed[0].RolloutID, "error", err)
	}
}

func waitState(cut bool) string {
	if cut {
		return waitIncomplete
	}
	return waitComplete
}

// blocking runs an operation that may wait. When the server drains, the
// operation's context ends, and so does the operation, without error but
// released.
func (s *Server) blocking(c *call, waits bool, op func() error) (released bool, err error) {
	if !waits {
		return false, op()
	}
	ctx, cancel := context.WithCancel(c.request.Context())
	defer cancel()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-s.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	c.ctx = ctx
	err = op()
	cancel()
	<-watching
	c.ctx = c.request.Context()
	if agl.IsContextError(err) && s.drained() && c.ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

func (s *Server) drained() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

func (s *Server) closeQueue(c *call) error { return s.setQueue(c, s.store.CloseQueue, true) }

func (s *Server) openQueue(c *call) error { return s.setQueue(c, s.store.OpenQueue, false) }

func (s *Server) setQueue(c *call, op func(context.Context) error, closed bool) error {
	if err := op(c.ctx); err != nil {
		return err
	}
	if closed {
		return c.send(http.StatusOK, append(c.out, `{"closed":true}`...))
	}
	return c.send(http.StatusOK, append(c.out, `{"closed":false}`...))
}

type waitRequest struct {
	rolloutIDs []string
	timeout    agl.Null[time.Duration]
}

func (r *waitRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "rollout_ids":
			return read(dec).Strings(&r.rolloutIDs)
		case "timeout":
			r.timeout = agl.Null[time.Duration]{}
			if dec.PeekKind() == 'n' {
				return dec.SkipValue()
			}
			r.timeout.Valid = true
			return readSeconds(dec, &r.timeout.V, 0)
		default:
			return dec.SkipValue()
		}
	}, "rollout_ids")
}

func (s *Server) waitForRollouts(c *call) error {
	var req waitRequest
	if err := c.decode(&req, true); err != nil {
		return err
	}
	params := agl.WaitForRolloutsParams{RolloutIDs: req.rolloutIDs, Timeout: req.timeout}
	var rollouts []agl.Rollout
	start := time.Now()
	released, err := s.blocking(c, !params.Timeout.Valid || params.Timeout.V > 0, func() (err error) {
		rollouts, err = s.store.WaitForRollouts(c.ctx, params)
		return err
	})
	if released {
		// The server drains: answer what is there.
		params.Timeout = agl.Some[time.Duration](0)
		rollouts, err = s.store.WaitForRollouts(c.ctx, params)
	}
	if err != nil {
		return err
	}
	timedOut := params.Timeout.Valid && time.Since(start) >= params.Timeout.V
	c.Header()[headerWait] = []string{waitState((released || timedOut) && len(rollouts) < len(req.rolloutIDs))}
	return sendList(c, http.StatusOK, rollouts)
}
