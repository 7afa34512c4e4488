package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/upstream"
)

// maxTries and retries are as in Agent-lightning v1.0: 0.5 s, doubled up to 8 s, multiplied by 0.75 to 1.25.
const maxTries = 6

var retries = backoff.Exponential{First: 625 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.4}

// forward returns the handler of model calls in an API's form. It sends a call to a backend, and records it before
// the agent has the whole reply.
func (g *Gateway) forward(api string) handler {
	return func(w http.ResponseWriter, r *http.Request) error { return g.forwardCall(w, r, api) }
}

func (g *Gateway) forwardCall(w http.ResponseWriter, r *http.Request, api string) error {
	mode, path := r.PathValue("mode"), r.PathValue("path")
	if mode != "train" && mode != "val" {
		return errStatus(http.StatusNotFound, "Unsupported proxy mode: "+mode)
	}
	if !g.serves(api, path) {
		return errStatus(http.StatusNotFound, "Unsupported upstream path: "+path)
	}
	leaveOpen, err := g.open.Enter(callerOf(r).Who(r.RemoteAddr))
	if err != nil {
		return errStatus(http.StatusTooManyRequests, err.Error())
	}
	defer leaveOpen()
	ctx, stop := access.Watch(r.Context(), callerOf(r).gone)
	defer stop()
	x := exchange{start: time.Now(), path: path, attemptID: attemptOf(r)}
	if x.rollout, err = g.find(ctx, r.PathValue("id")); err != nil {
		return err
	}
	if x.rollout.Attempt == nil {
		return errNoAttempt(x.rollout.id())
	}
	body, err := g.callBody(w, r)
	if err != nil {
		return err
	}
	// Count the call before reading the pause: once a pause is stored, the count includes every call that may still
	// reach a backend.
	g.running.Add(1)
	defer g.running.Add(-1)
	settings, err := g.settings.get(r.Context(), settingsAge)
	if err != nil {
		return err
	}
	var ok bool
	if x.backend, ok = settings.backend(g.cfg.Model, x.rollout.id()); !ok {
		return errStatus(http.StatusServiceUnavailable, "No servers available for model '"+g.cfg.Model+"'")
	}
	if settings.Paused {
		return writePaused(w, &settings)
	}
	if asked, _ := rawjson.Get(body, "stream"); asked != nil && !falsy(asked) {
		if !g.cfg.Streams {
			return errStatus(http.StatusBadRequest, "Streaming responses are not supported")
		}
		x.wantsStream = true
	}
	if body, x.translator, err = g.translate(path, body, x.start); err != nil {
		return err
	}
	if x.translator != nil {
		x.path = chatCompletions
	}
	if x.wantsStream {
		x.stream = &stream{w: w, most: g.cfg.MaxBodyBytes, translator: x.translator}
	}
	if body, x.reserved, err = g.reserveCall(r, x.path, body); err != nil {
		return err
	}
	x.askUsage(body)
	x.request = g.rewrite(body, mode, x.stream)
	err = g.answer(ctx, &x)
	x.reserved.settle(g.used(&x, err))
	if err != nil {
		if x.stream != nil && x.stream.begun {
			g.cfg.Logger.Warn("a stream ended early", "rollout", x.rollout.id(), "error", err)
			panic(http.ErrAbortHandler) // the only way to report it
		}
		return err
	}
	if x.stream != nil && x.stream.begun {
		return x.stream.finish()
	}
	return x.write(w)
}

// answer gets the reply to a call and records it. When it returns, the agent has received everything of a stream
// except its end.
func (g *Gateway) answer(ctx context.Context, x *exchange) error {
	if err := g.send(ctx, x); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // a call that has used a model is recorded even if its agent disconnects now
	now, err := g.again(ctx, x.rollout)
	switch {
	case agl.ErrorCode(err) == agl.CodeNotFound, err == nil && now.DeletedAt != 0: // deleted meanwhile
		return errNoRollout(x.rollout.id())
	case err != nil:
		return err
	}
	e := x.event()
	return g.record(ctx, now, e, x.span(e))
}

func writePaused(w http.ResponseWriter, settings *settingsDoc) error {
	w.Header()["Retry-After"] = []string{strconv.FormatInt(settings.RetryAfter, 10)}
	w.Header()["X-Agl-Paused"] = []string{"true"}
	o := rawjson.NewObject(nil)
	o.String("error", "gateway paused")
	o.NullString("reason", settings.Reason.V, settings.Reason.Valid)
	writeJSON(w, http.StatusTooManyRequests, o.End())
	return nil
}

// callBody reads the body of a model call.
func (g *Gateway) callBody(w http.ResponseWriter, r *http.Request) (jsontext.Value, error) {
	raw, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return jsontext.Value("{}"), nil
	}
	body, ok := document(raw)
	switch {
	case !ok:
		return nil, errStatus(http.StatusBadRequest, "Invalid JSON in request body")
	case body.Kind() != '{':
		return nil, errStatus(http.StatusBadRequest, "Request body must be a JSON object")
	}
	return body, nil
}

// askUsage makes a stream report its tokens: for budgets, and to find out whether it has the ids of all. The agent does
// not see the report unless it asked for it, too.
func (x *exchange) askUsage(body jsontext.Value) {
	if x.stream == nil {
		return
	}
	options, _ := rawjson.Get(body, "stream_options")
	asked, _ := rawjson.Get(options, "include_usage")
	x.stream.hide.Usage = string(asked) != "true"
}

// rewrite sets the members of a request that the trainer decides, not the agent.
func (g *Gateway) rewrite(body jsontext.Value, mode string, to *stream) jsontext.Value {
	type member struct {
		name  string
		value []byte
	}
	temperature := g.cfg.TrainTemperature.V
	if mode == "val" {
		temperature = g.cfg.ValTemperature.V
	}
	set := make([]member, 0, 6)
	set = append(set, member{"model", rawjson.AppendString(nil, g.cfg.Model)},
		member{"temperature", rawjson.AppendFloat(nil, temperature)}, member{"return_token_ids", []byte("true")})
	if mode == "train" && !g.cfg.NoLogprobs {
		set = append(set, member{"logprobs", []byte("true")})
	}
	if mode == "train" && g.cfg.RoutedExperts {
		set = append(set, member{"return_routed_experts", []byte("true")})
	}
	if to != nil && to.hide.Usage {
		set = append(set, member{"stream_options", []byte(`{"include_usage":true}`)})
	}
	o := rawjson.NewObject(make([]byte, 0, len(body)+128))
	done := 0
	for name, value := range rawjson.Members(body) {
		replaced := false
		for i := range set {
			if strings.EqualFold(rawjson.UnquoteName(name), set[i].name) { // some servers ignore case
				if replaced = true; done&(1<<i) == 0 {
					o.Raw(set[i].name, set[i].value)
					done |= 1 << i
				}
			}
		}
		if !replaced {
			o.Member(name, value)
		}
	}
	for i := range set {
		if done&(1<<i) == 0 {
			o.Raw(set[i].name, set[i].value)
		}
	}
	return o.End()
}

// send sends the call until it has a reply that another attempt would not change. The error is either that of an
// agent that has disconnected, or the answer to the agent.
func (g *Gateway) send(ctx context.Context, x *exchange) error {
	x.sent = time.Now()
	for ; ; x.retries++ {
		got, err := g.try(ctx, x)
		x.lost = upstream.MayHaveArrived(err)
		if ctx.Err() != nil && (err != nil || x.stream == nil || !x.stream.begun) {
			return context.Cause(ctx)
		}
		last := x.retries == maxTries-1
		if x.lost && !last && !errors.Is(err, errBroken) {
			last = x.reserved.again(ctx) != nil
		}
		switch {
		case errors.Is(err, errBroken):
			return err
		case err == nil && (last || !repeatable(got.status)):
			x.end = time.Now()
			x.take(&got)
			if x.stream != nil && x.stream.gaps {
				g.gaps.Do(func() {
					g.cfg.Logger.Warn("a backend leaves token ids out of its streams: such calls are recorded without any, and cannot be trained on; have agents ask for whole replies",
						"backend", x.backend.Endpoint)
				})
			}
			return nil
		case last && errors.Is(err, errUpstreamTimeout):
			return errTimedOut
		case last:
			return errStatus(http.StatusBadGateway, "Upstream model server request failed")
		}
		g.cfg.Logger.WarnContext(ctx, "sending a call again", "rollout", x.rollout.id(), "backend", x.backend.Endpoint, "tries", x.retries+1, "error", err)
		x.lost = false // what that attempt may have used is reserved
		if err := retries.Wait(ctx, x.retries); err != nil {
			return err
		}
	}
}

func repeatable(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// usageTimeout is how long a stream is read on for its usage, which comes last, after an agent has left with the whole reply.
const usageTimeout = time.Second

// try sends the call once.
func (g *Gateway) try(ctx context.Context, x *exchange) (got reply, err error) {
	agentCtx := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(agentCtx))
	defer cancel(nil)
	defer context.AfterFunc(agentCtx, func() {
		if x.stream != nil && x.stream.ended.Load() && errors.Is(context.Cause(agentCtx), context.Canceled) {
			timer := time.NewTimer(usageTimeout)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		cancel(context.Cause(agentCtx))
	})()
	timer := time.AfterFunc(g.cfg.Timeout, func() { cancel(errUpstreamTimeout) })
	defer timer.Stop()
	fault := func(err error) error {
		if errors.Is(context.Cause(ctx), errUpstreamTimeout) {
			return errUpstreamTimeout
		}
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(x.backend.Endpoint, "/")+"/"+x.path, bytes.NewReader(x.request))
	if err != nil {
		return got, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["Accept-Encoding"] = []string{"identity"}
	res, err := g.cfg.Transport.RoundTrip(req)
	if err != nil {
		return got, fault(err)
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusOK || res.StatusCode > 599 { // 101, or none of HTTP's (RFC 9110, 15)
		return got, fmt.Errorf("the backend answered %03d, which is not the status of a reply", res.StatusCode)
	}
	timer.Reset(g.cfg.Timeout)
	got = reply{status: res.StatusCode, kind: res.Header.Get("Content-Type"), encoding: res.Header.Get("Content-Encoding")}
	if got.encoding == "identity" {
		got.encoding = ""
	}
	if x.stream != nil && got.status == http.StatusOK && got.encoding == "" {
		isStream := strings.HasPrefix(got.kind, "text/event-stream")
		if !isStream {
			res.Body, isStream = upstream.PeekStream(res.Body)
		}
		if isStream {
			got.body, err = x.stream.relay(agentCtx, res, timer, g.cfg.Timeout)
			return got, err
		}
	}
	buffer := bytes.NewBuffer(make([]byte, 0, min(max(res.ContentLength, 0), g.cfg.MaxBodyBytes)+bytes.MinRead))
	if _, err := buffer.ReadFrom(io.LimitReader(res.Body, g.cfg.MaxBodyBytes+1)); err != nil {
		return got, fault(err)
	}
	got.body = buffer.Bytes()
	got.tooLong = int64(len(got.body)) > g.cfg.MaxBodyBytes
	return got, nil
}
