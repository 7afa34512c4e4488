// Package admin serves the routes for operating a proxy, under /admin and /metrics, and
// has the [Client] for them.
//
//	POST /admin/flush                          waits until records are stored
//	POST /admin/attempts/{flush,cancel,key}    for one attempt
//	GET, PUT /admin/models                     the list of models
//	GET /admin/backends                        the state of each backend
//	GET, POST /admin/pause, POST /admin/resume
//	GET, PUT, DELETE /admin/rollouts/{id}/control
//	GET /metrics                               for Prometheus
//
// The package knows the wire forms of these requests. It must not know how calls are
// served: it calls a [Proxy].
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/proxy/capture"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/upstream"
)

// Proxy is what the routes act on. A *proxy.Proxy is one.
type Proxy interface {
	Models() []upstream.Model
	SetModelsOf(models []upstream.Model) error
	Backends() []upstream.Backend
	Pause(ctx context.Context, mode upstream.PauseMode) error
	Resume(ctx context.Context) error
	PauseState() upstream.PauseState
	Control(rolloutID string) quota.Control
	SetControl(rolloutID string, control *quota.Control) error
	Flush(ctx context.Context, rolloutIDs []string) error
	FlushAttempt(ctx context.Context, rolloutID, attemptID string) error
	CancelAttempt(rolloutID, attemptID string) (running int)
	AttemptKey(rolloutID, attemptID string, ttl time.Duration) (string, error)
}

// Handler serves the routes.
type Handler struct {
	Proxy   Proxy
	Access  access.Checker // knows keys; nil knows none
	Failed  *access.Throttle
	Audit   access.Teller // of what callers do with the scope train
	Token   string        // required bearer token; if empty, only loopback addresses are admitted
	Metrics http.Handler
	Logger  *slog.Logger
}

// The bodies of requests and answers.
type (
	modelsJSON struct {
		Models []upstream.Model `json:"models"`
	}
	flushJSON struct {
		RolloutIDs []string `json:"rollout_ids"`
	}
	attemptJSON struct {
		RolloutID string  `json:"rollout_id"`
		AttemptID string  `json:"attempt_id"`
		Seconds   float64 `json:"seconds,omitzero"` // how long a key is valid
	}
	runningJSON struct {
		Running int `json:"running"`
	}
	keyJSON struct {
		Key string `json:"key"`
	}
	pauseJSON struct {
		Mode upstream.PauseMode `json:"mode"`
		// TimeoutSeconds bounds the wait of drain and abort; 0 is as long as the client
		// waits.
		TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`
	}
	pauseStateJSON struct {
		Paused  bool               `json:"paused"`
		Mode    upstream.PauseMode `json:"mode,omitzero"`
		Held    int                `json:"held"`
		Running int                `json:"running"`
	}
	backendJSON struct {
		Model   string `json:"model"`
		BaseURL string `json:"base_url"`
		Version string `json:"version,omitzero"`
		Up      bool   `json:"up"`
		Calls   int64  `json:"calls"`
	}
	backendsJSON struct {
		Backends []backendJSON `json:"backends"`
	}
)

// Serve answers a request under a path, which begins with /admin/ or is /metrics.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, path string) {
	to, found := table[key(r.Method, path)]
	given, err := h.allowed(r, to.scope, found)
	if err != nil {
		h.answer(w, r, nil, err)
		return
	}
	if !found {
		h.answer(w, r, nil, unknown(r))
		return
	}
	if path == "/metrics" {
		h.Metrics.ServeHTTP(w, r)
		return
	}
	answer, err := to.act(h, w, r, path)
	if err == nil && r.Method != http.MethodGet && to.scope&^(access.Train|access.Admin) == 0 {
		access.Tell(h.Audit, h.Logger, r, given, http.StatusOK)
	}
	h.answer(w, r, answer, err)
}

// endpoint executes a request, and says who may make it. Without a scope nobody may. Its
// errors are of the type *openai.Error.
type endpoint struct {
	scope access.Scope
	act   func(h *Handler, w http.ResponseWriter, r *http.Request, path string) (any, error)
}

const (
	runs         = access.Runner | access.Train
	controlRoute = "/admin/rollouts/{id}/control"
)

// table has all routes, by method and path.
var table = map[string]endpoint{
	"GET /metrics":                {access.Readers, nil},
	"POST /admin/flush":           {runs, (*Handler).flush},
	"POST /admin/attempts/flush":  {runs, (*Handler).attempt},
	"POST /admin/attempts/cancel": {runs, (*Handler).attempt},
	"POST /admin/attempts/key":    {runs, (*Handler).attempt},
	"GET /admin/models":           {access.Readers, (*Handler).models},
	"PUT /admin/models":           {access.Train, (*Handler).setModels},
	"GET /admin/backends":         {access.Readers, (*Handler).backends},
	"GET /admin/pause":            {access.Readers, (*Handler).pauseState},
	"POST /admin/pause":           {access.Train, (*Handler).pause},
	"POST /admin/resume":          {access.Train, (*Handler).resume},
	"GET " + controlRoute:         {access.Readers, (*Handler).control},
	"PUT " + controlRoute:         {access.Train, (*Handler).control},
	"DELETE " + controlRoute:      {access.Train, (*Handler).control},
}

// Routes returns all routes, each as a method and a path.
func Routes() []string { return slices.Sorted(maps.Keys(table)) }

// key is the key of a request in the table.
func key(method, path string) string {
	if _, ok := controlRollout(path); ok {
		path = controlRoute
	}
	return method + " " + path
}

// ServeFlush answers a flush of one attempt under the attempt's own URL.
func (h *Handler) ServeFlush(w http.ResponseWriter, r *http.Request, rolloutID, attemptID string) {
	h.answer(w, r, nil, flushError(h.Proxy.FlushAttempt(r.Context(), rolloutID, attemptID)))
}

// allowed checks whether a request may use a route that declares scopes. It returns the key
// of the caller, or "" for whoever may do everything.
func (h *Handler) allowed(r *http.Request, scope access.Scope, found bool) (key string, err error) {
	if root := access.Root(); found && root.Allow(scope) != nil {
		return "", AccessError(root.Allow(scope))
	}
	given := access.Given(r)
	ofStore := h.Access != nil && access.IsKey(given)
	if !ofStore && h.Token == "" {
		return "", localOnly(r)
	}
	wait := h.Failed.Admit(r.RemoteAddr, given != "", !ofStore, func() bool {
		err = h.check(r, given, ofStore, scope, found)
		return agl.ErrorCode(err) != agl.CodeUnauthorized
	})
	if wait > 0 {
		err = &access.ThrottledError{Wait: wait}
	}
	refused := AccessError(err)
	switch {
	case refused == nil && ofStore:
		return given, nil
	case refused == nil:
		return "", nil
	case !ofStore && refused.Status == http.StatusUnauthorized:
		refused.Code = "invalid_token"
	}
	return "", refused
}

// check checks a key of the store, or else the token.
func (h *Handler) check(r *http.Request, given string, ofStore bool, scope access.Scope, found bool) error {
	if !ofStore {
		if !access.Same(given, h.Token) {
			return agl.Errorf(agl.CodeUnauthorized, "Authorization: missing or wrong, must be Bearer with the proxy's token or a key")
		}
		return nil
	}
	caller, err := h.Access.Check(r.Context(), given)
	if err == nil && found {
		err = caller.Allow(scope)
	}
	return err
}

// localOnly refuses requests of other machines. The host is checked because a page whose name
// was made to point here (DNS rebinding) comes from this machine, too, and the header because
// a reverse proxy on this machine that nobody has told us of does, for others.
func localOnly(r *http.Request) error {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err == nil && addr.Addr().Unmap().IsLoopback() && httpserver.LocalHost(r.Host) && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("Forwarded") == "" {
		return nil
	}
	return openai.NewError(http.StatusForbidden, openai.AuthenticationError, "loopback_only",
		"without a token the admin routes answer to loopback addresses and localhost only; start the proxy with a token")
}

// AccessError is the answer to a request that package access refuses, nil for nil.
func AccessError(err error) *openai.Error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*access.ForbiddenError](err); ok {
		return openai.NewError(http.StatusForbidden, openai.PermissionError, "scope_missing", err.Error())
	}
	if throttled, ok := errors.AsType[*access.ThrottledError](err); ok {
		return openai.NewError(http.StatusTooManyRequests, openai.RateLimitError, "too_many_wrong_keys", err.Error()).After(throttled.Wait)
	}
	if _, ok := errors.AsType[*access.OpenError](err); ok {
		return openai.NewError(http.StatusTooManyRequests, openai.RateLimitError, "too_many_calls", err.Error()).After(time.Second)
	}
	if agl.ErrorCode(err) == agl.CodeUnauthorized {
		return openai.NewError(http.StatusUnauthorized, openai.AuthenticationError, "invalid_api_key", err.Error())
	}
	return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "keys_unavailable", "the store cannot say whose key this is: "+err.Error()).After(time.Second)
}

// answer sends an answer, where nil is an empty object, or the *openai.Error in err.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, answer any, err error) {
	body := []byte("{}")
	if answer != nil && err == nil {
		body, err = json.Marshal(answer)
	}
	if err == nil {
		err = exchange.WriteJSON(w, http.StatusOK, body)
	} else {
		e, ok := errors.AsType[*openai.Error](err)
		if !ok {
			e = openai.NewError(http.StatusInternalServerError, openai.APIError, "", err.Error())
		}
		h.Logger.Debug("request refused", "method", r.Method, "path", r.URL.Path, "status", e.Status, "message", e.Message)
		err = exchange.WriteError(w, e)
	}
	if err != nil {
		h.Logger.Debug("answer not delivered", "error", err)
	}
}

func (h *Handler) flush(w http.ResponseWriter, r *http.Request, _ string) (any, error) {
	var body flushJSON
	if err := read(w, r, &body); err != nil {
		return nil, err
	}
	return nil, flushError(h.Proxy.Flush(r.Context(), body.RolloutIDs))
}

func (h *Handler) models(http.ResponseWriter, *http.Request, string) (any, error) {
	return modelsJSON{redacted(h.Proxy.Models())}, nil
}

func (h *Handler) setModels(w http.ResponseWriter, r *http.Request, _ string) (any, error) {
	var body modelsJSON
	if err := read(w, r, &body); err != nil {
		return nil, err
	}
	return nil, invalid("invalid_models", h.Proxy.SetModelsOf(body.Models))
}

func (h *Handler) backends(http.ResponseWriter, *http.Request, string) (any, error) {
	list := backendsJSON{Backends: []backendJSON{}}
	for _, b := range h.Proxy.Backends() {
		list.Backends = append(list.Backends, backendJSON{b.Model, b.URL, b.Version, b.Up, b.Calls})
	}
	return list, nil
}

func (h *Handler) pauseState(http.ResponseWriter, *http.Request, string) (any, error) {
	return h.paused(nil)
}

func (h *Handler) resume(_ http.ResponseWriter, r *http.Request, _ string) (any, error) {
	return h.paused(h.Proxy.Resume(r.Context()))
}

func unknown(r *http.Request) *openai.Error {
	return openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "unknown_url",
		"unknown admin request "+r.Method+" "+r.URL.Path+"; there are POST /admin/flush, POST /admin/attempts/flush, cancel and key, GET and PUT /admin/models, GET /admin/backends, "+
			"GET and POST /admin/pause, POST /admin/resume, and GET, PUT and DELETE /admin/rollouts/{id}/control")
}

// maxBytes bounds the body of a request and of an answer.
const maxBytes = 16 << 20

// read decodes the body of a request.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := httpserver.ReadBody(w, r, maxBytes)
	if err != nil {
		status, message := httpserver.BodyStatus(err)
		return openai.NewError(status, openai.InvalidRequestError, "unreadable_body", message)
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", "body: "+rawjson.Mistake(err).Error())
	}
	return nil
}

// duration reads a member in seconds. Only 0 becomes 0, which stands for the default.
func duration(name string, seconds float64) (time.Duration, error) {
	const most = 1e9
	if !(seconds >= 0 && seconds <= most) {
		return 0, openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", fmt.Sprintf("%s: got %v, must be from 0 to %v", name, seconds, most))
	}
	return time.Duration(math.Ceil(seconds * float64(time.Second))), nil
}

// invalid answers 400 for an error of the proxy.
func invalid(code string, err error) error {
	if err == nil {
		return nil
	}
	return openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, code, err.Error())
}

func flushError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, capture.ErrLeftOnDisk):
		return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "shutting_down", err.Error())
	case agl.ErrorCode(err) == agl.CodeUnavailable: // the caller or the proxy has not waited
		return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "not_stored", err.Error())
	default: // for good: a status at which clients try again would make runners wait for nothing
		return openai.NewError(http.StatusGone, openai.APIError, "records_lost", err.Error())
	}
}

// redacted hides the secrets of models, which queries may have, too.
func redacted(models []upstream.Model) []upstream.Model {
	for i := range models {
		m := &models[i]
		for _, at := range []*string{&m.BaseURL, &m.HealthURL, &m.PauseURL, &m.ResumeURL} {
			*at = secret.RedactURL(*at)
		}
		if m.APIKey != "" && !strings.HasPrefix(m.APIKey, "env:") {
			m.APIKey = "redacted"
		}
	}
	return models
}

func (h *Handler) attempt(w http.ResponseWriter, r *http.Request, path string) (any, error) {
	var body attemptJSON
	if err := read(w, r, &body); err != nil {
		return nil, err
	}
	if body.RolloutID == "" || body.AttemptID == "" {
		return nil, openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", "rollout_id and attempt_id must both be given")
	}
	switch path {
	case "/admin/attempts/flush":
		return nil, flushError(h.Proxy.FlushAttempt(r.Context(), body.RolloutID, body.AttemptID))
	case "/admin/attempts/cancel":
		return runningJSON{h.Proxy.CancelAttempt(body.RolloutID, body.AttemptID)}, nil
	default:
		ttl, err := duration("seconds", body.Seconds)
		if err != nil {
			return nil, err
		}
		key, err := h.Proxy.AttemptKey(body.RolloutID, body.AttemptID, ttl)
		return keyJSON{key}, invalid("no_keys", err)
	}
}

func (h *Handler) pause(w http.ResponseWriter, r *http.Request, _ string) (any, error) {
	var body pauseJSON
	if err := read(w, r, &body); err != nil {
		return nil, err
	}
	timeout, err := duration("timeout_seconds", body.TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return h.paused(h.Proxy.Pause(ctx, body.Mode))
}

// paused answers with the state of the pause, or with what went wrong.
func (h *Handler) paused(err error) (any, error) {
	if err == nil {
		s := h.Proxy.PauseState()
		return pauseStateJSON{s.Mode != "", s.Mode, s.Held, s.Running}, nil
	}
	if _, engines := errors.AsType[*upstream.EnginesError](err); engines {
		return nil, openai.NewError(http.StatusBadGateway, openai.APIError, "engines_failed", err.Error())
	}
	switch agl.ErrorCode(err) {
	case agl.CodeInvalid:
		return nil, invalid("invalid_mode", err)
	case agl.CodeConflict:
		return nil, openai.NewError(http.StatusConflict, openai.InvalidRequestError, "resumed", err.Error())
	}
	return nil, openai.NewError(http.StatusGatewayTimeout, openai.APIError, "still_running", err.Error())
}

// controlRollout reads the rollout of the path /admin/rollouts/{id}/control.
func controlRollout(path string) (id string, ok bool) {
	rest, found := strings.CutPrefix(path, "/admin/rollouts/")
	escaped, is := strings.CutSuffix(rest, "/control")
	id, err := url.PathUnescape(escaped)
	return id, found && is && err == nil && id != "" && !strings.Contains(escaped, "/")
}

func (h *Handler) control(w http.ResponseWriter, r *http.Request, path string) (any, error) {
	rolloutID, _ := controlRollout(path)
	var control *quota.Control // nil, for DELETE, removes it
	switch r.Method {
	case http.MethodGet:
		return h.Proxy.Control(rolloutID), nil
	case http.MethodDelete:
	case http.MethodPut:
		control = &quota.Control{}
		if err := read(w, r, control); err != nil {
			return nil, err
		}
	}
	err := h.Proxy.SetControl(rolloutID, control)
	if agl.ErrorCode(err) == agl.CodeExhausted {
		return nil, openai.NewError(http.StatusInsufficientStorage, openai.OverloadedError, "too_many_controls", err.Error())
	}
	return nil, invalid("invalid_control", err)
}
