package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

type pauseJSON struct {
	Mode PauseMode `json:"mode"`
	// TimeoutSeconds bounds the wait of drain and abort; 0 is as long as the
	// client waits.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`
}

type pauseStateJSON struct {
	Paused  bool      `json:"paused"`
	Mode    PauseMode `json:"mode,omitzero"`
	Held    int       `json:"held"`
	Running int       `json:"running"`
}

type backendJSON struct {
	Model   string `json:"model"`
	BaseURL string `json:"base_url"`
	Version string `json:"version,omitzero"`
	Up      bool   `json:"up"`
	Calls   int64  `json:"calls"`
}

type backendsJSON struct {
	Backends []backendJSON `json:"backends"`
}

func (p *Proxy) adminPause(w http.ResponseWriter, r *http.Request) {
	var body pauseJSON
	if f := readAdmin(w, r, &body); f != nil {
		p.refuse(w, r, f)
		return
	}
	ctx := r.Context()
	if body.TimeoutSeconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(body.TimeoutSeconds*float64(time.Second)))
		defer cancel()
	}
	p.answerPause(w, r, p.Pause(ctx, body.Mode))
}

func (p *Proxy) adminResume(w http.ResponseWriter, r *http.Request) {
	p.answerPause(w, r, p.Resume(r.Context()))
}

// answerPause answers with what the proxy holds, or what went wrong.
func (p *Proxy) answerPause(w http.ResponseWriter, r *http.Request, err error) {
	var engines *EnginesError
	switch {
	case err == nil:
		s := p.PauseState()
		p.answerJSON(w, pauseStateJSON{Paused: s.Mode != "", Mode: s.Mode, Held: s.Held, Running: s.Running})
	case r.Context().Err() != nil:
	case errors.As(err, &engines):
		p.refuse(w, r, fail(http.StatusBadGateway, openai.APIError, "engines_failed", err.Error()))
	case agl.ErrorCode(err) == agl.CodeInvalid:
		p.refuse(w, r, fail(http.StatusBadRequest, openai.InvalidRequestError, "invalid_mode", err.Error()))
	default:
		p.refuse(w, r, fail(http.StatusGatewayTimeout, openai.APIError, "still_running", err.Error()))
	}
}

func (p *Proxy) adminBackends(w http.ResponseWriter) {
	list := backendsJSON{Backends: []backendJSON{}}
	t, now := p.models.Load(), time.Now()
	for _, name := range t.names() {
		for _, b := range t.groups[name].replicas {
			list.Backends = append(list.Backends, backendJSON{
				Model: name, BaseURL: b.base.Redacted(), Version: b.Version, Up: b.state.wait(now) == 0, Calls: b.state.load.Load(),
			})
		}
	}
	p.answerJSON(w, list)
}

// serveMetrics is for those who may use the admin routes: labels name backends.
func (p *Proxy) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if f := p.allowed(r); f != nil {
		p.refuse(w, r, f)
		return
	}
	p.metrics.handler.ServeHTTP(w, r)
}

// controlRollout reads the rollout of the path /admin/rollouts/{id}/control.
func controlRollout(path string) (id string, ok bool) {
	rest, found := strings.CutPrefix(path, "/admin/rollouts/")
	escaped, is := strings.CutSuffix(rest, "/control")
	id, err := url.PathUnescape(escaped)
	return id, found && is && err == nil && id != "" && !strings.Contains(escaped, "/")
}

func (p *Proxy) adminControl(w http.ResponseWriter, r *http.Request, rolloutID string) {
	switch r.Method {
	case http.MethodGet:
		p.answerJSON(w, p.Control(rolloutID))
		return
	case http.MethodDelete:
		p.answerControl(w, r, p.SetControl(rolloutID, nil))
	case http.MethodPut:
		var control Control
		if f := readAdmin(w, r, &control); f != nil {
			p.refuse(w, r, f)
			return
		}
		p.answerControl(w, r, p.SetControl(rolloutID, &control))
	default:
		p.unknownAdmin(w, r)
	}
}

func (p *Proxy) answerControl(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case err == nil:
		p.answer(w, http.StatusOK, []byte("{}"))
	case agl.ErrorCode(err) == agl.CodeExhausted:
		p.refuse(w, r, fail(http.StatusInsufficientStorage, openai.OverloadedError, "too_many_controls", err.Error()))
	default:
		p.refuse(w, r, fail(http.StatusBadRequest, openai.InvalidRequestError, "invalid_control", err.Error()))
	}
}

// Pause is [Proxy.Pause].
func (c *Client) Pause(ctx context.Context, mode PauseMode) error {
	return c.send(ctx, http.MethodPost, "/admin/pause", pauseJSON{Mode: mode})
}

// Resume is [Proxy.Resume].
func (c *Client) Resume(ctx context.Context) error {
	return c.send(ctx, http.MethodPost, "/admin/resume", struct{}{})
}

// SetControl is [Proxy.SetControl].
func (c *Client) SetControl(ctx context.Context, rolloutID string, control *Control) error {
	path := "/admin/rollouts/" + url.PathEscape(rolloutID) + "/control"
	if control == nil {
		return c.send(ctx, http.MethodDelete, path, struct{}{})
	}
	return c.send(ctx, http.MethodPut, path, control)
}
