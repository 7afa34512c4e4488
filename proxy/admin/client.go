package admin

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/upstream"
)

// Client uses the admin routes of a proxy in another process. Its methods are those
// of the proxy.
type Client struct {
	BaseURL string // of the proxy, without /v1
	Token   string
	HTTP    *http.Client // nil is http.DefaultClient
}

// Flush waits until the records of rollouts are stored; with no ids, all records.
func (c *Client) Flush(ctx context.Context, rolloutIDs []string) error {
	if rolloutIDs == nil {
		rolloutIDs = []string{}
	}
	return c.send(ctx, http.MethodPost, "/admin/flush", flushJSON{rolloutIDs})
}

// FlushAttempt waits until the records of one attempt are stored.
func (c *Client) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return c.send(ctx, http.MethodPost, "/admin/attempts/flush", attemptJSON{RolloutID: rolloutID, AttemptID: attemptID})
}

// CancelAttempt ends the calls of an attempt and refuses further ones.
func (c *Client) CancelAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return c.send(ctx, http.MethodPost, "/admin/attempts/cancel", attemptJSON{RolloutID: rolloutID, AttemptID: attemptID})
}

// SetModels replaces the list of models.
func (c *Client) SetModels(ctx context.Context, models []upstream.Model) error {
	if models == nil {
		models = []upstream.Model{}
	}
	return c.send(ctx, http.MethodPut, "/admin/models", modelsJSON{models})
}

// Pause keeps calls from the backends until Resume.
func (c *Client) Pause(ctx context.Context, mode upstream.PauseMode) error {
	return c.send(ctx, http.MethodPost, "/admin/pause", pauseJSON{Mode: mode})
}

// Resume lets calls pass again.
func (c *Client) Resume(ctx context.Context) error {
	return c.send(ctx, http.MethodPost, "/admin/resume", struct{}{})
}

// SetControl gives a rollout a control of its own; nil removes it.
func (c *Client) SetControl(ctx context.Context, rolloutID string, control *quota.Control) error {
	path := "/admin/rollouts/" + url.PathEscape(rolloutID) + "/control"
	if control == nil {
		return c.send(ctx, http.MethodDelete, path, struct{}{})
	}
	return c.send(ctx, http.MethodPut, path, control)
}

func (c *Client) send(ctx context.Context, method, path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.BaseURL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "proxy: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := httpserver.ByMethod(cmp.Or(c.HTTP, http.DefaultClient)).Do(req)
	if err != nil {
		return agl.Errorf(agl.CodeUnavailable, "proxy: %w", err)
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, maxBytes))
	if err != nil {
		return agl.Errorf(agl.CodeUnavailable, "proxy: %w", err)
	}
	if res.StatusCode < 300 {
		return nil
	}
	if redirected := httpserver.Redirected(req, res, "the proxy"); redirected != "" {
		return agl.Errorf(agl.CodeInvalid, "proxy: %s %s: %s", method, path, redirected)
	}
	message := strings.TrimSpace(string(reply))
	if fault, ok := rawjson.Get(reply, "error"); ok {
		message = openai.ErrorMessage(fault)
	}
	return agl.Errorf(codeOf(res.StatusCode), "proxy: %s %s: %s", method, path, message)
}

func codeOf(status int) agl.Code {
	switch status {
	case http.StatusBadRequest:
		return agl.CodeInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return agl.CodeUnauthorized
	case http.StatusNotFound:
		return agl.CodeNotFound
	case http.StatusConflict:
		return agl.CodeConflict
	case http.StatusGone:
		return agl.CodeIllegalState
	case http.StatusServiceUnavailable:
		return agl.CodeUnavailable
	default:
		return agl.CodeInternal
	}
}
