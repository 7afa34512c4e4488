package client

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// CreateKey creates a key. It is not retried: a key whose answer is lost is known to nobody, and can be revoked.
func (c *Client) CreateKey(ctx context.Context, p access.NewKey) (access.CreatedKey, error) {
	body := wire.NewKey{Name: p.Name, Scopes: p.Scopes.Names(), ExpireSeconds: p.Expire.Seconds(), RolloutID: p.Attempt.V.RolloutID, AttemptID: p.Attempt.V.AttemptID, Rules: p.Rules, Limits: p.Limits}
	return call[access.CreatedKey](ctx, c, operation{name: "CreateKey", method: http.MethodPost, path: wire.Keys, body: body.AppendJSON(nil), unsent: true})
}

// ListKeys returns all keys, the newest first.
func (c *Client) ListKeys(ctx context.Context) ([]access.Key, error) {
	found, err := call[wire.KeysAnswer](ctx, c, operation{name: "ListKeys", method: http.MethodGet, path: wire.Keys})
	return found.Items, err
}

// ProjectBudget returns the budget that all callers of the store's project share, with its use; zero if they have
// none.
func (c *Client) ProjectBudget(ctx context.Context) (access.Budget, error) {
	found, err := call[wire.KeysAnswer](ctx, c, operation{name: "ProjectBudget", method: http.MethodGet, path: wire.Keys})
	return found.Project, err
}

// RevokeKey revokes a key. Within a second, every server refuses it.
func (c *Client) RevokeKey(ctx context.Context, id string) (access.Key, error) {
	return call[access.Key](ctx, c, operation{name: "RevokeKey", method: http.MethodDelete, path: wire.Key(wire.Segment(id))})
}

// RevokeAttempt revokes the keys of an attempt that were derived from a secret: those that a proxy makes, and span
// tokens. Within a second, every server refuses them. An empty attempt id means every attempt of the rollout.
func (c *Client) RevokeAttempt(ctx context.Context, of agl.Claim) (access.RevokedAttempt, error) {
	op := operation{name: "RevokeAttempt", path: wire.RevokedAttempts}
	return send[access.RevokedAttempt](ctx, c, op, &wire.RevokeAttempt{RolloutID: of.RolloutID, AttemptID: of.AttemptID})
}

// RevokedAttempts returns the attempts whose keys are revoked.
func (c *Client) RevokedAttempts(ctx context.Context) ([]access.RevokedAttempt, error) {
	found, err := call[wire.RevokedAttemptsAnswer](ctx, c, operation{name: "RevokedAttempts", method: http.MethodGet, path: wire.RevokedAttempts, once: true})
	return found.Items, err
}

// Revocations returns the server's revoked attempts, which it reads at most every access.AskTTL. A server that keeps
// no keys has revoked none.
func (c *Client) Revocations() *access.Revocations {
	return access.NewRevocations(c.RevokedAttempts, access.AskTTL)
}

// WhoAmI returns whose key the client has.
func (c *Client) WhoAmI(ctx context.Context) (access.Caller, error) {
	found, err := call[access.Identity](ctx, c, operation{name: "WhoAmI", method: http.MethodGet, path: wire.WhoAmI})
	if err != nil {
		return access.Caller{}, err
	}
	return found.Caller()
}

// Charge implements access.Charger. It asks once: the next charge makes up for a lost answer.
func (c *Client) Charge(ctx context.Context, p access.Charge) (access.Charged, error) {
	return send[access.Charged](ctx, c, operation{name: "Charge", path: wire.KeyUsage(wire.Segment(p.KeyID)), once: true}, &p)
}

// Keys returns a checker that asks the server for the caller that a key belongs to, and caches answers for
// access.AskTTL.
func (c *Client) Keys() *access.Cache {
	return access.NewCache(c.whose, access.AskTTL)
}

// whose asks the server for the caller that a key belongs to. A client with its own key authenticates with that, so
// that wrong keys that others send to this server do not count as this machine's failures.
func (c *Client) whose(ctx context.Context, key string) (access.Caller, error) {
	if c.authorize() == "" {
		caller, err := c.as(key).WhoAmI(ctx)
		if err == nil && caller.KeyID == "" { // a server that requires no keys takes everybody for root
			err = access.UnknownKey(key)
		}
		return caller, err
	}
	body, err := json.Marshal(&wire.GivenKey{Key: key})
	if err != nil { // it is not UTF-8
		return access.Caller{}, access.UnknownKey(key)
	}
	found, err := call[*access.Identity](ctx, c, operation{name: "CheckKey", method: http.MethodPost, path: wire.CheckKey, body: body, once: true})
	switch {
	case agl.ErrorCode(err) == agl.CodeUnauthorized:
		// It is logged here, too: callers get 503, and those who run this server would not know why.
		if c.keyRefused.CompareAndSwap(false, true) {
			c.config.Logger.ErrorContext(ctx, "the store refuses this server's own token, so it cannot say whose keys its callers have; start it again with a valid token", "store", c.base, "error", err)
		}
		return access.Caller{}, agl.Errorf(agl.CodeUnavailable, "the store refuses this server's own key: %w", err)
	case err != nil:
		return access.Caller{}, err
	}
	c.keyRefused.Store(false)
	if found == nil {
		return access.Caller{}, access.UnknownKey(key)
	}
	return found.Caller()
}

// as returns a client with another key. It does not retry and needs no Close.
func (c *Client) as(key string) *Client {
	other := &Client{config: c.config, base: c.base, authorization: "Bearer " + key, http: c.http, begun: c.begun, known: c.known}
	other.buffers.New, other.config.RetryTimeout = c.buffers.New, -1
	return other
}

// projectTimeout bounds how long a server may take to answer with the limits of its project.
const projectTimeout = time.Second

// ProjectLimits returns the limits of the store's project: those that the server reported within access.StoreTTL, or
// its last report if it does not answer. Before its first report they are CodeUnavailable, because the project may
// have a budget. The result is nil if the store is not a project.
func (c *Client) ProjectLimits() *access.ProjectLimits {
	if !isProject(c.config.URL) {
		return nil
	}
	asking := c.as("")
	asking.authorization, asking.tokenFile = c.authorization, c.tokenFile
	var last access.Limits // guarded, as heard, by the lock of ProjectLimits
	heard := false
	return access.NewProjectLimits(func(ctx context.Context) (access.Limits, error) {
		ctx, cancel := context.WithTimeout(ctx, projectTimeout)
		defer cancel()
		who, err := asking.WhoAmI(ctx)
		switch {
		case err == nil:
			last, heard = who.Project, true
		case !heard:
			return access.Limits{}, agl.Errorf(agl.CodeUnavailable, "the limits of the store's project are not known yet: %w", err)
		}
		return last, nil
	})
}
