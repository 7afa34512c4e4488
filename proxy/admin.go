package proxy

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// modelJSON is the wire form of a [Model].
type modelJSON struct {
	Name         string `json:"name"`
	BaseURL      string `json:"base_url"`
	BackendModel string `json:"backend_model,omitzero"`
	APIKey       string `json:"api_key,omitzero"`
	Version      string `json:"version,omitzero"`
	TextOnly     bool   `json:"text_only,omitzero"`
	API          API    `json:"api,omitzero"`
	APIVersion   string `json:"api_version,omitzero"`
	ChatOnly     bool   `json:"chat_only,omitzero"`
	Replay       bool   `json:"replay,omitzero"`
	CacheSalt    bool   `json:"cache_salt,omitzero"`
	Limits       Limits `json:"limits,omitzero"`
	HealthURL    string `json:"health_url,omitzero"`
	PauseURL     string `json:"pause_url,omitzero"`
	ResumeURL    string `json:"resume_url,omitzero"`
}

type modelsJSON struct {
	Models []modelJSON `json:"models"`
}

type flushJSON struct {
	RolloutIDs []string `json:"rollout_ids"`
}

func toWire(models []Model) modelsJSON {
	list := make([]modelJSON, len(models))
	for i, m := range models {
		list[i] = modelJSON(m)
	}
	return modelsJSON{Models: list}
}

// maxAdminBytes bounds the body of an admin request.
const maxAdminBytes = 16 << 20

// allowed checks who may use the admin routes.
func (p *Proxy) allowed(r *http.Request) *failure {
	if p.cfg.Token == "" {
		if addr, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && addr.Addr().Unmap().IsLoopback() {
			return nil
		}
		return fail(http.StatusForbidden, openai.AuthenticationError, "loopback_only",
			"without a token the admin routes answer to loopback addresses only; start the proxy with a token")
	}
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(given), []byte(p.cfg.Token)) == 1 {
		return nil
	}
	return fail(http.StatusUnauthorized, openai.AuthenticationError, "invalid_token",
		"Authorization: missing or wrong, must be Bearer with the proxy's token")
}

func (p *Proxy) serveAdmin(w http.ResponseWriter, r *http.Request, path string) {
	if f := p.allowed(r); f != nil {
		p.refuse(w, r, f)
		return
	}
	if rolloutID, ok := controlRollout(path); ok {
		p.adminControl(w, r, rolloutID)
		return
	}
	switch r.Method + " " + path {
	case "POST /admin/attempts/flush", "POST /admin/attempts/cancel", "POST /admin/attempts/key":
		p.adminAttempt(w, r, path)
	case "POST /admin/flush":
		p.adminFlush(w, r)
	case "GET /admin/models":
		p.adminModels(w)
	case "PUT /admin/models":
		p.adminSetModels(w, r)
	case "GET /admin/backends":
		p.adminBackends(w)
	case "GET /admin/pause":
		p.answerPause(w, r, nil)
	case "POST /admin/pause":
		p.adminPause(w, r)
	case "POST /admin/resume":
		p.adminResume(w, r)
	default:
		p.unknownAdmin(w, r)
	}
}

func (p *Proxy) unknownAdmin(w http.ResponseWriter, r *http.Request) {
	p.refuse(w, r, fail(http.StatusNotFound, openai.InvalidRequestError, "unknown_url",
		"unknown admin request "+r.Method+" "+r.URL.Path+"; there are POST /admin/flush, POST /admin/attempts/flush, cancel and key, GET and PUT /admin/models, GET /admin/backends, "+
			"GET and POST /admin/pause, POST /admin/resume, and GET, PUT and DELETE /admin/rollouts/{id}/control"))
}

// readAdmin decodes an admin request's body.
func readAdmin(w http.ResponseWriter, r *http.Request, v any) *failure {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAdminBytes))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fail(http.StatusRequestTimeout, openai.InvalidRequestError, "request_timeout", "the body did not arrive in time")
	}
	if err == nil {
		err = json.Unmarshal(body, v, json.RejectUnknownMembers(true))
	}
	if err != nil {
		return fail(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", "body: "+err.Error())
	}
	return nil
}

func (p *Proxy) adminFlush(w http.ResponseWriter, r *http.Request) {
	var body flushJSON
	if f := readAdmin(w, r, &body); f != nil {
		p.refuse(w, r, f)
		return
	}
	p.answerFlush(w, r, scope{rolloutIDs: body.RolloutIDs})
}

func (p *Proxy) answerFlush(w http.ResponseWriter, r *http.Request, s scope) {
	err := p.recorder.flush(r.Context(), s)
	switch {
	case err == nil:
		p.answer(w, http.StatusOK, []byte("{}"))
	case r.Context().Err() != nil:
	case errors.Is(err, errLeftOnDisk):
		p.refuse(w, r, fail(http.StatusServiceUnavailable, openai.OverloadedError, "shutting_down", err.Error()))
	default:
		p.refuse(w, r, fail(http.StatusInternalServerError, openai.APIError, "records_lost", err.Error()))
	}
}

func (p *Proxy) adminModels(w http.ResponseWriter) {
	list := toWire(p.Models())
	for i := range list.Models {
		m := &list.Models[i]
		if u, err := url.Parse(m.BaseURL); err == nil {
			m.BaseURL = u.Redacted()
		}
		if m.APIKey != "" && !strings.HasPrefix(m.APIKey, "env:") {
			m.APIKey = "redacted"
		}
	}
	p.answerJSON(w, list)
}

func (p *Proxy) adminSetModels(w http.ResponseWriter, r *http.Request) {
	var body modelsJSON
	f := readAdmin(w, r, &body)
	if f == nil {
		models := make([]Model, len(body.Models))
		for i, m := range body.Models {
			models[i] = Model(m)
		}
		if err := p.SetModels(models); err != nil {
			f = fail(http.StatusBadRequest, openai.InvalidRequestError, "invalid_models", err.Error())
		}
	}
	if f != nil {
		p.refuse(w, r, f)
		return
	}
	p.answer(w, http.StatusOK, []byte("{}"))
}

func (p *Proxy) answerJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		p.answer(w, http.StatusInternalServerError, openai.Error{Message: err.Error(), Type: openai.APIError}.AppendJSON(nil))
		return
	}
	p.answer(w, http.StatusOK, body)
}

type listedModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// serveModels answers GET /models and GET /models/{name}.
func (p *Proxy) serveModels(w http.ResponseWriter, path string) {
	list := struct {
		Object string        `json:"object"`
		Data   []listedModel `json:"data"`
	}{Object: "list", Data: []listedModel{}}
	name, one := strings.CutPrefix(path, "/models/")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	for _, id := range p.models.Load().names() {
		m := listedModel{ID: id, Object: "model", OwnedBy: "agl"}
		if one && id == name {
			p.answerJSON(w, m)
			return
		}
		list.Data = append(list.Data, m)
	}
	if !one {
		p.answerJSON(w, list)
		return
	}
	p.answer(w, http.StatusNotFound, openai.Error{
		Message: "the model " + name + " does not exist", Type: openai.InvalidRequestError, Param: "model", Code: "model_not_found",
	}.AppendJSON(nil))
}

// Client uses the admin routes of a proxy in another process.
type Client struct {
	BaseURL string // of the proxy, without /v1
	Token   string
	HTTP    *http.Client // nil is http.DefaultClient
}

// Flush is [Proxy.Flush].
func (c *Client) Flush(ctx context.Context, rolloutIDs []string) error {
	if rolloutIDs == nil {
		rolloutIDs = []string{}
	}
	return c.send(ctx, http.MethodPost, "/admin/flush", flushJSON{RolloutIDs: rolloutIDs})
}

// FlushAttempt is [Proxy.FlushAttempt].
func (c *Client) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return c.send(ctx, http.MethodPost, "/admin/attempts/flush", attemptJSON{RolloutID: rolloutID, AttemptID: attemptID})
}

// CancelAttempt is [Proxy.CancelAttempt].
func (c *Client) CancelAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return c.send(ctx, http.MethodPost, "/admin/attempts/cancel", attemptJSON{RolloutID: rolloutID, AttemptID: attemptID})
}

// SetModels is [Proxy.SetModels].
func (c *Client) SetModels(ctx context.Context, models []Model) error {
	return c.send(ctx, http.MethodPut, "/admin/models", toWire(models))
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
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return agl.Errorf(agl.CodeUnavailable, "proxy: %w", err)
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, maxAdminBytes))
	if err != nil {
		return agl.Errorf(agl.CodeUnavailable, "proxy: %w", err)
	}
	if res.StatusCode < 300 {
		return nil
	}
	message := strings.TrimSpace(string(reply))
	openai.Members(reply, func(name, value []byte) {
		if string(name) == "error" {
			message = errorMessage(jsontext.Value(value))
		}
	})
	return agl.Errorf(statusCode(res.StatusCode), "proxy: %s %s: %s", method, path, message)
}

func statusCode(status int) agl.Code {
	switch status {
	case http.StatusBadRequest:
		return agl.CodeInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return agl.CodeUnauthorized
	case http.StatusNotFound:
		return agl.CodeNotFound
	case http.StatusServiceUnavailable:
		return agl.CodeUnavailable
	default:
		return agl.CodeInternal
	}
}
