package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

func rolloutPath(id string) string { return "/rollouts/" + pathSegment(id) }

// pathSegment escapes an id, one of dots only included, which would be taken
// for a way up.
func pathSegment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// EnqueueRollouts implements agl.Store.
func (c *Client) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	body := []byte(`{"rollouts":[`)
	for i := range p.Rollouts {
		if i > 0 {
			body = append(body, ',')
		}
		body = p.Rollouts[i].AppendJSON(body)
	}
	x := exchange{op: "EnqueueRollouts", path: "/queues/rollouts/enqueue", body: append(body, "]}"...), key: newKey(p.IdempotencyKey)}
	l, err := post[list[agl.Rollout, *agl.Rollout]](ctx, c, x)
	return l.items, err
}

// StartRollout implements agl.Store.
func (c *Client) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	body := rawjson.Reopen(p.AppendJSON(nil))
	nullable(&body, "worker_id", p.WorkerID)
	x := exchange{op: "StartRollout", path: "/rollouts", body: body.End(), key: newKey(p.IdempotencyKey)}
	return post[agl.AttemptedRollout](ctx, c, x)
}

// DequeueRollouts implements agl.Store. A long Wait takes several requests. When
// ctx ends meanwhile, or no answer comes within the retry budget, the server is
// asked to give back what it may have claimed.
func (c *Client) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	if p.Limit <= 0 {
		return agl.DequeueResult{}, nil
	}
	deadline := time.Now().Add(p.Wait)
	for poll := 1; ; poll++ {
		left := max(time.Until(deadline), 0)
		wait := min(left, c.config.LongPoll)
		body := newObject()
		body.Int("limit", int64(p.Limit))
		nullable(&body, "worker_id", p.WorkerID)
		if wait > 0 {
			body.Float("wait_seconds", wait.Seconds())
		}
		x := exchange{op: "DequeueRollouts", path: "/queues/rollouts/dequeue", body: body.End(), waits: wait, key: pollKey(p.IdempotencyKey, poll)}
		x.method = http.MethodPost
		var l list[agl.AttemptedRollout, *agl.AttemptedRollout]
		closed, waited := false, false
		asked := time.Now()
		if ctx.Err() != nil {
			return agl.DequeueResult{}, ended(ctx, "DequeueRollouts")
		}
		err := c.do(ctx, x, func(header http.Header, body []byte) error {
			closed = header.Get(headerQueue) == "closed"
			waited = header.Get(headerWait) == waitComplete
			return decodeAnswer(&l)(header, body)
		})
		// A refusal claims nothing; after any other error the claim may stand.
		if err != nil && (ctx.Err() != nil || agl.Transient(err)) {
			c.abandon(ctx, x, p.IdempotencyKey == "")
		}
		if err != nil || closed || len(l.items) > 0 || waited && wait == left || !time.Now().Before(deadline) {
			return agl.DequeueResult{Rollouts: l.items, Closed: closed}, err
		}
		// A server that does not block, or that drains, must not be asked in a spin.
		if early := time.Since(asked) < min(wait, minPoll); early {
			if backoff.Sleep(ctx, min(minPoll, time.Until(deadline))) != nil {
				return agl.DequeueResult{}, ended(ctx, "DequeueRollouts")
			}
		}
	}
}

// abandonTimeout bounds how long a failed dequeue takes to be undone.
const abandonTimeout = 2 * time.Second

// abandon undoes a dequeue that ended before its answer came: nobody can know
// whether it was served. last says that nobody will use its key again.
func (c *Client) abandon(ctx context.Context, x exchange, last bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	x.giveUp, x.waits, x.once = abandonClaim, 0, true
	if last {
		x.giveUp = abandonKey
	}
	if err := c.do(ctx, x, nil); err != nil {
		c.config.Logger.Warn("a claim may be left with its deadline", "operation", x.op, "error", err)
	}
}

// minPoll is the least time between two polls of a server that answers at once.
const minPoll = 200 * time.Millisecond

// pollKey gives each poll of one call a key of its own, which a repeat of the
// call with the same key arrives at again.
func pollKey(given string, poll int) string {
	if given == "" || poll == 1 {
		return newKey(given)
	}
	return fmt.Sprintf("%s-%d", given, poll)
}

// StartAttempt implements agl.Store.
func (c *Client) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error) {
	body := newObject()
	nullable(&body, "worker_id", p.WorkerID)
	x := exchange{op: "StartAttempt", path: rolloutPath(p.RolloutID) + "/attempts", body: body.End(), key: newKey(p.IdempotencyKey)}
	return post[agl.AttemptedRollout](ctx, c, x)
}

// UpdateRollout implements agl.Store.
func (c *Client) UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (agl.Rollout, error) {
	body := newObject()
	given(&body, "input", p.Input)
	if p.Mode != nil {
		body.NullString("mode", string(*p.Mode), *p.Mode != agl.ModeNone)
	}
	if p.ResourcesID != nil {
		body.NullString("resources_id", p.ResourcesID.V, p.ResourcesID.Valid)
	}
	if p.Status != nil {
		body.String("status", string(*p.Status))
	}
	if p.Config != nil {
		body.Value("config", *p.Config)
	}
	given(&body, "metadata", p.Metadata)
	// Queued again by a repeat, a rollout that somebody has claimed meanwhile
	// would be run twice.
	queues := p.Status != nil && p.Status.Queued()
	return post[agl.Rollout](ctx, c, exchange{op: "UpdateRollout", path: rolloutPath(p.RolloutID), body: body.End(), unsent: queues})
}

// UpdateAttempt implements agl.Store.
func (c *Client) UpdateAttempt(ctx context.Context, p agl.UpdateAttemptParams) (agl.Attempt, error) {
	body := newObject()
	if p.Status != nil {
		body.String("status", string(*p.Status))
	}
	if p.WorkerID != nil {
		body.String("worker_id", *p.WorkerID)
	}
	if p.LastHeartbeatTime != nil {
		body.Float("last_heartbeat_time", float64(*p.LastHeartbeatTime))
	}
	given(&body, "metadata", p.Metadata)
	path := rolloutPath(p.RolloutID) + "/attempts/" + pathSegment(p.AttemptID)
	return post[agl.Attempt](ctx, c, exchange{op: "UpdateAttempt", path: path, body: body.End()})
}

// CancelRollout implements agl.Store.
func (c *Client) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return post[agl.Rollout](ctx, c, exchange{op: "CancelRollout", path: rolloutPath(p.RolloutID) + "/cancel"})
}

// DeleteRollout implements agl.Store. After a lost answer, a repeat that finds
// no such rollout is a success: the first try has deleted it.
func (c *Client) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) error {
	return c.do(ctx, exchange{op: "DeleteRollout", method: http.MethodDelete, path: rolloutPath(p.RolloutID), gone: true}, nil)
}

// GetRollout implements agl.Store.
func (c *Client) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return get[agl.AttemptedRollout](ctx, c, "GetRollout", rolloutPath(p.RolloutID), fmt.Sprintf("Rollout %s not found", p.RolloutID))
}

// QueryRollouts implements agl.Store.
func (c *Client) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	body := newObject()
	texts(&body, "status_in", p.StatusIn)
	texts(&body, "rollout_id_in", p.RolloutIDIn)
	body.NonEmpty("rollout_id_contains", p.RolloutIDContains)
	body.NonEmpty("filter_logic", string(p.Logic))
	paging(&body, p.Paging)
	return search[agl.AttemptedRollout](ctx, c, "QueryRollouts", "/rollouts/search", body.End())
}

// QueryAttempts implements agl.Store.
func (c *Client) QueryAttempts(ctx context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	body := newObject()
	paging(&body, p.Paging)
	return search[agl.Attempt](ctx, c, "QueryAttempts", rolloutPath(p.RolloutID)+"/attempts/search", body.End())
}

// GetLatestAttempt implements agl.Store.
func (c *Client) GetLatestAttempt(ctx context.Context, p agl.GetLatestAttemptParams) (agl.Attempt, error) {
	return get[agl.Attempt](ctx, c, "GetLatestAttempt", rolloutPath(p.RolloutID)+"/attempts/latest", fmt.Sprintf("No attempts found for rollout %s", p.RolloutID))
}

// WaitForRollouts implements agl.Store. A long wait takes several requests.
func (c *Client) WaitForRollouts(ctx context.Context, p agl.WaitForRolloutsParams) ([]agl.Rollout, error) {
	deadline := time.Now().Add(p.Timeout.V)
	for {
		wait := c.config.LongPoll
		if p.Timeout.Valid {
			wait = min(max(time.Until(deadline), 0), wait)
		}
		body := newObject()
		body.Key("rollout_ids")
		ids := p.RolloutIDs
		body = rawjson.AppendArray(body, ids, rawjson.AppendString[string])
		body.Float("timeout", wait.Seconds())
		x := exchange{op: "WaitForRollouts", method: http.MethodPost, path: "/waits/rollouts", body: body.End(), waits: wait}
		var l list[agl.Rollout, *agl.Rollout]
		incomplete := false
		asked := time.Now()
		err := c.do(ctx, x, func(header http.Header, body []byte) error {
			state := header.Get(headerWait)
			incomplete = state == waitIncomplete || state == "" && time.Since(asked) >= wait
			return decodeAnswer(&l)(header, body)
		})
		switch {
		case err != nil, !incomplete, len(l.items) == len(ids), p.Timeout.Valid && !time.Now().Before(deadline):
			return l.items, err
		}
		if early := time.Since(asked) < min(wait, minPoll); early {
			if backoff.Sleep(ctx, minPoll) != nil {
				return nil, ended(ctx, "WaitForRollouts")
			}
		}
	}
}

// CloseQueue implements agl.Store.
func (c *Client) CloseQueue(ctx context.Context) error {
	return c.do(ctx, exchange{op: "CloseQueue", method: http.MethodPost, path: "/queues/rollouts/close"}, nil)
}

// OpenQueue implements agl.Store.
func (c *Client) OpenQueue(ctx context.Context) error {
	return c.do(ctx, exchange{op: "OpenQueue", method: http.MethodPost, path: "/queues/rollouts/open"}, nil)
}
