package client

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/rest/internal/wire"
)

// EnqueueRollouts implements agl.Store.
func (c *Client) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return post[[]agl.Rollout](ctx, c, "EnqueueRollouts", wire.Enqueue, keyOr(p.IdempotencyKey), wire.EnqueueRollouts(&p))
}

// DequeueRollouts implements agl.Store. A long Wait takes several requests. If ctx ends, or no answer arrives within
// the retry budget, the server is asked to return what it may have claimed; if it is away, at the next dequeue that it answers.
func (c *Client) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	if p.Limit <= 0 {
		return agl.DequeueResult{}, nil
	}
	const name = "DequeueRollouts"
	deadline := time.Now().Add(p.Wait)
	key := keyOr(p.IdempotencyKey) // for all polls: one that claims nothing does not use it up
	for {
		if ctx.Err() != nil {
			return agl.DequeueResult{}, ended(ctx, name)
		}
		left := max(time.Until(deadline), 0)
		p.Wait = min(left, c.config.LongPoll)
		op := operation{
			name: name, method: http.MethodPost, path: wire.Dequeue, body: wire.DequeueRollouts(&p).AppendJSON(nil),
			waits: p.Wait, key: key,
		}
		var result agl.DequeueResult
		complete := false
		asked := time.Now()
		err := c.do(ctx, op, func(header http.Header, body []byte) error {
			result.Closed = header.Get(wire.Queue) == wire.QueueClosed
			complete = header.Get(wire.Wait) == wire.WaitComplete
			return decodeTo(&result.Rollouts)(header, body)
		})
		if err != nil {
			// A refusal claims nothing. After any other error there may be a claim.
			if ctx.Err() != nil || agl.Transient(err) {
				c.giveUp(ctx, key, p.IdempotencyKey == "")
			}
			return agl.DequeueResult{}, err
		}
		c.returnLate(ctx)
		// If the key was revoked, the server ends a wait early and says that it is complete. Asking again would not
		// help.
		over := complete && (p.Wait == left || time.Since(asked) < p.Wait*9/10)
		if result.Closed || len(result.Rollouts) > 0 || over || !time.Now().Before(deadline) {
			return result, nil
		}
		if c.pace(ctx, asked, p.Wait, deadline) != nil {
			return agl.DequeueResult{}, ended(ctx, name)
		}
	}
}

// minPoll is the minimum time between two polls of a server that does not block.
const minPoll = 200 * time.Millisecond

// pace keeps a client from polling in a tight loop when a server does not block, or drains.
func (c *Client) pace(ctx context.Context, asked time.Time, wait time.Duration, deadline time.Time) error {
	if time.Since(asked) >= min(wait, minPoll) {
		return nil
	}
	return backoff.Sleep(ctx, min(minPoll, time.Until(deadline)))
}

// giveUpTimeout bounds how long a failed dequeue takes to return its claims.
const giveUpTimeout = 2 * time.Second

// giveUp returns the claims of a dequeue whose answer was lost. If last is set, the key is not used again and is
// revoked: the dequeue then claims nothing even if it reaches the server later.
func (c *Client) giveUp(ctx context.Context, key string, last bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	err := c.returnClaims(ctx, agl.ReturnClaimsParams{IdempotencyKey: key, RevokeKey: last}, true)
	if err == nil {
		return
	}
	c.config.Logger.Warn("a claim whose answer was lost waits for the next dequeue that the store answers, or for its deadline", "error", err)
	c.unreturned.mu.Lock()
	defer c.unreturned.mu.Unlock()
	if last && len(c.unreturned.keys) < maxUnreturned { // others are the caller's to use again
		c.unreturned.keys = append(c.unreturned.keys, key)
	}
}

// maxUnreturned bounds the keys that wait to be returned. The claims of an outage are those of the requests under way at its beginning.
const maxUnreturned = 256

// unreturned holds the keys of failed dequeues whose claims could not be returned, because the store was away.
type unreturned struct {
	mu   sync.Mutex
	keys []string
}

// returnLate returns the claims of earlier dequeues, now that the store answers.
func (c *Client) returnLate(ctx context.Context) {
	c.unreturned.mu.Lock()
	keys := c.unreturned.keys
	c.unreturned.keys = nil
	c.unreturned.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	for i, key := range keys {
		if err := c.returnClaims(ctx, agl.ReturnClaimsParams{IdempotencyKey: key, RevokeKey: true}, true); agl.Transient(err) || agl.IsContextError(err) {
			c.unreturned.mu.Lock()
			c.unreturned.keys = append(keys[i:], c.unreturned.keys...)
			c.unreturned.mu.Unlock()
			return
		}
	}
}

// ReturnClaims implements agl.Store.
func (c *Client) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) error {
	return c.returnClaims(ctx, p, false)
}

func (c *Client) returnClaims(ctx context.Context, p agl.ReturnClaimsParams, once bool) error {
	return c.do(ctx, operation{name: "ReturnClaims", method: http.MethodPost, path: wire.Return, body: wire.ReturnClaims(&p).AppendJSON(nil), once: once}, nil)
}

// WaitForRollouts implements agl.Store. A long wait takes several requests.
func (c *Client) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	const name = "WaitForRollouts"
	deadline := time.Now().Add(p.Timeout.V)
	for {
		wait := c.config.LongPoll
		if p.Timeout.Valid {
			wait = min(max(time.Until(deadline), 0), wait)
		}
		request := agl.WaitForRolloutsParams{RolloutIDs: p.RolloutIDs, Timeout: agl.Some(wait)}
		op := operation{name: name, method: http.MethodPost, path: wire.Waits, body: wire.WaitForRollouts(&request).AppendJSON(nil), waits: wait}
		var finished []agl.Rollout
		incomplete := false
		asked := time.Now()
		err := c.do(ctx, op, func(header http.Header, body []byte) error {
			state := header.Get(wire.Wait)
			incomplete = state == wire.WaitIncomplete || state == "" && time.Since(asked) >= wait
			return decodeTo(&finished)(header, body)
		})
		switch {
		case err != nil, !incomplete, len(finished) == len(p.RolloutIDs), p.Timeout.Valid && !time.Now().Before(deadline):
			return finished, err
		}
		if c.pace(ctx, asked, wait, time.Now().Add(minPoll)) != nil {
			return nil, ended(ctx, name)
		}
	}
}

// CloseQueue implements agl.Store.
func (c *Client) CloseQueue(ctx context.Context) error {
	return c.do(ctx, operation{name: "CloseQueue", method: http.MethodPost, path: wire.Close}, nil)
}

// OpenQueue implements agl.Store.
func (c *Client) OpenQueue(ctx context.Context) error {
	return c.do(ctx, operation{name: "OpenQueue", method: http.MethodPost, path: wire.Open}, nil)
}
